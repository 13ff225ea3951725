import logging
import re
import time

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers.stripe import STRIPE
from django_webhook_guard.secrets import Secret
from tests.senders import STRIPE_SECRET, hexmac

EVENT = {"id": "evt_1", "type": "invoice.paid", "created": 1796040000, "data": {"object": {"id": "in_1"}}}


def test_the_vector_that_the_package_accepted():
    body = b'{"id":"evt_1","object":"event","type":"invoice.paid","account":"acct_1"}'
    header = "t=1700000000,v1=383b86961bcc0cc5424e3627173097c3484cb027a9a7c06e0d03a828ce31478b"
    delivery = Delivery(method="POST", url="/", headers={"stripe-signature": header}, body=body)
    assert STRIPE.verifier.verify(delivery, [Secret("whsec_test_secret")]).content == b"1700000000." + body


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.DEBUG, logger="django_webhook_guard")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "django_webhook_guard"]


@pytest.mark.django_db
def test_what_a_receipt_keeps_of_an_event(post):
    assert post("stripe", EVENT).status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.object_key) == ("evt_1", "invoice.paid", "in_1")
    assert (receipt.key_origin, receipt.key_id, receipt.tenant) == ("id", "e20ac3bd", None)
    assert receipt.occurred_at.isoformat() == "2026-11-30T12:00:00+00:00"


@pytest.mark.django_db
def test_a_retry_is_signed_afresh_and_is_the_same_event(post, caplog):
    now = int(time.time())
    assert post("stripe", EVENT, at=now - 60).json()["status"] == "ignored"
    assert post("stripe", {**EVENT, "pending_webhooks": 1}, at=now).json()["status"] == "duplicate"
    assert "another body" not in caplog.text
    assert WebhookReceipt.objects.count() == 1


@pytest.mark.django_db
def test_b3_a_further_scheme_is_left_alone_and_no_downgrade(post):
    now = int(time.time())
    body = b'{"id":"evt_1","type":"x"}'
    good = hexmac(STRIPE_SECRET, f"{now}.".encode() + body)
    assert post("stripe", body, headers={"Stripe-Signature": f"t={now},v0={good}"}).status_code == 401
    assert WebhookReceipt.objects.count() == 0
    assert post("stripe", body, headers={"Stripe-Signature": f"t={now},v1={good},v0=00"}).status_code == 200


@pytest.mark.django_db
def test_b1_a_byte_outside_ascii_in_any_header_is_a_quiet_refusal(post, logged, caplog):
    for value in (b"t=1,v1=\xe9", b"\xe9", b"t=\xe9,v1=00", b"t=1,\xe9=1,v1=\xe9\xe9"):
        response = post("stripe", EVENT, headers={"Stripe-Signature": value.decode("latin-1")})
        assert (response.status_code, response.content) == (401, b'{"status": "rejected"}')
    assert WebhookReceipt.objects.count() == 0
    assert {record.levelname for record in caplog.records if record.name == "django_webhook_guard"} == {"WARNING"}
    assert len(logged()) == 4


@pytest.mark.django_db
def test_b1_a_secret_outside_ascii(post, sources):
    sources(stripe={"SECRETS": ["pässwörd-0123456789"]})
    assert post("stripe", EVENT, secret="pässwörd-0123456789").status_code == 200


@pytest.mark.django_db
def test_c1_milliseconds_are_named_and_never_guessed(post, logged):
    assert post("stripe", EVENT, at=int(time.time()) * 1000).status_code == 400
    assert "milliseconds" in logged()[0]
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_c2_the_signature_is_looked_at_first_and_the_window_is_a_setting(post, sources, logged):
    old = int(time.time()) - 13618
    assert post("stripe", EVENT, at=old).status_code == 400
    assert re.search(r"signature valid, too old by 1331[89] s", logged()[0])
    assert post("stripe", EVENT, at=old, secret="another-0123456789abcdef").status_code == 401
    assert "bad_signature" in logged()[-1]
    assert WebhookReceipt.objects.count() == 0
    sources(stripe={"TOLERANCE": 86_400})
    assert post("stripe", EVENT, at=old).status_code == 200
    assert post("stripe", EVENT, at=old).json()["status"] == "duplicate"


@pytest.mark.django_db
@pytest.mark.parametrize("stamp", ["9" * 20, "9" * 309, "9" * 5000, "-" + "9" * 400])
def test_c3_a_long_stamp_is_refused(post, stamp):
    body = b'{"id":"evt_1","type":"x"}'
    header = f"t={stamp},v1={hexmac(STRIPE_SECRET, stamp.encode() + b'.' + body)}"
    assert post("stripe", body, headers={"Stripe-Signature": header}).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("offset", "status", "words"),
    [(90, 200, ""), (310, 400, "in the future"), (-290, 200, ""), (-301, 400, "too old")],
)
def test_c5_clocks_differ_both_ways(post, logged, offset, status, words):
    assert post("stripe", EVENT, at=int(time.time()) + offset).status_code == status
    assert words in " ".join(logged())
    assert WebhookReceipt.objects.count() == (status == 200)


@pytest.mark.django_db
def test_no_window_still_refuses_the_end_of_the_calendar(post, sources):
    sources(stripe={"TOLERANCE": None})
    assert post("stripe", EVENT, at=999999999999999).status_code == 400
    assert post("stripe", EVENT, at=1).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("header", ["v1=" + "00" * 32, "t=5", "", "t=,v1=", "t=5,v0=00"])
def test_c6_a_missing_stamp_or_signature_never_skips_the_check(post, header):
    assert post("stripe", EVENT, headers={"Stripe-Signature": header} if header else {}).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_a_header_that_comes_twice_is_refused_as_it_has_two_stamps(post):
    now = int(time.time())
    body = b'{"id":"evt_1","type":"x"}'
    good = f"t={now},v1={hexmac(STRIPE_SECRET, f'{now}.'.encode() + body)}"
    assert post("stripe", body, headers={"Stripe-Signature": f"{good},{good}"}).status_code == 401
    assert WebhookReceipt.objects.count() == 0
    assert post("stripe", body, headers={"Stripe-Signature": good}).status_code == 200


@pytest.mark.django_db
def test_the_account_is_the_tenant_where_the_source_says_so(post, sources):
    sources(stripe={"TENANT": True})
    assert post("stripe", EVENT).status_code == 400
    assert post("stripe", {**EVENT, "account": "acct_1"}).status_code == 200
    assert post("stripe", {**EVENT, "account": "acct_2"}).status_code == 200
    assert set(WebhookReceipt.objects.values_list("tenant", flat=True)) == {"acct_1", "acct_2"}

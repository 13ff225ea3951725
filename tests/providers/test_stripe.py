import logging
import re
import time

import pytest
import stripe._webhook
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stripe import SignatureVerificationError, WebhookSignature

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers.stripe import STRIPE
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import check_window
from tests.senders import STRIPE_SECRET, hexmac

BODY = '{"id":"evt_1","object":"event","type":"invoice.paid"}'
STAMP = "1700000000"


def sign(body=BODY, stamp=STAMP, secret=STRIPE_SECRET):
    return hexmac(secret, f"{stamp}.{body}".encode())


def package(header, body=BODY, secret=STRIPE_SECRET):
    """Whether Stripe's own package accepts a delivery, whatever its age; an error of any kind is a no."""
    try:
        return WebhookSignature.verify_header(body, header, secret)
    except (SignatureVerificationError, TypeError):
        return False


def ours(header, body=BODY, secret=STRIPE_SECRET):
    raw = body if isinstance(body, bytes) else body.encode()
    delivery = Delivery(method="POST", url="/", headers={"stripe-signature": header}, body=raw)
    try:
        return STRIPE.verifier.verify(delivery, [Secret(secret)]).content.endswith(raw)
    except VerificationError:
        return False


GOOD = f"t={STAMP},v1={sign()}"


def test_the_vector_that_the_package_accepted():
    body = '{"id":"evt_1","object":"event","type":"invoice.paid","account":"acct_1"}'
    header = "t=1700000000,v1=383b86961bcc0cc5424e3627173097c3484cb027a9a7c06e0d03a828ce31478b"
    assert ours(header, body, "whsec_test_secret")
    assert package(header, body, "whsec_test_secret")


@given(body=st.text(st.characters(exclude_categories=["Cs"]), max_size=200), stamp=st.integers(1, 10**12))
@settings(deadline=None, max_examples=200)
def test_we_accept_what_the_package_signs(body, stamp):
    header = WebhookSignature.generate_signature_header(body, STRIPE_SECRET, timestamp=stamp)
    assert ours(header, body)
    assert package(header, body)


@given(
    body=st.text(st.characters(max_codepoint=0x2FF), max_size=80),
    position=st.integers(0, 999),
    flip=st.integers(1, 127),
)
@settings(deadline=None, max_examples=200)
def test_we_and_the_package_refuse_a_changed_body(body, position, flip):
    header = f"t={STAMP},v1={sign(body)}"
    tampered = bytearray(body.encode() or b"\0")
    tampered[position % len(tampered)] ^= flip
    assert not ours(header, bytes(tampered))
    decoded = tampered.decode("utf-8", "ignore")
    assert decoded.encode() != tampered or not package(header, decoded)


ITEMS = st.sampled_from(
    [
        f"t={STAMP}",
        "t=1700000001",
        "t=",
        "t",
        "t=x",
        f"t={STAMP}=",
        f"v1={sign()}",
        f"v1={sign().upper()}",
        f"v1={sign(body=BODY + ' ')}",
        f"v1={sign()}=",
        f"v1={sign()} ",
        f" v1={sign()}",
        "v1=",
        "v1",
        f"v0={sign()}",
        f"v2={sign()}",
        f"V1={sign()}",
        "scheme=x",
        "",
        "=",
    ]
)
RIGHT = st.sampled_from([f"t={STAMP}", f"v1={sign()}", f"v0={sign()}", "v1=00"])


def only_we_refuse(header):
    """What is stricter on purpose: items without '=', a second stamp, and text after a stamp or a signature."""
    items = [item.partition("=") for item in header.split(",")]
    stamps = [value for key, _, value in items if key == "t"]
    odd = any(not found for _, found, _ in items) or any(value.count("=") for _, _, value in items)
    return odd or len(stamps) != 1 or not re.fullmatch("[0-9]{1,15}", stamps[0])


def only_we_accept(header):
    """What is looser on purpose: hex has no case, and outer blanks are no data."""
    return not package(header) and package(header.strip().replace(sign().upper(), sign()))


@given(items=st.lists(RIGHT | ITEMS, max_size=6), separator=st.sampled_from([",", ",", ",", ", ", ";", ""]))
@example(items=[f"t={STAMP}", f"v1={sign()}", f"v0={sign()}"], separator=",")
@example(items=[f"v0={sign()}", f"v1={sign()}", "v1=00", f"t={STAMP}"], separator=",")
@example(items=[f"t={STAMP}", f"v0={sign()}"], separator=",")
@settings(deadline=None, max_examples=1500)
def test_we_and_the_package_agree_on_headers(items, separator):
    header = separator.join(items)
    if package(header) and not ours(header):
        assert only_we_refuse(header)
    elif ours(header) and not package(header):
        assert only_we_accept(header)


@given(
    header=st.text(st.sampled_from("tv01=,. 5a\t;"), max_size=30)
    | st.text(st.characters(max_codepoint=255), max_size=60)
)
@settings(deadline=None, max_examples=300)
def test_we_and_the_package_refuse_what_is_no_proof(header):
    assert not ours(header)
    assert not package(header)


def stamped(stamp, signed_as):
    return f"t={stamp},v1={sign(stamp=signed_as)}"


@pytest.mark.parametrize(
    "header",
    [
        f"t={STAMP},{GOOD}",
        f"{GOOD},t=1",
        f"{GOOD},junk",
        f"{GOOD},",
        f"{GOOD}=",
        stamped("+5", "5"),
        stamped("-5", "-5"),
        stamped(" 5", "5"),
        stamped("5_0", "50"),
        stamped("05", "5"),
        stamped("\u0665", "5"),
        stamped("9" * 16, "9" * 16),
        f"t={STAMP}" + ",v1=00" * 16 + f",v1={sign()}",
    ],
)
def test_stricter_than_the_package(header):
    assert package(header)
    assert not ours(header)


@pytest.mark.parametrize(
    "header",
    [
        f"t={STAMP},v1={sign().upper()}",
        f"{GOOD} ",
        stamped("05", "05"),  # the stamp is signed as it was sent, not as it is read
        f"t={STAMP},v1=\xe9,v1={sign()}",  # the package raises TypeError here
    ],
)
def test_looser_than_the_package(header):
    assert ours(header)
    assert not package(header)


def test_bytes_that_are_no_text_are_signed_as_they_are():
    body = b'{"a":"\xff\xfe"}'
    assert ours(f"t={STAMP},v1={hexmac(STRIPE_SECRET, STAMP.encode() + b'.' + body)}", body)


@pytest.mark.parametrize(
    ("offset", "side", "accepted"),
    [(0, "inside", True), (-300, "inside", True), (-301, "late", False), (300, "inside", True), (301, "future", True)],
)
def test_the_window_is_the_packages_in_the_past_and_has_an_end_in_the_future(monkeypatch, offset, side, accepted):
    monkeypatch.setattr(stripe._webhook.time, "time", lambda: 1_700_000_000.0)
    stamp = 1_700_000_000 + offset
    header = f"t={stamp},v1={sign(stamp=stamp)}"
    verification = STRIPE.verifier.verify(
        Delivery(method="POST", url="/", headers={"stripe-signature": header}, body=BODY.encode()),
        [Secret(STRIPE_SECRET)],
    )
    now = verification.signed_at.fromtimestamp(1_700_000_000, verification.signed_at.tzinfo)
    assert check_window(verification.signed_at, now, STRIPE.tolerance) == side
    try:
        assert WebhookSignature.verify_header(BODY, header, STRIPE_SECRET, tolerance=300) is accepted
    except SignatureVerificationError:
        assert not accepted


# -- through the view --------------------------------------------------------------------------------------------------

EVENT = {"id": "evt_1", "type": "invoice.paid", "created": 1796040000, "data": {"object": {"id": "in_1"}}}


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

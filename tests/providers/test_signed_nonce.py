import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers.signed_nonce import SIGNED_NONCE
from django_webhook_guard.secrets import Secret
from tests.senders import PARTNER_SECRET, hexmac, partner

EVENT = {"type": "order.paid", "n": 1}


def verify(body, headers, secret=PARTNER_SECRET):
    named = {name.lower(): value for name, value in headers.items()}
    return SIGNED_NONCE.verifier.verify(Delivery(method="POST", url="/", headers=named, body=body), [Secret(secret)])


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        (b'{"a":1}', "b45b7a4c3ee4fea40945f64efbed9920368e328b25baa2070495f022c8c10c9b"),
        (b"", "c44225ab9fa07f1fbaf90fd4c3b50e99721d8c100d1c9b517d738df67b99818f"),
    ],
)
def test_the_contracts_vectors(body, digest):
    headers = {"X-Timestamp": "1700000000", "X-Nonce": "nonce-1", "X-Signature-256": f"sha256={digest}"}
    verification = verify(body, headers, "topsecret")
    assert verification.content == b"1700000000.nonce-1." + body
    assert (verification.nonce, verification.signed_at.timestamp()) == ("nonce-1", 1_700_000_000)


@given(body=st.binary(max_size=100), nonce=st.from_regex(r"\A[A-Za-z0-9_-]{1,128}\Z"), at=st.integers(0, 10**10))
@settings(deadline=None, max_examples=150)
def test_we_accept_what_an_independent_sender_signs(body, nonce, at):
    headers = partner(body, at=at, nonce=nonce)
    assert verify(body, headers).nonce == nonce
    for name, other in (("X-Timestamp", str(at + 1)), ("X-Nonce", nonce[:-1] + "~"), ("X-Nonce", nonce + "x")):
        with pytest.raises(VerificationError):
            verify(body, {**headers, name: other})
    with pytest.raises(VerificationError):
        verify(body + b" ", headers)


@pytest.mark.django_db
def test_what_a_receipt_keeps_of_an_event(post):
    assert post("partner", EVENT, key="order-1", nonce="n-1").status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.key_origin) == ("order-1", "order.paid", "paired")
    assert receipt.headers["idempotency-key"] == "order-1"
    assert receipt.signed_at is not None


@pytest.mark.django_db
def test_without_a_key_the_nonce_is_the_key(post):
    assert post("partner", EVENT, nonce="n-1").json()["status"] == "ignored"
    assert post("partner", EVENT, nonce="n-2").json()["status"] == "ignored"
    assert set(WebhookReceipt.objects.values_list("key_origin", "event_id", "idempotency_key")) == {
        ("nonce", "", "n-1"),
        ("nonce", "", "n-2"),
    }


@pytest.mark.django_db
def test_a_retry_has_a_fresh_stamp_and_nonce_and_the_same_key(post):
    now = int(time.time())
    assert post("partner", EVENT, key="order-1", at=now - 9).json()["status"] == "ignored"
    assert post("partner", EVENT, key="order-1", at=now).json()["status"] == "duplicate"
    assert WebhookReceipt.objects.count() == 1


@pytest.mark.django_db
def test_a_captured_message_under_another_key_is_held(post):
    body = json.dumps(EVENT).encode()
    signed = partner(body, key="order-1")
    assert post("partner", body, headers=signed).status_code == 200
    for key in ("order-2", "order-3"):
        assert post("partner", body, headers={**signed, "Idempotency-Key": key}).json()["status"] == "quarantined"
    assert WebhookReceipt.objects.filter(status="quarantined", reason="replayed").count() == 1
    assert WebhookReceipt.objects.count() == 2


@pytest.mark.django_db
def test_a_captured_message_without_its_key_is_held(post):
    body = json.dumps(EVENT).encode()
    signed = partner(body, key="order-1")
    assert post("partner", body, headers=signed).status_code == 200
    del signed["Idempotency-Key"]
    assert post("partner", body, headers=signed).json()["status"] == "quarantined"


@pytest.mark.django_db
def test_a_nonce_with_another_body_is_held(post):
    assert post("partner", EVENT, nonce="n-1").json()["status"] == "ignored"
    assert post("partner", {**EVENT, "n": 2}, nonce="n-1").json()["status"] == "quarantined"
    assert WebhookReceipt.objects.get(status="quarantined").reason == "key_reused"


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["X-Timestamp", "X-Nonce", "X-Signature-256"])
def test_c6_a_missing_part_of_the_proof_is_refused(post, name):
    body = json.dumps(EVENT).encode()
    signed = partner(body, key="order-1")
    del signed[name]
    assert post("partner", body, headers=signed).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["X-Timestamp", "X-Nonce", "X-Signature-256"])
def test_repeated_header_lines_are_refused(post, name):
    body = json.dumps(EVENT).encode()
    signed = partner(body, key="order-1")
    for joined in (f"{signed[name]},{signed[name]}", f"{signed[name]}, x"):
        assert post("partner", body, headers={**signed, name: joined}).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["", " ", "k" * 256, "a\0b"])
def test_a_key_that_is_there_but_can_be_none_is_malformed(post, key):
    assert post("partner", EVENT, extra={"Idempotency-Key": key}).status_code == 400
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_the_answers_of_the_contract_are_200(post):
    body = json.dumps(EVENT).encode()
    signed = partner(body, key="order-1")
    assert [post("partner", body, headers={**signed, "Idempotency-Key": key}).status_code for key in "ab"] == [200, 200]


@pytest.mark.django_db
def test_the_border_between_nonce_and_body_can_not_be_moved(post):
    now = int(time.time())
    signature = "sha256=" + hexmac(PARTNER_SECRET, f"{now}.n.x.{{}}".encode())
    for nonce, body in (("n.x", b"{}"), ("n", b"x.{}"), (f"{now}.n", b"{}")):
        headers = {"X-Timestamp": str(now), "X-Nonce": nonce, "X-Signature-256": signature}
        assert post("partner", body, headers=headers).status_code == (400 if nonce == "n" else 401)
    assert WebhookReceipt.objects.count() == 0

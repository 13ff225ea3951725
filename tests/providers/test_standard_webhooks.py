import json
import time

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.providers.standard_webhooks import STANDARD_WEBHOOKS
from django_webhook_guard.secrets import Secret
from tests.senders import STANDARD_SECRET, standard_signature, standard_webhooks

NAME = "standard-webhooks"
EVENT = {"type": "invoice.paid", "timestamp": "2026-11-30T12:00:00.123456789Z", "data": {}}
OLD = "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQ="
PUBLISHED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="


@pytest.fixture(autouse=True)
def _configured(configure):
    configure(NAME)


def verify(signature, prefix="webhook-"):
    headers = {"id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": "1614265330", "signature": signature}
    return STANDARD_WEBHOOKS.verifier.verify(
        Delivery(
            method="POST",
            url="/",
            headers={prefix + name: value for name, value in headers.items()},
            body=b'{"test": 2432232314}',
        ),
        [Secret(STANDARD_SECRET)],
    )


@pytest.mark.parametrize("prefix", ["webhook-", "svix-"])
def test_the_published_vector(prefix):
    verification = verify(PUBLISHED, prefix)
    assert verification.content == b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    assert verify(f"{V1A} {PUBLISHED}", prefix)
    for wrong in (PUBLISHED.replace("OE=", "OA="), V1A, PUBLISHED.replace("v1", "v1a"), PUBLISHED.replace("v1", "v2")):
        with pytest.raises(VerificationError):
            verify(wrong, prefix)


@pytest.mark.django_db
@pytest.mark.parametrize("prefix", ["webhook-", "svix-"])
def test_what_a_receipt_keeps_of_an_event(post, prefix):
    assert post(NAME, EVENT, id="msg_1", prefix=prefix).status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.key_origin) == ("msg_1", "invoice.paid", "id")
    assert receipt.occurred_at.isoformat() == "2026-11-30T12:00:00.123456+00:00"
    assert receipt.headers[f"{prefix}id"] == "msg_1"
    assert not any("signature" in name for name in receipt.headers)
    assert not WebhookSeen.objects.exists()


@pytest.mark.django_db
def test_b6_the_id_is_one_in_both_families_and_both_at_once_are_two_truths(post):
    assert post(NAME, EVENT, id="msg_1").json()["status"] == "ignored"
    assert post(NAME, EVENT, id="msg_1", prefix="svix-").json()["status"] == "duplicate"
    assert post(NAME, EVENT, id="msg_2", prefix="svix-").json()["status"] == "ignored"
    body = json.dumps(EVENT).encode()
    for id in ("msg_3", "msg_4"):
        other = standard_webhooks(body, id=id, prefix="svix-")
        assert post(NAME, body, id="msg_3", extra=other).status_code == 401
    assert post(NAME, body, id="msg_5", prefix="svix-", extra={"webhook-id": "msg_6"}).status_code == 401
    assert set(WebhookReceipt.objects.values_list("event_id", flat=True)) == {"msg_1", "msg_2"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "entries", ["v1,AAAA v1a,BBBB v2,CCCC {}", "{} v1,AAAA", "  {}  v1a", "v1,{old} {}", "x,y,z {}"]
)
def test_b2_while_a_key_is_rotated_any_entry_may_match(post, entries):
    now, body = int(time.time()), json.dumps(EVENT).encode()
    good, old = (standard_signature(body, "msg_1", now, secret) for secret in (STANDARD_SECRET, OLD))
    header = entries.format(good, old=old.removeprefix("v1,"))
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now), "webhook-signature": header}
    assert post(NAME, body, headers=headers).status_code == 200


@pytest.mark.django_db
def test_j3_with_two_live_secrets_either_signature_is_enough(post, configure):
    configure(NAME, SECRETS=[STANDARD_SECRET, {"id": "old", "secret": OLD}])
    assert post(NAME, EVENT, id="msg_1", secret=OLD).status_code == 200
    assert WebhookReceipt.objects.get().key_id == "old"
    assert post(NAME, EVENT, id="msg_1").json()["status"] == "duplicate"


@pytest.mark.django_db
def test_a_retry_is_signed_afresh_and_is_the_same_event(post):
    now = int(time.time())
    assert post(NAME, EVENT, id="msg_1", at=now - 60).json()["status"] == "ignored"
    assert post(NAME, EVENT, id="msg_1", at=now).json()["status"] == "duplicate"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"id": "msg.1"}, 401),
        ({"id": "msg_1", "at": 1}, 400),
        ({"id": "msg_1", "at": f"{int(time.time())}.5"}, 401),
        ({"id": "m" * 256}, 400),
        ({"id": "msg_1", "secret": OLD}, 401),
    ],
)
def test_what_is_refused_though_signed(post, given, status):
    assert post(NAME, EVENT, **given).status_code == status
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_missing_or_comes_twice_is_refused(post, name):
    body = json.dumps(EVENT).encode()
    headers = standard_webhooks(body, id="msg_1")
    twice = {**headers, name: f"{headers[name]},{headers[name]}"}
    assert post(NAME, body, headers=twice).status_code == 401
    del headers[name]
    assert post(NAME, body, headers=headers).status_code == 401
    assert WebhookReceipt.objects.count() == 0

import json
import time
from urllib.parse import quote, urlencode

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent, VerificationError
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import Handshake
from django_webhook_guard.providers.slack import SLACK
from django_webhook_guard.secrets import Secret
from tests.senders import SLACK_SECRET, slack

FORM = "application/x-www-form-urlencoded"
EVENT = {
    "token": "t",
    "team_id": "T1",
    "type": "event_callback",
    "event_id": "Ev1",
    "event_time": 1796040000,
    "event": {"type": "app_mention", "text": "hi"},
}
COMMAND = {"team_id": "T1", "command": "/deploy", "text": "now & here", "trigger_id": "13.47.80", "api_app_id": "A1"}
INTERACTION = {"type": "block_actions", "team": {"id": "T1"}, "trigger_id": "13.47.81", "actions": [{"value": "a=1&b"}]}
PUBLISHED = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
    b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def interaction(content):
    return b"payload=" + quote(json.dumps(content)).encode()


@pytest.fixture(autouse=True)
def _configured(configure):
    configure("slack")


def stored():
    return WebhookReceipt.objects.get()


def test_the_published_vector():
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": "1531420618"}
    verify = SLACK.verifier.verify
    verification = verify(Delivery(method="POST", url="/", headers=headers, body=PUBLISHED), [Secret(SLACK_SECRET)])
    assert verification.content == b"v0:1531420618:" + PUBLISHED
    assert verification.signed_at.timestamp() == 1531420618
    assert SLACK.parse(PUBLISHED, "")[0]["command"] == "/webhook-collect"
    for changed in (
        {"headers": {**headers, "x-slack-request-timestamp": "1531420619"}},
        {"body": PUBLISHED.replace(b"G8PSS9T3V", b"G8PSS9T3W")},
        {"headers": {**headers, "x-slack-signature": signature.removeprefix("v0=")}},
    ):
        with pytest.raises(VerificationError):
            verify(
                Delivery(method="POST", url="/", **{"headers": headers, "body": PUBLISHED} | changed),
                [Secret(SLACK_SECRET)],
            )


@pytest.mark.django_db
def test_an_event_of_the_events_api(post):
    assert post("slack", EVENT).status_code == 200
    receipt = stored()
    assert (receipt.event_id, receipt.event_type, receipt.key_origin) == ("Ev1", "event_callback.app_mention", "id")
    assert receipt.occurred_at.isoformat() == "2026-11-30T12:00:00+00:00"
    assert receipt.signed_at is not None


@pytest.mark.django_db
def test_a_slash_command(post, handler):
    seen = []
    handler("slack", "/deploy")(lambda event: seen.append(event.data))
    assert post("slack", urlencode(COMMAND).encode(), content_type=FORM).json()["status"] == "processed"
    assert (stored().event_id, stored().event_type, stored().key_origin) == ("13.47.80", "/deploy", "id")
    assert seen == [COMMAND]


@pytest.mark.django_db
def test_an_interaction(post, handler):
    seen = []
    handler("slack", "block_actions")(lambda event: seen.append(event.data))
    assert post("slack", interaction(INTERACTION), content_type=FORM).json()["status"] == "processed"
    assert (stored().event_id, stored().event_type, stored().key_origin) == ("13.47.81", "block_actions", "id")
    assert seen == [INTERACTION]


@pytest.mark.django_db
def test_an_interaction_without_trigger_is_known_by_what_was_signed(post):
    closed, now = {"type": "view_closed", "team": None}, int(time.time())
    assert post("slack", interaction(closed), content_type=FORM, at=now).json()["status"] == "ignored"
    assert post("slack", interaction(closed), content_type=FORM, at=now).json()["status"] == "duplicate"
    assert post("slack", interaction(closed), content_type=FORM, at=now - 1).json()["status"] == "ignored"
    assert set(WebhookReceipt.objects.values_list("key_origin", "event_type")) == {("content", "view_closed")}


@pytest.mark.django_db
@pytest.mark.parametrize("content_type", ["application/json", FORM, "multipart/form-data; boundary=x", "text/plain"])
def test_the_unsigned_content_type_makes_no_other_event_of_a_body(post, content_type):
    forged = quote(json.dumps({"type": "forged", "trigger_id": "f"}))
    text = f"x&payload={forged}&command=/forged&trigger_id=f&--x\r\nContent-Disposition: form-data; name=payload\r\n"
    genuine = [
        json.dumps({**EVENT, "event": {"type": "message", "text": text}}).encode(),
        urlencode({**COMMAND, "text": text + '{"type":"forged"}'}).encode(),
        interaction({**INTERACTION, "state": text}),
    ]
    for body in genuine:
        post("slack", body, content_type=content_type)
    kept = set(WebhookReceipt.objects.values_list("event_type", flat=True))
    assert kept <= {"event_callback.message", "/deploy", "block_actions"}
    if not content_type.startswith("multipart"):
        assert len(kept) == 3


@pytest.mark.django_db
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload=",
        b"payload=[]",
        b"payload=%7B%7D&payload=%7B%7D",
        interaction(INTERACTION) + b"&command=%2Fdeploy",
        b"command=%2Fdeploy&trigger_id=1&trigger_id=2",
        b"command=/deploy&trigger_id=",
        b'{"type":"event_callback","event_id":null}',
        b'[{"type":"event_callback","event_id":"Ev1"}]',
    ],
)
def test_bodies_that_are_no_event(post, body):
    assert post("slack", body, content_type=FORM).status_code == 400
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_l3_a_delivery_that_says_it_is_a_retry_may_be_the_first(post, handler):
    runs = []
    handler("slack", "*")(lambda event: runs.append(event.headers))
    retry = {"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
    assert post("slack", EVENT, at=int(time.time()) - 60, extra=retry).json()["status"] == "processed"
    assert stored().headers["x-slack-retry-num"] == "1"
    assert stored().headers["x-slack-retry-reason"] == "http_timeout"
    assert post("slack", EVENT, extra={"X-Slack-Retry-Num": "2"}).json()["status"] == "duplicate"
    assert post("slack", {**EVENT, "event_id": "Ev2"}).json()["status"] == "processed"
    assert len(runs) == 2


@pytest.mark.django_db
def test_the_tenant_is_signed_in_every_kind_of_delivery(post, configure):
    configure("slack", TENANT=True)
    for tenant, body in (
        ("T1", json.dumps(EVENT).encode()),
        ("T2", urlencode({**COMMAND, "team_id": "T2"}).encode()),
        ("T3", interaction({**INTERACTION, "team": {"id": "T3"}})),
        ("E1", interaction({**INTERACTION, "team": None, "enterprise": {"id": "E1"}, "trigger_id": "9"})),
    ):
        assert post("slack", body).status_code == 200
        assert WebhookReceipt.objects.latest("pk").tenant == tenant
    assert post("slack", {"type": "event_callback", "event_id": "Ev9"}).status_code == 400


@pytest.mark.django_db
def test_commands_and_interactions_hear_200(post, configure):
    configure("slack", LATE="quarantine")
    body = urlencode(COMMAND).encode()
    held = post("slack", body, at=int(time.time()) - 400)
    assert (held.status_code, held.json()["status"]) == (200, "quarantined")


# -- the handshake -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("challenge", ["3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", "<script>", "c" * 255])
def test_l8_a_signed_challenge_comes_back_as_plain_text(post, handler, challenge):
    handler("slack", "*")(lambda event: pytest.fail("dispatched"))
    asked = {"token": "t", "challenge": challenge, "type": "url_verification"}
    response = post("slack", asked)
    assert (response.status_code, response.content) == (200, challenge.encode())
    assert response["Content-Type"].startswith("text/plain")
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_l8_a_challenge_is_answered_only_when_signed(post):
    body = json.dumps({"challenge": "c1", "type": "url_verification"}).encode()
    for headers in ({}, slack(body, secret="another-0123456789abcdef")):
        response = post("slack", body, headers=headers)
        assert (response.status_code, b"c1" in response.content) == (401, False)


@pytest.mark.parametrize(
    "challenge", [None, "", 1, ["c"], {"c": "c"}, "c" * 256, "a\nb", "a\0b", "é", "\ud800", "\u202e"]
)
def test_l8_a_challenge_that_can_be_none_is_malformed(challenge):
    with pytest.raises(MalformedContent):
        SLACK.handshake({"type": "url_verification", "challenge": challenge})


@pytest.mark.parametrize("data", [{}, {"type": None, "challenge": "c"}, {"type": ["url_verification"]}, EVENT, COMMAND])
def test_everything_else_is_an_event(data):
    assert SLACK.handshake(data) is None
    assert SLACK.handshake({"type": "url_verification", "challenge": "c"}) == Handshake(body=b"c")

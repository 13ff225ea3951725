import json
import logging
from urllib.parse import quote

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers.github import GITHUB
from django_webhook_guard.secrets import Secret
from tests.senders import GITHUB_SECRET, github, hexmac

PUSH = {"ref": "refs/heads/main", "repository": {"full_name": "acme/shop"}}
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("secret", "body", "signature"),
    [
        (
            "It's a Secret to Everybody",
            b"Hello, World!",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        ),
        (
            "mysecret",
            b'{"foo":"bar"}',
            "sha256=4864d2759938a15468b5df9ade20bf161da9b4f737ea61794142f3484236bda3",
        ),
    ],
)
def test_the_published_vectors(secret, body, signature):
    delivery = Delivery(method="POST", url="/", headers={"x-hub-signature-256": signature}, body=body)
    assert GITHUB.verifier.verify(delivery, [Secret(secret)]).content == body
    with pytest.raises(VerificationError):
        GITHUB.verifier.verify(delivery, [Secret(secret + " ")])


@pytest.mark.django_db
def test_what_a_receipt_keeps_of_an_event(post):
    assert post("github", {**PUSH, "action": "opened"}, event="issues", guid="g1").status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.key_origin) == ("g1", "issues.opened", "paired")
    assert (receipt.object_key, receipt.signed_at, receipt.key_id) == ("acme/shop", None, "40514504")
    assert receipt.headers["x-github-event"] == "issues"
    assert "x-hub-signature-256" not in receipt.headers


@pytest.mark.django_db
def test_the_weaker_legacy_signature_alone_proves_nothing(post):
    body = json.dumps(PUSH).encode()
    legacy = {"X-Hub-Signature": "sha1=" + hexmac(GITHUB_SECRET, body, "sha1"), "X-GitHub-Delivery": "g1"}
    assert post("github", body, headers=legacy).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["bogus=00", "md5=", "sha1=", "=x", "nodigest", "sha256=", "sha256="])
def test_b4_the_delivery_does_not_choose_the_algorithm(post, kind):
    body = json.dumps(PUSH).encode()
    algorithm = kind[:-1]
    value = kind + (hexmac(GITHUB_SECRET, body, algorithm) if algorithm in ("md5", "sha1") else "")
    assert post("github", body, headers={**github(body), "X-Hub-Signature-256": value}).status_code == 401
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_b5_prefix_case_and_blanks(post, caplog):
    body = json.dumps(PUSH).encode()
    digest = hexmac(GITHUB_SECRET, body)
    signed = {
        "bare": digest,
        "upper": f"sha256={digest.upper()}",
        "shout": f"SHA256={digest}",
        "blank": f"sha256={digest} ",
    }
    answers = {
        name: post("github", body, headers={**github(body, guid=name), "X-Hub-Signature-256": value}).status_code
        for name, value in signed.items()
    }
    assert answers["bare"] == answers["shout"] == 401
    # One body under two ids: the second one is genuine too, and held.
    assert (answers["upper"], answers["blank"]) == (200, 202)
    assert "prefix missing" in caplog.text
    assert digest not in caplog.text


@pytest.mark.django_db
def test_l2_one_guid_with_another_body_is_another_event(post, sources):
    sources(second={"PROVIDER": "github", "SECRETS": ["second-0123456789abcdef"]})
    one, two = json.dumps(PUSH).encode(), json.dumps({**PUSH, "ref": "x"}).encode()
    assert post("github", one, guid="g1").json()["status"] == "ignored"
    second = github(two, guid="g1", secret="second-0123456789abcdef")
    assert post("second", two, headers=second).json()["status"] == "ignored"
    assert post("github", two, guid="g1").json()["status"] == "ignored"
    assert WebhookReceipt.objects.filter(event_id="g1").count() == 3
    held = post("github", one, guid="g3")
    assert (held.status_code, held.json()["status"]) == (202, "quarantined")
    assert WebhookReceipt.objects.get(event_id="g3").reason == "replayed"


@pytest.mark.django_db
def test_l2_a_signed_id_with_another_body_is_a_duplicate_with_a_warning(post, sources, caplog):
    sources(github={"EVENT_ID": "id"})
    assert post("github", {"id": 1, "n": 1}).json()["status"] == "ignored"
    assert post("github", {"id": 1, "n": 2}).json()["status"] == "duplicate"
    assert [record.levelname for record in caplog.records if "another body" in record.getMessage()] == ["WARNING"]
    assert WebhookReceipt.objects.count() == 1


@pytest.mark.django_db
def test_a_redelivery_keeps_guid_and_body(post):
    assert post("github", PUSH, guid="g1").json()["status"] == "ignored"
    assert post("github", PUSH, guid="g1").json()["status"] == "duplicate"


@pytest.mark.django_db
@pytest.mark.parametrize("headers", [{}, {"X-GitHub-Delivery": ""}, {"X-GitHub-Delivery": "g" * 256}])
def test_a_delivery_without_a_usable_guid_is_malformed(post, headers):
    body = json.dumps(PUSH).encode()
    signed = {"X-Hub-Signature-256": github(body)["X-Hub-Signature-256"], "X-GitHub-Event": "push", **headers}
    assert post("github", body, headers=signed).status_code == 400
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_without_the_event_header_the_action_alone_is_no_type(post):
    body = json.dumps({**PUSH, "action": "push"}).encode()
    headers = github(body)
    del headers["X-GitHub-Event"]
    assert post("github", body, headers=headers).status_code == 200
    assert WebhookReceipt.objects.get().event_type == ""


@pytest.mark.django_db
@pytest.mark.parametrize("content_type", [FORM, "application/json"])
def test_l6_the_form_holds_json_in_one_field(post, handler, content_type):
    seen = []
    handler("github", "push.opened")(lambda event: seen.append(event.data))
    body = b"payload=" + quote(json.dumps({**PUSH, "action": "opened"})).encode()
    assert post("github", body, content_type=content_type).json()["status"] == "processed"
    assert seen == [{**PUSH, "action": "opened"}]
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_type, receipt.object_key) == ("push.opened", "acme/shop")
    assert receipt.raw_body == body


@pytest.mark.django_db
@pytest.mark.parametrize(
    "body", [b"", b"payload=", b"payload=1", b"other=1", b"payload=%7B%7D&payload=%7B%7D", b"payload=%7B%7D&x=1"]
)
def test_a_form_without_one_such_field_is_malformed(post, body):
    assert post("github", body, content_type=FORM).status_code == 400
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("content_type", [FORM, "multipart/form-data; boundary=x", "text/plain", ""])
def test_the_unsigned_content_type_makes_no_other_event_of_a_body(post, content_type):
    forged = quote('{"action":"forged"}')
    message = f"fix&payload={forged}&--x\\r\\nContent-Disposition: form-data; name=payload\\r\\n\\r\\n{{}}\\r\\n--x--"
    body = b'{"commits":[{"message":"' + message.encode() + b'"}],"action":"real"}'
    post("github", body, content_type=content_type)
    assert set(WebhookReceipt.objects.values_list("event_type", flat=True)) <= {"push.real"}


@pytest.mark.django_db
def test_the_tenant_is_in_the_signed_body(post, sources, caplog):
    caplog.set_level(logging.DEBUG)
    sources(github={"TENANT": True})
    assert post("github", {"installation": {"id": 7}, **PUSH}).status_code == 200
    assert post("github", {"organization": {"login": "acme"}}).status_code == 200
    assert post("github", PUSH).status_code == 200
    assert post("github", {"zen": "x"}).status_code == 400
    assert set(WebhookReceipt.objects.values_list("tenant", flat=True)) == {"7", "acme", "acme/shop"}

import json
import logging
import time

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.providers.gitlab import GITLAB
from django_webhook_guard.secrets import Secret
from tests.senders import GITLAB_SECRET, GITLAB_TOKEN, gitlab, gitlab_token

PUSH = {"object_kind": "push", "event_name": "push", "project": {"id": 7, "path_with_namespace": "acme/shop"}}


@pytest.fixture(autouse=True)
def _configured(configure):
    configure("gitlab")
    configure("gitlab-token")


def kept():
    return WebhookReceipt.objects.get()


# -- the signing token -------------------------------------------------------------------------------------------------


def test_the_vector_of_the_signing_token():
    headers = {
        "webhook-id": "gl-id-1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1,NxjfPzp6aso/its5LAZWCGf8mRqBnBwz9XvCvqxZEwU=",
    }
    delivery = Delivery(method="POST", url="/", headers=headers, body=b'{"object_kind":"push"}')
    verification = GITLAB.verifier.verify(delivery, [Secret(GITLAB_SECRET)])
    assert verification.content == b'gl-id-1.1700000000.{"object_kind":"push"}'


@pytest.mark.django_db
def test_what_a_receipt_keeps_of_a_signed_event(post):
    assert post("gitlab", PUSH, id="i1").status_code == 200
    assert (kept().event_id, kept().event_type, kept().object_key) == ("i1", "push", "acme/shop")
    assert (kept().key_origin, kept().headers["x-gitlab-event"]) == ("id", "Push Hook")
    assert not WebhookSeen.objects.exists()


@pytest.mark.django_db
def test_a_system_hook_has_no_object_kind(post):
    assert post("gitlab", {"event_name": "project_create"}).status_code == 200
    assert kept().event_type == "project_create"


@pytest.mark.django_db
def test_the_signed_id_decides_and_not_the_header_beside_it(post):
    assert post("gitlab", PUSH, id="i1", extra={"Idempotency-Key": "other"}).json()["status"] == "ignored"
    assert post("gitlab", PUSH, id="i1", at=int(time.time()) - 9).json()["status"] == "duplicate"
    assert post("gitlab", PUSH, id="i2").json()["status"] == "ignored"


@pytest.mark.django_db
def test_both_tokens_may_come_and_each_source_looks_at_its_own(post):
    body = json.dumps(PUSH).encode()
    both = {**gitlab_token(body, secret="wrong-0123456789abcdef"), **gitlab(body)}
    assert post("gitlab", body, headers=both).status_code == 200
    assert post("gitlab-token", body, headers=both).status_code == 401


@pytest.mark.django_db
def test_the_project_is_the_tenant(post, configure):
    configure("gitlab", TENANT=True)
    assert post("gitlab", PUSH).status_code == 200
    assert kept().tenant == "7"
    assert post("gitlab", {"object_kind": "x", "group_id": 7}).status_code == 400


# -- the secret token --------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_a_receipt_keeps_of_an_event_with_a_token(post):
    assert post("gitlab-token", PUSH, key="k1", uuid="u1").status_code == 200
    assert (kept().event_id, kept().event_type, kept().key_origin) == ("k1", "push", "paired")
    assert kept().headers["idempotency-key"] == "k1"
    assert "x-gitlab-token" not in kept().headers
    assert kept().signed_at is None


@pytest.mark.django_db
@pytest.mark.parametrize("token", [None, "", GITLAB_TOKEN[:-1], GITLAB_TOKEN + "x", f"{GITLAB_TOKEN},x", "\xe9" * 20])
def test_j5_a_token_that_is_none_is_refused_and_no_token_is_ever_logged(post, caplog, token):
    caplog.set_level(logging.DEBUG)
    body = json.dumps(PUSH).encode()
    headers = gitlab_token(body) if token is None else gitlab_token(body, secret=token)
    if token is None:
        del headers["X-Gitlab-Token"]
    response = post("gitlab-token", body, headers=headers)
    assert (response.status_code, response.content) == (401, b'{"status": "rejected"}')
    assert post("gitlab-token", PUSH).status_code == 200
    assert GITLAB_TOKEN not in caplog.text and (not token or token not in caplog.text)
    assert "Traceback" not in caplog.text


@pytest.mark.django_db
def test_b1_a_token_outside_ascii(post, configure):
    configure("gitlab-token", SECRETS=["tökén-0123456789"])
    assert post("gitlab-token", PUSH, secret="tökén-0123456789".encode().decode("latin-1")).status_code == 200


@pytest.mark.django_db
def test_a_retry_keeps_its_key_and_hooks_of_one_event_have_other_bodies(post):
    assert post("gitlab-token", PUSH, key="k1").json()["status"] == "ignored"
    assert post("gitlab-token", PUSH, key="k1").json()["status"] == "duplicate"
    # before 17.4: one id for all hooks that an event fires
    assert post("gitlab-token", {**PUSH, "n": 1}, uuid="u1").json()["status"] == "ignored"
    assert post("gitlab-token", {**PUSH, "n": 2}, uuid="u1").json()["status"] == "ignored"
    assert post("gitlab-token", {**PUSH, "n": 2}, uuid="u1").json()["status"] == "duplicate"


@pytest.mark.django_db
def test_without_any_id_the_body_is_the_key(post):
    body = json.dumps(PUSH).encode()
    headers = gitlab_token(body)
    del headers["X-Gitlab-Event-UUID"]
    assert post("gitlab-token", body, headers=headers).json()["status"] == "ignored"
    assert post("gitlab-token", body, headers=headers).json()["status"] == "duplicate"
    assert kept().key_origin == "content"


@pytest.mark.django_db
def test_a_captured_body_under_another_id_is_held(post):
    assert post("gitlab-token", PUSH, key="k1", uuid="u1").json()["status"] == "ignored"
    assert post("gitlab-token", PUSH, key="k2", uuid="u1").json()["status"] == "quarantined"
    assert post("gitlab-token", PUSH, uuid="u1").json()["status"] == "quarantined"


@pytest.mark.django_db
def test_a_token_covers_no_tenant_so_its_own_must_be_the_event_s(post, configure):
    configure("gitlab-token", TENANT=True, SECRETS=[{"secret": GITLAB_TOKEN, "tenant": "7"}])
    assert post("gitlab-token", PUSH).status_code == 200
    assert kept().tenant == "7"
    assert post("gitlab-token", {**PUSH, "project": {"id": 8}}).status_code == 401

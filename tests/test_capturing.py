"""Samples of refused deliveries: how many, what is in them, and what is not."""

from datetime import timedelta

import pytest
from django.core import mail
from django.core.signals import request_finished
from django.utils import timezone

from django_webhook_guard import capturing
from django_webhook_guard.models import WebhookRejected
from django_webhook_guard.retention import prune
from tests.test_admin import EVIL, person

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_0123456789abcdef0123"
LIST = "/admin/django_webhook_guard/webhookrejected/"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(capturing, "EVERY", 0)
    capturing.forget()
    yield
    capturing.forget()


def refuse(post, content=None, source="stripe", **headers):
    signature = {"Stripe-Signature": "t=1,v1=" + "00" * 32}
    return post(source, content or {"id": "evt_1"}, headers={**signature, **headers})


def test_off_unless_asked_for(post):
    refuse(post)
    assert capturing.flush() == 0


def test_a_sample_holds_what_came_and_why_it_was_refused(post, sources):
    sources(stripe={"CAPTURE_REJECTED": 3})
    refuse(post, b'{"id": "\x00\xff"}', **{"User-Agent": "curl\x7f"})
    assert capturing.flush() == 1
    sample = WebhookRejected.objects.get()
    assert (sample.source, sample.decision, sample.method, sample.path) == (
        "stripe", "rejected", "POST", "/webhooks/stripe/",
    )  # fmt: skip
    assert sample.reason.startswith("bad_signature")
    assert bytes(sample.body) == b'{"id": "\x00\xff"}'
    assert sample.headers["stripe-signature"].startswith("t=1")


def test_only_what_is_refused_is_kept(post, sources, client):
    sources(stripe={"CAPTURE_REJECTED": 3})
    post("stripe", {"id": "evt_1", "type": "x"})
    client.get("/webhooks/stripe/")
    client.post("/webhooks/elsewhere/", b"{}", content_type="application/json")
    assert capturing.flush() == 0


def test_never_more_than_the_ring_holds_and_the_oldest_goes(post, sources):
    sources(stripe={"CAPTURE_REJECTED": 3}, github={"CAPTURE_REJECTED": 2})
    for number in range(8):
        refuse(post, {"id": f"evt_{number}"})
        capturing.flush()
    bodies = [bytes(row.body) for row in WebhookRejected.objects.order_by("received_at")]
    assert [b"evt_%d" % number in body for number, body in zip((5, 6, 7), bodies, strict=True)] == [True] * 3
    sources(stripe={"CAPTURE_REJECTED": 1})
    refuse(post)
    capturing.flush()
    assert WebhookRejected.objects.count() == 1


def test_no_secret_is_kept(post, sources):
    sources(stripe={"CAPTURE_REJECTED": 3})
    post(
        "stripe", f'{{"leak": "{SECRET}"}}'.encode(), path="/webhooks/stripe/?token=hush",
        headers={
            "Stripe-Signature": "t=1,v1=" + "00" * 32, "Authorization": "Bearer hush", "Cookie": "sessionid=hush",
            "X-Api-Key": "hush", "X-Else": SECRET,
        },
    )  # fmt: skip
    assert capturing.flush() == 1
    sample = WebhookRejected.objects.get()
    kept = f"{sample.path} {sample.headers} {bytes(sample.body)}"
    assert SECRET not in kept
    assert "hush" not in kept
    assert sample.path == "/webhooks/stripe/?token=***"


def test_a_providers_token_is_masked(post, sources):
    sources(lab={"PROVIDER": "gitlab-token", "SECRETS": ["lab-0123456789abcdef"], "CAPTURE_REJECTED": 1})
    post("stripe", b"{}", path="/webhooks/lab/", headers={"X-Gitlab-Token": "almost-the-secret"})
    assert capturing.flush() == 1
    assert WebhookRejected.objects.get().headers["x-gitlab-token"] == "***"


def test_a_sample_is_bounded(post, sources):
    sources(stripe={"CAPTURE_REJECTED": 3})
    many = {f"X-H{number}": "v" * 3_000 for number in range(80)}
    refuse(post, b"x" * 200_000, **many)
    assert capturing.flush() == 1
    sample = WebhookRejected.objects.get()
    assert (len(bytes(sample.body)), sample.body_size) == (65_536, 200_000)
    assert len(sample.headers) <= 50
    assert max(map(len, sample.headers.values())) <= 1_000


def test_a_storm_is_sampled(post, sources, monkeypatch):
    sources(stripe={"CAPTURE_REJECTED": 1_000})
    monkeypatch.setattr(capturing, "EVERY", 60)
    for _ in range(20):
        refuse(post)
    assert capturing.flush() == 1


def test_it_is_written_after_the_answer_and_a_fault_changes_nothing(post, sources, monkeypatch, caplog):
    sources(stripe={"CAPTURE_REJECTED": 3})
    monkeypatch.delattr(mail, "outbox")
    refuse(post)
    request_finished.send(sender=None)
    assert WebhookRejected.objects.count() == 1
    monkeypatch.setattr(capturing, "_write", lambda *given: 1 / 0)
    assert refuse(post).status_code == 401
    request_finished.send(sender=None)
    assert "was not kept (ZeroDivisionError)" in caplog.text


def sample(**values):
    given = {"source": "stripe", "slot": 0, "received_at": timezone.now(), "decision": "rejected", "body": b""}
    return WebhookRejected.objects.create(method="POST", path="/", body_size=0, **{**given, **values})


def test_samples_go_after_seven_days():
    now = timezone.now()
    for slot, days in enumerate((6.9, 7.1)):
        sample(slot=slot, received_at=now - timedelta(days=days))
    assert prune(dry_run=True).samples == 1
    assert prune().samples == 1
    assert WebhookRejected.objects.count() == 1


def test_the_admin_shows_them_as_text_to_whom_may(client):
    row = sample(reason=EVIL, headers={EVIL: EVIL}, body=EVIL.encode() + b"\xff\x00\xe2\x80\xae")
    page = f"{LIST}{row.pk}/change/"
    assert person("nora", "view_webhookreceipt").get(page).status_code == 403
    vera = person("vera", "view_webhookrejected")
    for path in (LIST, page):
        text = vera.get(path).content.decode()
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text
    assert "\u202e" not in text
    assert vera.post(page, {"reason": "x"}).status_code == 403
    assert vera.get(f"{LIST}add/").status_code == 403

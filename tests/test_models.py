from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookReceipt, WebhookSeen

pytestmark = pytest.mark.django_db
UNIQUE = [
    (WebhookReceipt, "fingerprint", "webhook_receipt_fingerprint"),
    (WebhookCheckpoint, "digest", "webhook_checkpoint_digest"),
    (WebhookSeen, "digest", "webhook_seen_digest"),
]


def constraints(model):
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, model._meta.db_table)


@pytest.mark.parametrize(("model", "column", "name"), UNIQUE)
def test_d6_the_unique_constraint_is_in_the_database(model, column, name):
    unique = [found for found in constraints(model).values() if found["unique"] and found["columns"] == [column]]
    assert unique
    assert name in constraints(model)


@pytest.mark.parametrize("model", [WebhookAttempt, WebhookCheckpoint, WebhookSeen])
def test_nothing_that_hangs_on_a_receipt_has_a_constraint_on_it(model):
    assert not [found for found in constraints(model).values() if found["foreign_key"]]
    with connection.cursor() as cursor:
        assert not connection.introspection.get_relations(cursor, model._meta.db_table)


def test_what_is_due_is_found_by_an_index():
    assert [
        found for found in constraints(WebhookReceipt).values() if found["index"] and found["columns"] == ["due_at"]
    ]


def test_d6_the_system_checks_are_silent():
    call_command(
        "check", "django_webhook_guard", databases=["default"], fail_level="WARNING", tag=["models", "database"]
    )


def test_a_second_receipt_of_one_fingerprint_is_refused(post):
    post("stripe", {"id": "evt_1", "type": "x"})
    copy = WebhookReceipt.objects.get()
    copy.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save(force_insert=True)


def make(post, number=3):
    for each in range(number):
        post("stripe", {"id": f"evt_{each}", "type": "x", "data": {"object": {"id": "in_1"}}})
    return list(WebhookReceipt.objects.order_by("pk"))


def test_querysets_name_the_states(post):
    receipts = make(post, 5)
    for each, status in zip(receipts, ["received", "processing", "failed", "dead", "processed"], strict=True):
        WebhookReceipt.objects.filter(pk=each.pk).update(status=status)
    assert set(WebhookReceipt.objects.open()) == set(receipts[:3])
    assert list(WebhookReceipt.objects.failed()) == [receipts[2]]
    assert list(WebhookReceipt.objects.dead()) == [receipts[3]]


def test_what_is_due_comes_in_order(post):
    receipts = make(post)
    for each, seconds in zip(receipts, (-1, -60, 60), strict=True):
        due_at = timezone.now() + timedelta(seconds=seconds)
        WebhookReceipt.objects.filter(pk=each.pk).update(status="failed", due_at=due_at)
    assert list(WebhookReceipt.objects.due()) == [receipts[1], receipts[0]]


def test_receipts_are_found_by_event_and_by_object(post):
    receipts = make(post)
    assert WebhookReceipt.objects.for_event("stripe", "evt_1").get() == receipts[1]
    assert list(WebhookReceipt.objects.for_object("stripe", "in_1")) == receipts
    assert not WebhookReceipt.objects.for_event("github", "evt_1")


def test_a_receipt_shows_its_reference(post):
    (receipt,) = make(post, 1)
    assert receipt.reference == receipt.fingerprint[:16]
    assert str(receipt) == f"stripe x {receipt.reference}"


def test_a_body_may_be_gone(post):
    (receipt,) = make(post, 1)
    assert isinstance(receipt.raw_body, bytes)
    receipt.body = None
    assert receipt.raw_body is None


def test_rows_show_what_they_are(post):
    (receipt,) = make(post, 1)
    attempt = WebhookAttempt(receipt=receipt, number=2, outcome="failed")
    assert str(attempt) == f"{receipt.pk} #2 failed"
    assert str(WebhookCheckpoint(handler="h", mark="done")) == "h: done"
    assert str(WebhookSeen(digest="d" * 64)) == "d" * 16


def test_attempts_go_with_their_receipt(post):
    (receipt,) = make(post, 1)
    now = timezone.now()
    WebhookAttempt.objects.create(
        receipt=receipt, number=1, trigger="delivery", outcome="failed", started_at=now, duration_ms=1
    )
    receipt.delete()
    assert not WebhookAttempt.objects.exists()

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_webhook_guard import statements
from django_webhook_guard.models import WebhookCheckpoint, WebhookReceipt, WebhookSeen
from django_webhook_guard.statements import NewReceipt

pytestmark = pytest.mark.django_db
NEW = NewReceipt(
    fingerprint="f" * 64,
    source="stripe",
    tenant=None,
    event_id="evt_1",
    event_type="x",
    object_key="",
    idempotency_key="evt_1",
    key_origin="id",
    key_id="k",
    request_id="r",
    status="processing",
    reason="",
    handlers=("a", "é%s"),
    attempts=1,
    signed_at=datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC),
    occurred_at=None,
    received_at=datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC),
    headers={"a": '"é%s\\'},
    body=bytes(range(256)),
    body_size=256,
    body_digest="d" * 64,
    lease=60.5,
)


def insert(**values):
    return statements.insert("default", replace(NEW, **values))


def row():
    return statements.read("default", NEW.fingerprint)


def receipt():
    return WebhookReceipt.objects.get()


def seconds_from_now(moment):
    return (moment - timezone.now()).total_seconds()


def test_an_insert_keeps_everything_as_it_was():
    assert insert(tenant="t é").id == receipt().pk
    kept = receipt()
    for name in (
        "fingerprint",
        "source",
        "event_id",
        "key_origin",
        "signed_at",
        "occurred_at",
        "received_at",
        "headers",
    ):
        assert getattr(kept, name) == getattr(NEW, name)
    assert (kept.raw_body, kept.body_size, kept.tenant) == (NEW.body, 256, "t é")
    assert kept.handlers == list(NEW.handlers)
    assert (kept.deliveries, kept.excused, kept.result, kept.last_handler) == (1, 0, "", "")
    assert 55 < seconds_from_now(kept.lease_until) < 61
    assert abs(kept.lease_until - kept.due_at) < timedelta(milliseconds=1)
    assert abs(seconds_from_now(kept.budget_from)) < 5
    assert kept.processed_at is None


def test_an_insert_that_is_finished_has_neither_lease_nor_due_time():
    insert(status="ignored", lease=None, finished=True)
    assert (receipt().lease_until, receipt().due_at) == (None, None)
    assert abs(seconds_from_now(receipt().processed_at)) < 5


def test_the_second_insert_of_a_fingerprint_finds_the_first():
    first = insert().id
    second = insert(event_id="other")
    assert second.id is None
    assert (second.row or row()).id == first
    assert receipt().event_id == "evt_1"


def test_another_integrity_error_is_no_duplicate():
    with pytest.raises(IntegrityError):
        insert(source=None)


def test_a_row_is_read_in_seconds_of_the_databases_clock():
    insert()
    WebhookReceipt.objects.update(
        lease_until=timezone.now() - timedelta(seconds=5),
        due_at=timezone.now() + timedelta(seconds=7),
        processed_at=timezone.now() - timedelta(hours=1),
        last_delivered_at=timezone.now() - timedelta(seconds=3),
        budget_from=timezone.now() - timedelta(days=2),
    )
    found = row()
    assert (found.status, found.attempts, found.used, found.handlers) == ("processing", 1, 1, ("a", "é%s"))
    times = [found.lease_left, found.due_in, found.finished_ago, found.counted_ago, found.budget_age]
    assert times == pytest.approx([-5, 7, 3600, 3, 172_800], abs=2)
    assert not found.leased
    assert statements.read_by_id("default", found.id).fingerprint == found.fingerprint


def test_nothing_is_read_where_nothing_is():
    assert row() is None
    assert statements.read_by_id("default", 1) is None


def test_a_lease_is_taken_once():
    insert(status="received", lease=None)
    before = row()
    assert statements.lease("default", before, 60, ["a", "b"])
    assert not statements.lease("default", before, 60, ["a"])
    after = receipt()
    assert (after.status, after.attempts, after.handlers) == ("processing", 2, ["a", "b"])
    assert 55 < seconds_from_now(after.lease_until) < 61


def test_a_live_lease_is_not_taken_over_even_by_one_who_saw_it_run_out():
    insert(lease=60)
    stale = replace(row(), lease_left=-1)
    assert not statements.lease("default", stale, 60, [])
    assert not statements.bury("default", stale)
    WebhookReceipt.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert statements.bury("default", stale)
    assert (receipt().status, receipt().reason, receipt().lease_until) == ("dead", "exhausted", None)


@pytest.mark.parametrize("change", [{"attempts": 2}, {"status": "failed"}])
@pytest.mark.parametrize(
    "write",
    [
        lambda pk: statements.fence("default", pk, 1, 60),
        lambda pk: statements.close("default", pk, 1, status="processed", result="r", last_handler="h"),
        lambda pk: statements.fail("default", pk, 1, wait=5, reason="retry_later", excuse=True),
        lambda pk: statements.let_go("default", pk, 1),
    ],
)
def test_a_run_writes_only_while_it_holds_the_receipt(write, change):
    pk = insert().id
    WebhookReceipt.objects.update(**change)
    before = WebhookReceipt.objects.values().get()
    assert not write(pk)
    assert WebhookReceipt.objects.values().get() == before
    WebhookReceipt.objects.update(attempts=1, status="processing")
    assert write(pk)


def test_a_failure_says_when_to_come_again_and_excuses():
    pk = insert().id
    assert statements.fail("default", pk, 1, wait=90.5, reason="retry_later", excuse=True)
    assert (receipt().status, receipt().excused, receipt().lease_until) == ("failed", 1, None)
    assert 85 < seconds_from_now(receipt().due_at) < 91


@pytest.mark.parametrize("result", [None, "", "text"])
def test_a_close_leaves_what_it_is_not_given(result):
    pk = insert().id
    WebhookReceipt.objects.update(result="before", last_handler="h")
    assert statements.close("default", pk, 1, status="dead", reason="gave_up", result=result)
    assert (receipt().result, receipt().last_handler) == ("before" if result is None else result, "h")


@pytest.mark.parametrize("change", [{"attempts": 2}, {"status": "processing"}])
def test_a_count_is_for_the_row_as_it_was_read(change):
    insert(status="failed", lease=None)
    WebhookReceipt.objects.update(last_delivered_at=timezone.now() - timedelta(seconds=2))
    before = row()
    WebhookReceipt.objects.update(**change)
    statements.count("default", before, 1)
    assert receipt().deliveries == 1


def test_a_seen_message_is_remembered_once():
    assert statements.insert_seen("default", "a" * 64, "f1", 600)
    assert not statements.insert_seen("default", "a" * 64, "f2", None)
    assert statements.read_seen("default", "a" * 64) == "f1"
    assert statements.read_seen("default", "b" * 64) is None
    assert 590 < seconds_from_now(WebhookSeen.objects.get().expires_at) < 601


def test_a_seen_message_without_time_stays():
    statements.insert_seen("default", "a" * 64, "f1", None)
    assert WebhookSeen.objects.get().expires_at is None


def test_a_seen_message_without_fingerprint_is_no_duplicate():
    with pytest.raises(IntegrityError):
        statements.insert_seen("default", "a" * 64, None, None)


def test_a_checkpoint_is_written_once_per_receipt_and_handler():
    for fingerprint, handler in (("f1", "h"), ("f1", "H"), ("f2", "h")):
        assert statements.insert_checkpoint("default", fingerprint, handler, "done", "é", 1)
    assert statements.checkpoints("default", "f1") == {"h": "done", "H": "done"}
    assert statements.checkpoints("default", "f3") == {}
    assert abs(seconds_from_now(WebhookCheckpoint.objects.first().created_at)) < 5


def test_a_second_checkpoint_is_refused():
    statements.insert_checkpoint("default", "f1", "h", "done", "", 1)
    with transaction.atomic():
        assert not statements.insert_checkpoint("default", "f1", "h", "gave_up", "", 2)
        transaction.set_rollback(True)
    assert statements.checkpoints("default", "f1") == {"h": "done"}


def test_another_integrity_error_of_a_checkpoint_is_raised():
    with pytest.raises(IntegrityError):
        statements.insert_checkpoint("default", "f1", "h", None, "", 1)


def test_the_statements_use_the_clock_in_utc_whatever_the_sessions_zone():
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET time_zone = '-07:00'")
        insert()
        if connection.vendor == "mysql":
            cursor.execute("SET time_zone = SYSTEM")
    assert 55 < seconds_from_now(receipt().due_at) < 61

import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_webhook_guard import operations, processing, statements
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.models import WebhookCheckpoint, WebhookReceipt
from django_webhook_guard.models.receipts import Status

pytestmark = pytest.mark.django_db(databases=["default", "other"])
EVENT = {"id": "evt_1", "type": "x"}


@pytest.fixture
def failed(post, handler):
    """A receipt that failed once; its handler works the second time."""
    handler("stripe", "*", name="h")(lambda event: 1 / (event.attempt - 1))
    post("stripe", EVENT)
    return WebhookReceipt.objects.get()


def receipt():
    return WebhookReceipt.objects.get()


def test_a_retry_makes_due_with_a_new_budget(failed):
    WebhookReceipt.objects.update(attempts=20, budget_from=timezone.now() - timedelta(days=9))
    dead = receipt()
    assert operations.retry(dead, actor="anna", reason="mended")
    row = statements.read_by_id("default", dead.pk)
    assert (row.status, row.reason, row.attempts, row.used) == ("received", "", 20, 0)
    assert abs(row.budget_age) < 5
    assert abs(row.due_in) < 5
    assert processing.run(dead.pk, "admin").status == "processed"
    assert receipt().attempts == 21


@pytest.mark.parametrize("status", ["received", "processing", "processed", "quarantined", "ignored", "discarded"])
def test_only_failed_and_dead_receipts_are_retried(failed, status):
    WebhookReceipt.objects.update(status=status)
    before = WebhookReceipt.objects.values().get()
    assert not operations.retry(receipt(), actor="anna")
    assert WebhookReceipt.objects.values().get() == before


@pytest.mark.parametrize("change", [{"attempts": 2}, {"status": "processing"}, {"status": "dead"}])
def test_a_receipt_that_moved_on_since_it_was_shown_is_left_alone(failed, change):
    WebhookReceipt.objects.update(**change)
    before = WebhookReceipt.objects.values().get()
    assert not operations.retry(failed, actor="anna")
    assert WebhookReceipt.objects.values().get() == before


def test_of_two_persons_one_wins(failed):
    other = receipt()
    assert operations.retry(failed, actor="anna")
    assert not operations.retry(other, actor="otto")


def test_a_retry_drops_the_marks_of_what_gave_up_and_no_other(failed, handler):
    handler("stripe", "*", name="i", using="other")(lambda event: None)
    WebhookReceipt.objects.update(status="dead", reason="gave_up", handlers=["h", "i"])
    for using, name, mark in (
        ("default", "h", "gave_up"),
        ("default", "j", "done"),
        ("other", "i", "gave_up"),
        ("other", "k", "skipped"),
    ):
        statements.insert_checkpoint(using, failed.fingerprint, name, mark, "", 1)
    statements.insert_checkpoint("default", "another", "h", "gave_up", "", 1)
    assert operations.retry(receipt(), actor="anna")
    assert set(WebhookCheckpoint.objects.values_list("handler", "fingerprint")) == {
        ("j", failed.fingerprint),
        ("h", "another"),
    }
    assert list(WebhookCheckpoint.objects.using("other").values_list("handler", flat=True)) == ["k"]


def test_a_retry_that_is_refused_drops_no_mark(failed):
    statements.insert_checkpoint("default", failed.fingerprint, "h", "gave_up", "", 1)
    WebhookReceipt.objects.update(attempts=9)
    assert not operations.retry(failed, actor="anna")
    assert WebhookCheckpoint.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_retry_is_undone_with_the_callers_transaction(failed):
    with transaction.atomic():
        assert operations.retry(failed, actor="anna")
        transaction.set_rollback(True)
    assert receipt().status == "failed"


class Replica:
    """A router that reads from another database than it writes to."""

    def db_for_read(self, model, **hints):
        return "other"

    def db_for_write(self, model, **hints):
        return "default"


def test_a_receipt_that_was_read_from_a_replica_is_written_where_receipts_live(failed, settings):
    settings.DATABASE_ROUTERS = ["tests.test_operations.Replica"]
    failed._state.db = "other"
    assert operations.retry(failed, actor="anna")
    assert WebhookReceipt.objects.using("default").get().status == "received"


def test_a_retry_goes_by_the_clock_that_leases_go_by(failed):
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET time_zone = '-07:00'")
        assert operations.retry(failed, actor="anna")
        row = statements.read_by_id("default", failed.pk)
        due = list(WebhookReceipt.objects.due())
        if connection.vendor == "mysql":
            cursor.execute("SET time_zone = SYSTEM")
    assert abs(row.due_in) < 5
    assert abs(row.budget_age) < 5
    assert due == [failed]


def test_what_gave_up_runs_again_alone(post, handler):
    runs = []

    @handler("stripe", "*", name="a")
    def give_up(event):
        runs.append("a")
        raise GiveUp

    handler("stripe", "*", name="b")(lambda event: runs.append("b"))
    post("stripe", EVENT)
    operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").decision == "gave_up"
    assert runs == ["a", "b", "a"]


def test_a_receipt_of_a_source_that_is_gone_cannot_run_here(failed, sources):
    assert operations.runnable(failed)
    sources(stripe=None)
    assert not operations.runnable(failed)
    assert operations.retry(failed, actor="anna")


# -- release and discard -----------------------------------------------------------------------------------------------

ALL = set(Status.values)


@pytest.mark.parametrize("status", sorted(ALL))
def test_release_takes_held_receipts_only_and_gives_a_budget(failed, status):
    WebhookReceipt.objects.update(
        status=status, reason="late", attempts=3, budget_from=timezone.now() - timedelta(days=9), due_at=None
    )
    before = WebhookReceipt.objects.values().get()
    assert operations.release(receipt(), actor="anna") == (status == "quarantined")
    if status != "quarantined":
        assert WebhookReceipt.objects.values().get() == before
        return
    row = statements.read_by_id("default", receipt().pk)
    assert (row.status, row.reason, row.used) == ("received", "", 0)
    assert abs(row.budget_age) < 5 and abs(row.due_in) < 5
    assert processing.run(row.id, "admin").status == "processed"


@pytest.mark.parametrize("status", sorted(ALL))
def test_discard_ends_what_nobody_runs_and_what_is_not_over(failed, post, status):
    WebhookReceipt.objects.update(status=status, processed_at=None)
    done = operations.discard(receipt(), actor="anna", reason="a test event")
    assert done == (status in {"quarantined", "failed", "dead", "received"})
    if done:
        ended = receipt()
        assert (ended.status, ended.due_at, ended.lease_until) == ("discarded", None, None)
        assert ended.processed_at is not None
        assert post("stripe", EVENT).json()["status"] == "duplicate"


@pytest.mark.parametrize("operation", [operations.release, operations.discard])
def test_a_held_receipt_that_moved_on_since_it_was_shown_is_left_alone(failed, operation):
    WebhookReceipt.objects.update(status="quarantined")
    shown = receipt()
    assert operation(receipt(), actor="otto")
    before = WebhookReceipt.objects.values().get()
    assert not operation(shown, actor="anna")
    assert WebhookReceipt.objects.values().get() == before


def test_a_released_replay_runs_under_its_own_fingerprint(post, handler):
    runs = []
    handler("partner", "*", name="h")(lambda event: runs.append(event.receipt_id))
    signed = {"nonce": "one", "at": int(time.time())}
    post("partner", EVENT, key="a", **signed)
    post("partner", EVENT, key="b", **signed)
    held = WebhookReceipt.objects.get(status="quarantined")
    assert held.result == f"first came as {WebhookReceipt.objects.get(status='processed').fingerprint}"
    assert operations.release(held, actor="anna")
    assert processing.run(held.pk, "admin").status == "processed"
    assert len(runs) == 2


# -- rerun -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def twice(handler, post):
    """A receipt that two handlers have processed; returns what ran since."""
    runs = []
    handler("stripe", "*", name="h")(lambda event: runs.append("h"))
    handler("stripe", "*", name="i", formerly="old-i", using="other")(lambda event: runs.append("i") or "did i")
    post("stripe", EVENT)
    assert receipt().status == "processed"
    runs.clear()
    return runs


@pytest.mark.parametrize(
    ("handlers", "ran"),
    [(None, ["h", "i"]), (["h"], ["h"]), (["i"], ["i"]), (["old-i"], ["i"]), (["h", "i"], ["h", "i"])],
)
def test_a_rerun_runs_those_handlers_again_that_it_names(twice, handlers, ran):
    assert operations.rerun(receipt(), handlers, actor="anna", reason="wrong tax")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert twice == ran
    row = receipt()
    assert (row.attempts, row.reason) == (2, "")


def test_a_rerun_of_none_runs_what_was_deployed_later(twice, handler):
    handler("stripe", "*", name="new")(lambda event: twice.append("new"))
    assert operations.rerun(receipt(), [], actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert twice == ["new"]


def test_a_rerun_keeps_what_once_has_done(handler, post):
    calls = []

    def work(event):
        event.once("charge", lambda key: calls.append(key))
        with event.atomic():
            pass

    handler("stripe", "*", name="h", atomic=False)(work)
    post("stripe", EVENT)
    assert operations.rerun(receipt(), None, actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert len(calls) == 1


@pytest.mark.parametrize("status", ["received", "processing", "quarantined", "discarded"])
def test_what_is_open_or_held_or_discarded_is_not_rerun(twice, status):
    WebhookReceipt.objects.update(status=status)
    before = WebhookReceipt.objects.values().get()
    marks = WebhookCheckpoint.objects.count()
    assert not operations.rerun(receipt(), None, actor="anna")
    assert (WebhookReceipt.objects.values().get(), WebhookCheckpoint.objects.count()) == (before, marks)


def test_of_two_persons_one_reruns(twice):
    first, second = receipt(), receipt()
    assert operations.rerun(first, None, actor="anna")
    assert processing.run(first.pk, "admin").status == "processed"
    assert not operations.rerun(second, None, actor="otto")

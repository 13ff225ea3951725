"""Many receipts at once, by the sweeper."""

from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import DataError, OperationalError, connection
from django.utils import timezone

from django_webhook_guard import bulk, operations
from django_webhook_guard.models import WebhookBulkAction, WebhookBulkItem, WebhookReceipt
from django_webhook_guard.sweeper import sweep
from django_webhook_guard.transactions import is_conflict
from tests.test_admin import make

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@pytest.fixture
def runs(handler):
    seen = []
    handler("stripe", "invoice.*", name="pay")(lambda event: seen.append(event.event_id))
    return seen


def everything():
    return WebhookReceipt.objects.all()


def begin(wish="retry", **options):
    return bulk.begin(everything(), wish, actor="anna", reason="mended", **options)


def action():
    return WebhookBulkAction.objects.get()


def later():
    WebhookBulkAction.objects.update(next_at=timezone.now())


def test_what_was_chosen_runs_batch_by_batch_at_the_rate(runs):
    for _ in range(5):
        make()
    make(status="processed")
    begin(rate=2, about="dead ones")
    row = action()
    assert (row.total, row.done, row.waiting) == (5, 0, 5)
    assert (row.actor, row.reason, row.about) == ("anna", "mended", "dead ones")
    assert sweep() == {"processed": 2}
    assert sweep() == {}  # its second is not over
    assert 0 < (action().next_at - timezone.now()).total_seconds() <= 1
    for expected in (2, 1):
        later()
        assert sweep() == {"processed": expected}
    assert action().state == "running"
    later()
    sweep()
    row = action()
    assert (row.state, row.done, row.left_alone, row.waiting) == ("done", 5, 0, 0)
    assert row.finished_at is not None
    assert len(runs) == 5
    assert not WebhookBulkItem.objects.exists()


def test_the_oldest_go_first(runs):
    new = make(received_at=timezone.now())
    old = make(received_at=timezone.now() - timedelta(days=1))
    begin(rate=1)
    sweep()
    assert runs == [old.event_id]
    later()
    sweep()
    assert runs == [old.event_id, new.event_id]


def test_one_that_moved_on_since_it_was_chosen_is_left_alone(runs):
    receipts = [make() for _ in range(3)]
    begin()
    assert operations.discard(receipts[0], actor="otto")
    WebhookReceipt.objects.filter(pk=receipts[1].pk).update(attempts=9)
    assert sweep() == {"processed": 1}
    assert (action().done, action().left_alone) == (1, 2)
    assert runs == [receipts[2].event_id]


def test_one_that_is_gone_is_left_alone(runs):
    make().delete()
    receipt = make()
    begin()
    receipt.delete()
    sweep()
    assert (action().done, action().left_alone) == (0, 1)


def test_it_can_be_stopped(runs):
    for _ in range(4):
        make()
    begin(rate=2)
    sweep()
    assert action().stop()
    assert not action().stop()
    later()
    assert sweep() == {}
    row = action()
    assert (row.state, row.done, row.waiting) == ("stopped", 2, 2)
    assert not WebhookBulkItem.objects.exists()
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("wish", "chosen", "then"),
    [
        ("retry", {"failed", "dead"}, "received"),
        ("missing", {"failed", "dead", "processed", "ignored"}, "received"),
        ("rerun", {"failed", "dead", "processed", "ignored"}, "received"),
        ("release", {"quarantined"}, "received"),
        ("discard", {"failed", "dead", "quarantined", "received"}, "discarded"),
    ],
)
def test_each_wish_is_for_receipts_in_a_state_for_it(wish, chosen, then):
    states = ("received", "processing", "processed", "failed", "dead", "quarantined", "ignored", "discarded")
    receipts = {status: make(status=status) for status in states}
    begin(wish)
    assert action().total == len(chosen)
    bulk.advance()
    for status, receipt in receipts.items():
        receipt.refresh_from_db()
        assert receipt.status == (then if status in chosen else status)


def test_to_run_what_is_missing_keeps_marks_and_to_run_all_drops_them(runs):
    receipt = make(status="processed", last_handler="pay")
    begin("missing")
    assert sweep() == {"processed": 1}
    assert runs == []
    begin("rerun")
    assert sweep() == {"processed": 1}
    assert runs == [receipt.event_id]


@pytest.mark.parametrize("rate", [0, -1, 0.01, 1001, float("nan"), float("inf")])
def test_a_rate_that_makes_no_sense(rate):
    with pytest.raises(ValueError, match="rate"):
        begin(rate=rate)
    assert not WebhookBulkAction.objects.exists()


def test_very_many_are_cut(runs, monkeypatch):
    monkeypatch.setattr(bulk, "MOST", 3)
    for _ in range(5):
        make()
    assert begin().total == 3


def test_a_receipt_that_cannot_be_written_is_left_alone_and_the_others_go_on(runs, monkeypatch, caplog):
    bad, good = make(), make()
    retry = operations.retry

    def sometimes(receipt, **options):
        if receipt.pk == bad.pk:
            raise DataError("no")
        return retry(receipt, **options)

    monkeypatch.setattr(operations, "retry", sometimes)
    begin()
    assert sweep() == {"processed": 1}
    assert (action().done, action().left_alone) == (1, 1)
    assert runs == [good.event_id]


def test_an_error_of_bulk_actions_stops_no_sweep(runs, monkeypatch):
    make(status="failed", reason="", due_at=timezone.now())
    monkeypatch.setattr(bulk, "advance", lambda: 1 / 0)
    assert sweep() == {"processed": 1}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_several_sweepers_touch_each_receipt_once(runs, monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("threads share the one connection of SQLite in memory")
    monkeypatch.setattr(bulk, "STEP_LEASE", 0)  # the worst: everybody has the right to every step
    for _ in range(30):
        make()
    begin(rate=10)
    barrier = Barrier(4)
    totals, errors = [], []

    def work():
        barrier.wait(10)
        try:
            for _ in range(40):
                try:
                    totals.append(bulk.advance())
                    WebhookBulkAction.objects.update(next_at=timezone.now())
                except OperationalError as error:
                    if not is_conflict(error):  # after so many of them a sweeper goes on with its next pass
                        raise
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    row = action()
    assert errors == []
    assert (row.state, row.done, row.left_alone) == ("done", 30, 0)

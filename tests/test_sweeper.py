from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import DataError, InterfaceError, connection, connections, transaction
from django.utils import timezone

from django_webhook_guard import processing, statements
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.sweeper import sweep, sweep_all
from tests import senders
from tests.project.models import Effect

pytestmark = pytest.mark.django_db


def at(seconds):
    return timezone.now() + timedelta(seconds=seconds)


@pytest.fixture
def due(post, handler):
    """Make receipts that are due, whose handler works from now on: ``due(3)``."""

    def work(event):
        if event.attempt == 1:
            raise ValueError
        Effect.objects.create(name=event.event_id)

    handler(["stripe", "github"], "*", name="h")(work)

    def make(number, **values):
        for each in range(number):
            post("stripe", {"id": f"evt_{each}", "type": "x"})
        WebhookReceipt.objects.update(due_at=at(-60), **values)

    return make


def statuses():
    return sorted(WebhookReceipt.objects.values_list("status", flat=True))


def test_nothing_is_due():
    assert sweep() == {}


@pytest.mark.parametrize(
    "values",
    [
        {"status": "failed", "attempts": 3},
        {"status": "received"},
        {"status": "processing", "lease_until": at(-1)},
    ],
)
def test_e2_whatever_is_due_runs(due, values):
    due(2, **values)
    assert sweep() == {"processed": 2}
    assert statuses() == ["processed", "processed"]


@pytest.mark.parametrize("status", ["processed", "dead", "quarantined", "ignored", "discarded"])
def test_what_has_ended_or_waits_for_a_person_is_left_alone(due, status):
    due(1, status=status)
    assert sweep() == {}
    assert statuses() == [status]


def test_a_live_lease_is_left_alone(due):
    due(1, status="processing", lease_until=at(60))
    assert sweep() == {"elsewhere": 1}
    WebhookReceipt.objects.update(due_at=at(60), status="failed")
    assert sweep() == {}
    assert not Effect.objects.exists()


def test_a_spent_budget_is_buried(due):
    due(1, status="processing", lease_until=at(-1), attempts=20)
    assert sweep() == {"dead": 1}
    assert WebhookReceipt.objects.get().reason == "exhausted"


def test_a_pass_takes_a_batch_the_oldest_first(due):
    due(3)
    oldest = WebhookReceipt.objects.last()
    WebhookReceipt.objects.filter(pk=oldest.pk).update(due_at=at(-600))
    assert sweep(batch=1) == {"processed": 1}
    oldest.refresh_from_db()
    assert oldest.status == "processed"
    assert sweep(batch=5) == {"processed": 2}


def test_a_pass_may_be_for_one_source(due, post):
    due(1)
    post("github", {"a": 1})
    WebhookReceipt.objects.update(due_at=at(-60))
    assert sweep(source="github") == {"processed": 1}
    assert statuses() == ["failed", "processed"]


def test_receipts_of_sources_that_are_not_configured_are_left_alone(due, sources):
    due(1)
    sources(stripe=None)
    assert sweep() == {}
    assert sweep(source="stripe") == {}
    assert statuses() == ["failed"]


@pytest.mark.parametrize("named", [None, "pay", "stripe"])
def test_receipts_under_a_former_name_run_as_the_new_source(due, handler, sources, named):
    due(1)
    sources(stripe=None, pay={"PROVIDER": "stripe", "SECRETS": [senders.STRIPE_SECRET], "FORMERLY": ["stripe"]})
    seen = []
    handler("pay", "*", name="h")(lambda event: seen.append(event.source))
    assert sweep(source=named) == {"processed": 1}
    assert seen == ["pay"]


def test_one_receipt_that_cannot_run_does_not_stop_the_others(due, monkeypatch):
    due(2)
    run, first = processing.run, WebhookReceipt.objects.order_by("due_at", "pk")[0].pk

    def sometimes(receipt_id, trigger):
        if receipt_id == first:
            raise DataError("a value that this row cannot hold")
        return run(receipt_id, trigger)

    monkeypatch.setattr(processing, "run", sometimes)
    assert sweep() == {"postponed": 1, "processed": 1}


def test_each_run_is_reported(due):
    due(2)
    reported = []
    sweep(report=lambda receipt_id, run: reported.append((receipt_id, run.status)))
    assert reported == [(pk, "processed") for pk in WebhookReceipt.objects.values_list("pk", flat=True)]


@pytest.mark.django_db(transaction=True)
def test_a_pass_that_another_one_overtakes_runs_nothing_twice(due, monkeypatch):
    due(2)
    lease, overtaken = statements.lease, []

    def overtake(*args):
        if not overtaken:
            overtaken.append(True)
            overtaken.append(sweep())
        return lease(*args)

    monkeypatch.setattr(statements, "lease", overtake)
    assert sweep() == {"elsewhere": 2}
    assert overtaken == [True, {"processed": 2}]
    assert Effect.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_passes_at_once_run_each_receipt_once(due):
    if connection.vendor == "sqlite":
        pytest.skip("two threads on one database in memory lock each other out")
    due(8)
    barrier, counts = Barrier(2), []

    def work():
        barrier.wait()
        counts.append(sweep())
        connections.close_all()

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(count["processed"] for count in counts) == 8
    assert sorted(Effect.objects.values_list("name", flat=True)) == [f"evt_{each}" for each in range(8)]
    assert set(WebhookReceipt.objects.values_list("attempts", flat=True)) == {2}


@pytest.mark.django_db(transaction=True)
def test_a_pass_refuses_an_outer_transaction(due):
    due(1)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        sweep()
    assert statuses() == ["failed"]


def test_what_cannot_even_be_leased_lets_others_go_first(due, monkeypatch):
    due(3)
    first, run = WebhookReceipt.objects.order_by("due_at")[0].pk, processing.run

    def broken(receipt_id, trigger):
        if receipt_id == first:
            raise LookupError
        return run(receipt_id, trigger)

    monkeypatch.setattr(processing, "run", broken)
    WebhookReceipt.objects.filter(pk=first).update(due_at=at(-600))
    assert [dict(sweep(batch=1)) for _ in range(3)] == [{"postponed": 1}, {"processed": 1}, {"processed": 1}]
    assert WebhookReceipt.objects.get(pk=first).due_at > at(50)


def test_a_database_that_goes_away_ends_the_pass(due, monkeypatch):
    due(3)
    tried = []

    def cut(receipt_id, trigger):
        tried.append(receipt_id)
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(processing, "run", cut)
    with pytest.raises(InterfaceError):
        sweep()
    assert len(tried) == 1


def test_what_piled_up_is_brought_by_one_call_and_what_comes_back_is_not_waited_for(due, handler, monkeypatch):
    due(5)
    monkeypatch.setattr(processing, "run", lambda *_: processing.Run(decision="failed", status="failed"))
    assert sweep_all(batch=2) == {"failed": 6}  # they stay due: three passes for five, and no fourth


def test_receipts_of_another_projects_source_do_not_stand_in_front(due):
    """MariaDB's comparison of text finds them, too."""
    due(3)
    oldest = list(WebhookReceipt.objects.order_by("due_at").values_list("pk", flat=True)[:2])
    WebhookReceipt.objects.filter(pk__in=oldest).update(source="STRIPE")
    assert sweep(batch=1) == {"processed": 1}
    assert sweep(batch=1) == {}

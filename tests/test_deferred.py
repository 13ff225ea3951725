"""Deferred sources: the receipt is committed, the sender is answered, somebody else runs it."""

import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_webhook_guard import dispatchers, intake, processing, statements
from django_webhook_guard.conf import get_source
from django_webhook_guard.dispatchers import engines, waking, work
from django_webhook_guard.exceptions import GiveUp, RetryLater
from django_webhook_guard.handlers import unregister
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.sweeper import sweep
from tests import senders
from tests.project.models import Effect
from tests.test_batches import SECRET

pytestmark = pytest.mark.django_db
woken = []
_mended = []


def at(seconds):
    return timezone.now() + timedelta(seconds=seconds)


def wake(receipt_id):
    """A dispatcher by dotted path."""
    woken.append(receipt_id)


def broken(receipt_id):
    woken.append(receipt_id)
    if not _mended:
        raise ConnectionError("no broker")


def hanging(receipt_id):
    woken.append(receipt_id)
    time.sleep(3)


@pytest.fixture(autouse=True)
def _nobody_is_woken_yet():
    woken.clear()
    _mended.clear()
    waking._lines.clear()
    yield
    waking._lines.clear()


@pytest.fixture
def deferred(sources):
    """Make ``stripe`` a deferred source: ``deferred(RETRY={...})``."""

    def make(**options):
        sources(stripe={"PROCESSING": "deferred", **options})

    make()
    return make


@pytest.fixture
def awake(deferred, django_capture_on_commit_callbacks, post):
    """Post to a deferred source that has a dispatcher, and let what waits for the commit be done."""
    deferred(DISPATCHER="tests.test_deferred.wake")

    def send(event_id="evt_1", **content):
        with django_capture_on_commit_callbacks(execute=True):
            return deliver(post, event_id, **content)

    return send


@pytest.fixture
def runs(handler):
    seen = []

    def work(event):
        seen.append(event.attempt)
        Effect.objects.create(name=event.event_id)

    handler("stripe", "*", name="h")(work)
    return seen


def deliver(post, event_id="evt_1", **content):
    return post("stripe", {"id": event_id, "type": "x", **content})


def receipt():
    return WebhookReceipt.objects.get()


def told(answer):
    return answer.status_code, answer.json()["status"]


# -- the answer --------------------------------------------------------------------------------------------------------


def test_the_sender_is_answered_before_anything_runs(deferred, runs, post):
    assert told(deliver(post)) == (202, "accepted")
    assert runs == []
    row = receipt()
    assert (row.status, row.attempts, row.handlers) == ("received", 0, ["h"])
    assert row.due_at <= at(1)
    assert sweep() == {"processed": 1}
    assert told(deliver(post)) == (200, "duplicate")
    assert Effect.objects.count() == 1


def test_an_event_that_nobody_wants_is_over_at_once(deferred, post):
    assert told(deliver(post)) == (200, "ignored")
    assert receipt().due_at is None


def test_the_lease_of_a_deferred_source_is_longer(deferred, runs, post):
    assert get_source("stripe").lease == 300
    assert get_source("github").lease == 60


@pytest.mark.parametrize(
    ("values", "answer", "then"),
    [
        ({"status": "received", "due_at": at(60)}, (202, "accepted"), {}),
        ({"status": "received", "due_at": at(-1)}, (202, "accepted"), {"processed": 1}),
        ({"status": "processing", "attempts": 1, "lease_until": at(60), "due_at": at(60)}, (202, "accepted"), {}),
        (
            {"status": "processing", "attempts": 1, "lease_until": at(-1), "due_at": at(-1)},
            (202, "accepted"),
            {"processed": 1},
        ),
        ({"status": "failed", "attempts": 1, "due_at": at(60)}, (202, "accepted"), {}),
        ({"status": "failed", "attempts": 1, "due_at": at(-1)}, (202, "accepted"), {"processed": 1}),
        ({"status": "dead", "reason": "gave_up", "due_at": None}, (200, "duplicate"), {}),
        ({"status": "discarded", "due_at": None}, (200, "duplicate"), {}),
        ({"status": "quarantined", "reason": "schema", "due_at": None}, (202, "quarantined"), {}),
        ({"status": "quarantined", "reason": "late", "due_at": None}, (202, "accepted"), {"processed": 1}),
        ({"status": "ignored", "reason": "unhandled", "due_at": None}, (202, "accepted"), {"processed": 1}),
    ],
)
def test_the_state_table(deferred, runs, post, values, answer, then):
    deliver(post)
    WebhookReceipt.objects.update(**values)
    assert told(deliver(post)) == answer
    assert runs == []
    assert sweep() == then


def test_a_redelivery_gives_what_died_of_its_attempts_one_more_per_longest_delay(deferred, handler, post):
    def fails(event):
        raise ValueError

    handler("stripe", "*", name="h")(fails)
    deferred(RETRY={"max_attempts": 1, "max_delay": 100})
    deliver(post)
    assert sweep() == {"dead": 1}
    assert told(deliver(post)) == (503, "busy")
    assert sweep() == {}
    WebhookReceipt.objects.update(processed_at=at(-101))
    assert told(deliver(post)) == (202, "accepted")
    assert told(deliver(post)) == (202, "accepted")
    assert sweep() == {"dead": 1}
    assert (receipt().attempts, receipt().reason) == (2, "exhausted")
    assert told(deliver(post)) == (503, "busy")


def test_a_revived_attempt_that_kills_its_worker_is_the_last(deferred, runs, post):
    deferred(RETRY={"max_attempts": 1})
    deliver(post)
    WebhookReceipt.objects.update(
        status="processing", attempts=2, lease_until=at(-1), due_at=at(-1)
    )  # killed in the attempt that a redelivery had asked for
    assert sweep() == {"dead": 1}


def test_retry_later_under_a_storm_of_redeliveries(deferred, handler, post):
    runs = []

    def later(event):
        runs.append(event.attempt)
        if event.attempt == 1:
            raise RetryLater(3600)

    handler("stripe", "*", name="h")(later)
    deliver(post)
    assert sweep() == {"failed": 1}
    for _ in range(20):
        assert told(deliver(post)) == (202, "accepted")
        assert sweep() == {}
    assert runs == [1]
    assert 3590 < (receipt().due_at - timezone.now()).total_seconds() <= 3600
    WebhookReceipt.objects.update(due_at=at(-1))
    assert sweep() == {"processed": 1}
    assert receipt().excused == 1


@pytest.mark.parametrize("before", ["inline", "deferred"])
def test_a_switch_of_mode_with_open_receipts(sources, handler, post, before):
    after = {"inline": "deferred", "deferred": "inline"}[before]
    runs = []

    def fails_first(event):
        runs.append(event.attempt)
        if event.attempt == 1:
            raise ValueError

    handler("stripe", "*", name="h")(fails_first)
    sources(stripe={"PROCESSING": before})
    deliver(post)
    sources(stripe={"PROCESSING": after})
    if after == "inline":  # received: the delivery runs it, and it fails; the next one runs it again
        assert told(deliver(post)) == (500, "failed")
        assert told(deliver(post)) == (200, "processed")
    else:  # failed once, not due yet: held, and the sweeper brings it
        assert told(deliver(post)) == (202, "accepted")
        WebhookReceipt.objects.update(due_at=at(-1))
        assert sweep() == {"processed": 1}
    assert runs == [1, 2]


def test_late_deliveries_meet_the_deferred_table(deferred, runs, post):
    deferred(LATE="quarantine")
    stale = int(time.time()) - 4000
    assert told(post("stripe", {"id": "evt_1", "type": "x"}, at=stale)) == (202, "quarantined")
    assert told(deliver(post)) == (202, "accepted")
    assert sweep() == {"processed": 1}
    assert post("stripe", {"id": "evt_1", "type": "x"}, at=stale).status_code == 400


def test_an_old_worker_does_not_finish_what_it_does_not_know(deferred, handler, post):
    def new(event):
        Effect.objects.create(name="new")

    handler("stripe", "*", name="known")(lambda event: Effect.objects.create(name="known"))
    handler("stripe", "*", name="new")(new)
    deliver(post)
    unregister(new)  # the worker is an old one
    assert sweep() == {"failed": 1}
    assert "no handler here for new" in WebhookAttempt.objects.get().message
    handler("stripe", "*", name="new")(new)
    WebhookReceipt.objects.update(due_at=at(-1))
    assert sweep() == {"processed": 1}
    assert sorted(Effect.objects.values_list("name", flat=True)) == ["known", "new"]


def test_a_handler_that_gives_up_ends_it(deferred, handler, post):
    def gives_up(event):
        raise GiveUp("never")

    handler("stripe", "*", name="h")(gives_up)
    deliver(post)
    assert sweep() == {"dead": 1}
    assert told(deliver(post)) == (200, "duplicate")


def test_g2_each_of_many_events_in_one_body_wakes_for_itself(
    sources, handler, post, django_capture_on_commit_callbacks
):
    seen = []
    handler("many", "*", name="h")(lambda event: seen.append(event.event_id))
    sources(
        many={
            "PROVIDER": "tests.test_batches.MANY",
            "SECRETS": [SECRET],
            "PROCESSING": "deferred",
            "DISPATCHER": "tests.test_deferred.wake",
        }
    )
    body = senders.dumps([{"id": "a"}, {"id": "b"}, {"id": "c"}])
    signature = senders.stripe(body, secret=SECRET)["Stripe-Signature"]
    with django_capture_on_commit_callbacks(execute=True):
        assert told(post("many", body, headers={"X-Acme": signature})) == (202, "accepted")
    assert sorted(woken) == sorted(WebhookReceipt.objects.values_list("pk", flat=True))
    assert len(set(woken)) == 3
    assert sweep() == {}
    for number in list(woken):
        assert work.run(number) == "processed"
    assert sorted(seen) == ["a", "b", "c"]


# -- waking ------------------------------------------------------------------------------------------------------------


def test_a_worker_is_woken_with_the_receipts_number(awake, runs):
    assert told(awake()) == (202, "accepted")
    assert woken == [receipt().pk]
    assert 25 < (receipt().due_at - timezone.now()).total_seconds() <= 30
    assert sweep() == {}
    assert work.run(receipt().pk) == "processed"
    assert work.run(receipt().pk) == ""
    assert runs == [1]


@pytest.mark.django_db(transaction=True)
def test_g1_nobody_is_woken_before_the_receipt_is_committed(deferred, runs, post, monkeypatch):
    """... and in a transaction of the project's own nothing is accepted, so that no rollback can lose it."""
    seen = []
    monkeypatch.setattr("tests.test_deferred.wake", lambda number: seen.append(connection.in_atomic_block))
    deferred(DISPATCHER="tests.test_deferred.wake")
    deliver(post)
    assert seen == [False]
    with transaction.atomic():
        assert deliver(post, "evt_2").status_code == 503
    assert seen == [False]
    assert WebhookReceipt.objects.count() == 1


def test_copies_of_what_was_woken_wake_nobody(awake, runs):
    for _ in range(5):
        assert told(awake()) == (202, "accepted")
    assert len(woken) == 1


def test_of_copies_of_what_is_overdue_one_wakes(awake, runs):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1))
    for _ in range(5):
        awake()
    assert len(woken) == 2


def test_a_failed_one_is_woken_when_it_is_due_and_runs(awake, runs):
    awake()
    WebhookReceipt.objects.update(status="failed", attempts=1, due_at=at(60))
    awake()
    assert len(woken) == 1
    assert work.run(receipt().pk) == ""  # a message that came twice
    WebhookReceipt.objects.update(due_at=at(-1))
    awake()
    awake()
    assert len(woken) == 2
    assert (receipt().status, receipt().reason) == ("failed", "woken")
    assert work.run(receipt().pk) == "processed"


def test_a_revived_one_is_woken(awake, runs):
    awake()
    WebhookReceipt.objects.update(status="ignored", reason="unhandled", due_at=None)
    awake()
    assert len(woken) == 2
    assert work.run(receipt().pk) == "processed"


def test_the_sweeper_wakes_and_does_not_run(awake, runs):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1))
    assert sweep() == {"woken": 1}
    assert sweep() == {}
    assert len(woken) == 2
    assert runs == []
    assert 55 < (receipt().due_at - timezone.now()).total_seconds() <= 60


@pytest.mark.parametrize(
    "values",
    [
        {"status": "received"},
        {"status": "failed", "attempts": 3},
        {"status": "processing", "attempts": 3, "lease_until": at(-1)},
    ],
)
def test_what_the_sweeper_wakes_a_worker_for_runs_there(awake, runs, values):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1), **values)
    assert sweep() == {"woken": 1}
    assert work.run(receipt().pk) == "processed"
    assert receipt().attempts == values.get("attempts", 0) + 1


def test_the_sweeper_buries_what_kills_its_workers(awake, runs, deferred):
    awake()
    WebhookReceipt.objects.update(status="processing", attempts=20, lease_until=at(-1), due_at=at(-1))
    assert sweep() == {"dead": 1}
    assert len(woken) == 1


def test_the_sweeper_brings_what_an_inline_source_owes_by_the_same_way(sources, runs, post):
    sources(stripe={"DISPATCHER": "tests.test_deferred.wake"})
    assert told(deliver(post)) == (200, "processed")
    WebhookReceipt.objects.update(status="failed", due_at=at(-1))
    assert sweep() == {"woken": 1}
    assert len(woken) == 1


def test_g3_a_receipt_that_is_gone_is_dropped_with_a_word(runs, caplog):
    assert work.run(4711) == ""
    assert "webhook receipt 4711 is gone" in caplog.text


# -- a broker that is down ---------------------------------------------------------------------------------------------


def test_a_broker_that_is_down_loses_nothing(awake, deferred, runs, caplog):
    deferred(DISPATCHER="tests.test_deferred.broken")
    assert told(awake("evt_1")) == (202, "accepted")
    assert told(awake("evt_2")) == (202, "accepted")
    assert len(woken) == 1  # waking pauses
    assert caplog.text.count("cannot be reached (ConnectionError)") == 1
    first, second = WebhookReceipt.objects.order_by("pk")
    assert first.due_at > at(20)
    assert second.due_at <= at(1)  # while waking pauses, the sweeper is to bring it at once
    WebhookReceipt.objects.update(due_at=at(-1))
    assert sweep() == {"processed": 2}


def test_the_sweeper_runs_itself_what_it_cannot_wake_for(awake, deferred, runs):
    deferred(DISPATCHER="tests.test_deferred.broken")
    awake("evt_1")
    waking._lines.clear()
    WebhookReceipt.objects.update(due_at=at(-1), status="failed", attempts=1)
    assert sweep() == {"processed": 1}
    assert len(woken) == 2


def test_after_the_pause_one_call_tries(awake, deferred, runs, monkeypatch, caplog):
    caplog.set_level("INFO")
    deferred(DISPATCHER="tests.test_deferred.broken")
    awake("evt_1")
    now = time.monotonic()
    monkeypatch.setattr(waking, "monotonic", lambda: now + 11)
    awake("evt_2")
    awake("evt_3")
    assert len(woken) == 2
    _mended.append(True)
    monkeypatch.setattr(waking, "monotonic", lambda: now + 30)
    awake("evt_4")
    awake("evt_5")
    assert len(woken) == 4
    assert "answers again" in caplog.text


def test_a_broker_that_does_not_answer_holds_nobody_up(awake, deferred, runs, monkeypatch):
    monkeypatch.setattr(waking, "PATIENCE", 0.2)
    deferred(DISPATCHER="tests.test_deferred.hanging")
    start = time.monotonic()
    assert told(awake("evt_1")) == (202, "accepted")
    assert told(awake("evt_2")) == (202, "accepted")
    assert time.monotonic() - start < 2
    assert len(woken) == 1


def test_an_engine_that_cannot_be_imported_is_one_that_cannot_be_reached(awake, deferred, runs, monkeypatch):
    monkeypatch.setitem(engines._MODULES, "celery", "no_such_module")
    deferred(DISPATCHER="celery")
    assert told(awake("evt_1")) == (202, "accepted")
    WebhookReceipt.objects.update(due_at=at(-1))
    waking._lines.clear()
    assert sweep() == {"processed": 1}


def test_calls_that_hang_do_not_pile_up(deferred, monkeypatch):
    monkeypatch.setattr(waking, "PATIENCE", 0.01)
    monkeypatch.setattr(waking, "PAUSE", -1)
    deferred(DISPATCHER="tests.test_deferred.hanging")
    source = get_source("stripe")
    assert not any(dispatchers.wake(source, number) for number in range(waking.CALLS + 4))
    assert len(woken) == waking.CALLS


# -- what a worker needs -----------------------------------------------------------------------------------------------


def test_j7_a_receipt_runs_whatever_became_of_its_secret(deferred, runs, post):
    deliver(post)
    deferred(SECRETS=["whsec_another456789abcdef"])
    assert sweep() == {"processed": 1}
    deferred(SECRETS=[])
    WebhookReceipt.objects.update(status="failed", due_at=at(-1))
    assert sweep() == {"processed": 1}


def test_a_worker_reads_the_receipt_afresh(awake, runs):
    awake()
    WebhookReceipt.objects.update(status="discarded", due_at=None)
    assert work.run(receipt().pk) == ""
    assert runs == []


def test_a_zombie_of_a_worker_cannot_commit(deferred, handler, post):
    """Its lease runs out while it works; another one takes over, and what the late one did is rolled back."""
    ends = []

    def slow(event):
        Effect.objects.create(name=f"attempt {event.attempt}")
        if event.attempt == 1:
            WebhookReceipt.objects.update(lease_until=at(-1), due_at=at(-1))
            ends.append(processing.run(event.receipt_id, "worker"))

    handler("stripe", "*", name="h", atomic=False)(slow)
    deliver(post)
    late = processing.run(receipt().pk, "worker")
    assert ends[0].status == "processed"
    assert late.decision == "duplicate"
    assert receipt().status == "processed"


def test_woken_for_is_shorter_than_a_lease():
    assert intake.WOKEN_FOR <= 60


def test_what_another_sweeper_woke_a_worker_for_does_not_run_here(awake, runs, monkeypatch):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1))
    monkeypatch.setattr(statements, "push", lambda *_: False)
    assert sweep() == {"elsewhere": 1}
    assert runs == []


def test_a_receipt_that_was_pushed_meanwhile_does_not_run_here(awake, runs, monkeypatch):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1))
    read = statements.read_by_id

    def late(using, receipt_id):
        WebhookReceipt.objects.update(due_at=at(60))
        return read(using, receipt_id)

    monkeypatch.setattr(statements, "read_by_id", late)
    assert sweep() == {"elsewhere": 1}
    assert runs == []


@pytest.mark.parametrize(("age", "wait"), [(1, 60), (61, 61), (1000, 1000), (9000, 3600)])
def test_messages_that_wait_in_a_long_queue_are_not_sent_again_and_again(awake, runs, age, wait):
    awake()
    WebhookReceipt.objects.update(due_at=at(-1), budget_from=at(-age))
    assert sweep() == {"woken": 1}
    assert wait - 2 < (receipt().due_at - timezone.now()).total_seconds() <= wait + 2


class DatabaseBackend:
    """Named as those are that insert a row."""


class OwnDatabaseBackend(DatabaseBackend):
    pass


class BrokerBackend:
    pass


@pytest.mark.parametrize(
    ("backend", "stays"), [(DatabaseBackend, True), (OwnDatabaseBackend, True), (BrokerBackend, False)]
)
def test_a_tasks_backend_that_asks_a_server_is_not_waited_for(deferred, monkeypatch, backend, stays):
    django_tasks = pytest.importorskip("django_webhook_guard.dispatchers.django_tasks")
    deferred(DISPATCHER="tasks")
    monkeypatch.setattr(type(django_tasks.run_receipt), "get_backend", lambda task: backend())
    assert engines.stays_here(get_source("stripe")) is stays

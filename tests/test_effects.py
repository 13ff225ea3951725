"""``event.once`` and ``event.atomic``: outside effects whose outcome a later attempt must know."""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Thread
from uuid import UUID

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from django_webhook_guard import operations, processing
from django_webhook_guard.conf import get_source
from django_webhook_guard.events import Reply, WebhookEvent
from django_webhook_guard.exceptions import (
    EffectUnknown,
    GiveUp,
    LeaseLost,
    NotDone,
    RetryLater,
    Skip,
    WebhookGuardError,
)
from django_webhook_guard.handlers import unregister
from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookEffect, WebhookReceipt
from tests.project.models import Effect

pytestmark = pytest.mark.django_db


def at(seconds):
    return timezone.now() + timedelta(seconds=seconds)


def receipt():
    return WebhookReceipt.objects.get()


def effect():
    return WebhookEffect.objects.get()


def again():
    """Let time pass until the next attempt, and make it."""
    WebhookReceipt.objects.update(due_at=at(-1))
    return processing.run(receipt().pk, "sweeper")


class Payments:
    """The other side: charges once per key, and does what a test asks for."""

    def __init__(self):
        self.keys = []
        self.errors = []

    def charge(self, key):
        self.keys.append(key)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return {"id": "ch_1"}


@pytest.fixture
def payments():
    return Payments()


@pytest.fixture
def charging(handler, post, payments):
    """A handler that charges with ``once``, then does ``after``; returns the answer to its event."""

    def register(after=lambda event, charge: None, name="h", **options):
        def work(event):
            return after(event, event.once("charge", payments.charge, **options))

        handler("stripe", "*", name=name, atomic=False)(work)

    return register


def deliver(post):
    return post("stripe", {"id": "evt_1", "type": "x"})


def fail_first(event, charge):
    if event.attempt == 1:
        raise ValueError("after the charge")


def test_an_effect_that_is_done_is_not_made_again(charging, post, payments):
    seen = []
    charging(lambda event, charge: (seen.append(charge), fail_first(event, charge)))
    assert deliver(post).status_code == 500
    assert again().status == "processed"
    assert len(payments.keys) == 1
    assert seen == [{"id": "ch_1"}, {"id": "ch_1"}]
    assert effect().state == "done"
    assert str(UUID(effect().key)) == effect().key == payments.keys[0]


def test_a_call_that_never_came_back_is_made_again_with_the_same_key(charging, post, payments):
    payments.errors = [ConnectionError("timed out")]
    charging()
    assert deliver(post).status_code == 500
    assert (effect().state, effect().calls) == ("started", 1)
    assert again().status == "processed"
    assert len(payments.keys) == 2
    assert len(set(payments.keys)) == 1


def test_an_effect_that_surely_did_not_happen_gets_a_new_key(charging, post, payments):
    payments.errors = [NotDone("card declined")]
    charging()
    assert deliver(post).status_code == 500
    assert "card declined" in WebhookAttempt.objects.get().message
    assert again().status == "processed"
    assert len(set(payments.keys)) == 2
    assert effect().keys == 2


def test_not_done_proves_nothing_after_an_earlier_call_with_the_same_key(charging, post, payments):
    payments.errors = [ConnectionError("timed out"), NotDone("declined")]
    charging()
    deliver(post)
    again()
    assert again().status == "processed"
    assert len(payments.keys) == 3
    assert len(set(payments.keys)) == 1


def test_a_key_that_the_other_side_has_forgotten_is_not_used_again(charging, post, payments, caplog):
    payments.errors = [ConnectionError("timed out")]
    charging(key_lifetime=3600)
    deliver(post)
    WebhookEffect.objects.update(key_since=at(-3601))
    run = again()
    assert (run.status, run.reason) == ("dead", "effect_unknown")
    assert (receipt().status, receipt().reason) == ("dead", "effect_unknown")
    assert effect().state == "unknown"
    assert len(payments.keys) == 1
    assert "effect outcome unknown" in WebhookAttempt.objects.order_by("-pk")[0].message
    assert post("stripe", {"id": "evt_1", "type": "x"}).json()["status"] == "duplicate"


def unknown(charging, post, payments):
    payments.errors = [ConnectionError("timed out")]
    charging(key_lifetime=timedelta(hours=1))
    deliver(post)
    WebhookEffect.objects.update(key_since=at(-3601))
    again()


def test_a_plain_retry_of_an_unknown_outcome_calls_nothing(charging, post, payments):
    unknown(charging, post, payments)
    assert receipt().make_due()
    assert processing.run(receipt().pk, "admin").reason == "effect_unknown"
    WebhookEffect.objects.update(key_since=timezone.now())  # not even with a longer lifetime
    assert receipt().make_due()
    assert processing.run(receipt().pk, "admin").reason == "effect_unknown"
    assert len(payments.keys) == 1


def test_an_unknown_outcome_that_the_handler_catches_is_unknown_all_the_same(handler, post, payments):
    def work(event):
        try:
            event.once("charge", payments.charge, key_lifetime=1)
        except Exception:
            if event.attempt == 1:
                raise
        return "never mind"

    payments.errors = [ConnectionError("timed out")]
    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    WebhookEffect.objects.update(key_since=at(-2))
    assert again().reason == "effect_unknown"


def test_a_dead_receipt_retried_three_days_later_keeps_what_is_done(charging, post, payments):
    def always_fails(event, charge):
        if event.attempt < 21:
            raise ValueError

    charging(always_fails)
    deliver(post)
    while again().status != "dead":
        pass
    past = at(-3 * 86_400)
    WebhookEffect.objects.update(started_at=past, key_since=past)
    assert receipt().make_due()
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert len(payments.keys) == 1


def test_a_late_result_of_an_attempt_that_lost_its_lease_counts(handler, post, payments):
    """The zombie's call came back after another attempt had begun: what it got is the result."""

    def slow(key):
        payments.keys.append(key)
        if len(payments.keys) == 1:
            WebhookReceipt.objects.update(lease_until=at(-1), due_at=at(-1))
            assert processing.run(receipt().pk, "sweeper").status == "processed"
            return "first"
        return "second"

    results = []
    handler("stripe", "*", name="h", atomic=False)(lambda event: results.append(event.once("charge", slow)))
    assert deliver(post).json()["status"] == "duplicate"
    assert len(set(payments.keys)) == 1
    assert effect().state == "done"
    assert WebhookCheckpoint.objects.count() == 1


def test_an_attempt_that_lost_its_lease_begins_no_call(handler, post, payments):
    def work(event):
        WebhookReceipt.objects.update(attempts=7)
        with pytest.raises(LeaseLost):
            event.once("charge", payments.charge)
        raise LeaseLost

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    assert payments.keys == []
    assert not WebhookEffect.objects.exists()


def test_names_of_effects_are_of_one_receipt_and_handler(handler, post, payments):
    for name in ("a", "b"):
        handler("stripe", "*", name=name, atomic=False)(lambda event: event.once("charge", payments.charge))
    deliver(post)
    post("stripe", {"id": "evt_2", "type": "x"})
    assert len(set(payments.keys)) == 4


def test_a_renamed_handler_knows_its_effects(handler, post, payments):
    def work(event):
        event.once("charge", payments.charge)
        fail_first(event, None)

    def renamed(event):
        event.once("charge", payments.charge)

    handler("stripe", "*", name="old", atomic=False)(work)
    deliver(post)
    unregister(work)
    handler("stripe", "*", name="new", formerly="old", atomic=False)(renamed)
    assert again().status == "processed"
    assert len(payments.keys) == 1


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (None, None),
        ("text \0 \ud800", "text \0 \ud800"),
        ((1, 2), [1, 2]),
        (datetime(2026, 12, 1, tzinfo=UTC), "2026-12-01T00:00:00Z"),
        (Decimal("1.10"), "1.10"),
    ],
)
def test_results_come_back_as_json_has_them_now_and_later(handler, post, result, kept):
    results = []

    def work(event):
        results.append(event.once("x", lambda key: result))
        fail_first(event, None)

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    again()
    assert results == [kept, kept]


@pytest.mark.parametrize("result", [object(), float("nan"), "x" * 70_000])
def test_what_cannot_be_kept_counts_as_done(handler, post, result, caplog):
    results = []

    def work(event):
        results.append(event.once("x", lambda key: result))
        fail_first(event, None)

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    again()
    assert results == [result, None]
    assert "cannot be kept" in caplog.text


async def _charge():
    return "ch_async"


def test_the_call_may_be_a_coroutine(handler, post):
    handler("stripe", "*", name="h", atomic=False)(lambda event: event.once("x", lambda key: _charge()))
    deliver(post)
    assert effect().result == '"ch_async"'


def test_a_call_may_ask_to_run_later_and_is_made_with_the_same_key(charging, post, payments):
    payments.errors = [RetryLater(5)]
    charging()
    assert deliver(post).json()["status"] == "retry_later"
    again()
    assert len(payments.keys) == 2
    assert len(set(payments.keys)) == 1


# -- event.atomic ------------------------------------------------------------------------------------------------------


def test_charge_then_book(handler, post, payments):
    def work(event):
        charge = event.once("charge", payments.charge)
        if event.attempt == 1:
            raise ValueError("between charge and booking")
        with event.atomic():
            Effect.objects.create(name=charge["id"])
        return "booked"

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    again()
    assert (Effect.objects.count(), len(payments.keys)) == (1, 1)
    checkpoint = WebhookCheckpoint.objects.get()
    assert (checkpoint.mark, checkpoint.result) == ("done", "booked")


def test_what_stands_in_the_block_is_rolled_back_with_it(handler, post):
    def work(event):
        with event.atomic():
            Effect.objects.create(name="x")
            fail_first(event, None)

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).status_code == 500
    assert not Effect.objects.exists()
    assert again().status == "processed"
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("error", [ValueError("afterwards"), Skip("afterwards"), NotDone()])
def test_an_error_after_the_block_changes_nothing(handler, post, error, caplog):
    def work(event):
        with event.atomic():
            Effect.objects.create(name="x")
        raise error

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).status_code == 200
    assert receipt().status == "processed"
    assert "failed after its commit" in caplog.text
    assert WebhookAttempt.objects.get().outcome == "processed"


def test_a_block_whose_lease_is_lost_is_rolled_back(handler, post):
    def work(event):
        with event.atomic():
            Effect.objects.create(name="x")
            WebhookReceipt.objects.filter(pk=event.receipt_id).update(attempts=7)

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    assert not Effect.objects.exists()
    assert not WebhookCheckpoint.objects.exists()


def test_the_other_handler_of_the_event_still_runs_again(handler, post):
    def work(event):
        with event.atomic():
            Effect.objects.create(name="x")

    handler("stripe", "*", name="first", atomic=False)(work)
    handler("stripe", "*", name="second")(lambda event: fail_first(event, None))
    assert deliver(post).status_code == 500
    assert again().status == "processed"
    assert Effect.objects.count() == 1


# -- what is refused ---------------------------------------------------------------------------------------------------


def _once(event):
    event.once("x", lambda key: None)


def _atomic(event):
    with event.atomic():
        pass


def _renew(event):
    event.renew()


@pytest.mark.parametrize("call", [_once, _atomic, _renew])
def test_what_an_atomic_handler_may_not_do(handler, post, call):
    handler("stripe", "*", name="h")(call)
    assert deliver(post).status_code == 500
    assert "atomic=False" in WebhookAttempt.objects.get().message


@pytest.mark.parametrize("call", [_once, _atomic, _renew])
def test_what_may_not_stand_inside_the_block(handler, post, call):
    def work(event):
        with event.atomic():
            call(event)

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).status_code == 500
    assert "before event.atomic()" in WebhookAttempt.objects.get().message


@pytest.mark.parametrize("call", [_once, _atomic, _renew])
def test_what_may_not_follow_the_block(handler, post, call, caplog):
    def work(event):
        _atomic(event)
        call(event)

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).status_code == 200
    assert "has ended its work" in WebhookAttempt.objects.get().message


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("call", [_once, _atomic, _renew])
def test_a_transaction_of_the_handlers_own_is_refused(handler, post, call):
    def work(event):
        with transaction.atomic():
            call(event)

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).status_code == 500
    assert "transaction" in WebhookAttempt.objects.get().message or "durable" in WebhookAttempt.objects.get().message
    assert not WebhookEffect.objects.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda event: event.once("", lambda key: None),
        lambda event: event.once("x" * 256, lambda key: None),
        lambda event: event.once("x", lambda key: None, key_lifetime=0),
        lambda event: event.once("x", lambda key: None, key_lifetime=float("nan")),
    ],
)
def test_a_name_or_lifetime_that_cannot_be_used(handler, post, call):
    handler("stripe", "*", name="h", atomic=False)(call)
    assert deliver(post).status_code == 500
    assert "event.once" in WebhookAttempt.objects.get().message


def test_an_event_outside_of_a_run_has_no_handler_to_speak_of(handler, post):
    seen = []
    handler("stripe", "*", name="h", atomic=False)(seen.append)
    deliver(post)
    event = WebhookEvent.stored(receipt(), get_source("stripe"), 1)
    with pytest.raises(RuntimeError, match="running handler"):
        event.once("x", lambda key: None)


# -- settling ----------------------------------------------------------------------------------------------------------


def test_a_person_says_that_it_happened(charging, post, payments, caplog):
    caplog.set_level("INFO")
    seen = []
    unknown(lambda **options: charging(lambda event, charge: seen.append(charge), **options), post, payments)
    settled = operations.settle(
        receipt(), "h", "charge", happened=True, result={"id": "ch_9"}, actor="anna", reason="looked at the bank"
    )
    assert settled
    assert "settled (charge: happened) by anna: looked at the bank" in caplog.text
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert len(payments.keys) == 1
    assert seen == [{"id": "ch_9"}]


def test_a_person_says_that_it_did_not_happen(charging, post, payments):
    unknown(charging, post, payments)
    assert operations.settle(receipt(), "h", "charge", happened=False, actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert len(set(payments.keys)) == 2


@pytest.mark.parametrize(("handler_name", "name"), [("other", "charge"), ("h", "other")])
def test_an_effect_that_is_not_there_settles_nothing(charging, post, payments, handler_name, name):
    unknown(charging, post, payments)
    assert not operations.settle(receipt(), handler_name, name, happened=True, actor="anna")
    assert receipt().status == "dead"


def test_of_two_people_one_settles(charging, post, payments):
    unknown(charging, post, payments)
    first, second = receipt(), receipt()
    assert operations.settle(first, "h", "charge", happened=False, actor="anna")
    assert not operations.settle(second, "h", "charge", happened=True, actor="bert")
    assert effect().state == "started"


def test_a_receipt_that_moved_on_settles_nothing(charging, post, payments):
    unknown(charging, post, payments)
    shown = receipt()
    WebhookReceipt.objects.update(attempts=9)
    assert not operations.settle(shown, "h", "charge", happened=True, actor="anna")
    assert effect().state == "unknown"


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_a_long_run_renews_its_lease(handler, post):
    left = []

    def work(event):
        WebhookReceipt.objects.update(lease_until=at(1))
        event.renew()
        left.append((receipt().lease_until - timezone.now()).total_seconds())

    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    assert left[0] > 50


def test_a_lost_lease_cannot_be_renewed(handler, post):
    def work(event):
        WebhookReceipt.objects.filter(pk=event.receipt_id).update(attempts=7)
        event.renew()

    handler("stripe", "*", name="h", atomic=False)(work)
    assert deliver(post).json()["status"] == "busy"
    assert not WebhookCheckpoint.objects.exists()


def test_errors_of_the_ledger_are_in_one_tree():
    assert issubclass(EffectUnknown, WebhookGuardError)
    assert issubclass(NotDone, WebhookGuardError)


@pytest.mark.parametrize(
    "error",
    [RetryLater(5), Skip(), GiveUp(), ValueError("and then"), ExceptionGroup("both", [ValueError()]), None],
    ids=lambda error: type(error).__name__,
)
def test_an_unknown_outcome_wins_over_whatever_the_handler_makes_of_it(handler, post, payments, error):
    def work(event):
        try:
            event.once("charge", payments.charge, key_lifetime=0.001)
        except EffectUnknown:
            if error is not None:
                raise error from None

    payments.errors = [ConnectionResetError()]
    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    time.sleep(0.05)
    again()
    assert (receipt().status, receipt().reason) == ("dead", "effect_unknown")
    assert len(payments.keys) == 1


def test_a_block_cannot_hide_an_unknown_outcome(handler, post, payments):
    def work(event):
        with suppress(EffectUnknown):
            event.once("charge", payments.charge, key_lifetime=0.001)
        with event.atomic():
            Effect.objects.create(name="booked")

    payments.errors = [ConnectionResetError()]
    handler("stripe", "*", name="h", atomic=False)(work)
    deliver(post)
    time.sleep(0.05)
    again()
    assert (receipt().status, receipt().reason) == ("dead", "effect_unknown")
    assert not Effect.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_late_result_waits_for_the_attempt_that_looks_at_the_row(charging, post, payments):
    """Else the new attempt would take the call for one that never came back."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nobody else can write meanwhile")
    payments.errors = [ConnectionResetError()]
    charging()
    deliver(post)
    late = effect()
    ends = []

    def write():
        WebhookEffect.objects.done(late, '"late"')
        ends.append(time.monotonic())
        connection.close()

    thread = Thread(target=write)
    with transaction.atomic():
        row = WebhookEffect.objects.of([late.digest])
        thread.start()
        thread.join(0.3)
        row.begin_again(lifetime=60, next_key="new", attempt=2)
        assert (row.state, ends) == ("started", [])
    thread.join(10)
    assert (effect().state, effect().result) == ("done", '"late"')


def test_what_a_handler_answers_after_its_block_is_kept_at_once(handler, post, monkeypatch):
    def work(event):
        with event.atomic():
            Effect.objects.create(name="booked")
        return Reply("thanks")

    handler("stripe", "*", name="h", atomic=False)(work)
    monkeypatch.setattr(processing, "_finish", lambda *_: (_ for _ in ()).throw(OperationalError("away")))
    deliver(post)
    assert Reply.of(receipt().reply) == Reply(b"thanks")


def test_results_of_handlers_whose_names_differ_in_case_are_kept_apart(handler, post):
    for name in ("Book", "book"):

        def work(event, name=name):
            with event.atomic():
                pass
            return name

        handler("stripe", "*", name=name, atomic=False)(work)
    deliver(post)
    assert dict(WebhookCheckpoint.objects.values_list("handler", "result")) == {"Book": "Book", "book": "book"}

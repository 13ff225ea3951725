import logging
import time
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.utils import timezone

from django_webhook_guard import operations, processing, statements
from django_webhook_guard.exceptions import GiveUp, RetryLater, Skip
from django_webhook_guard.handlers import unregister
from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookReceipt
from tests import senders
from tests.project.models import Effect, Unique

pytestmark = pytest.mark.django_db(databases=["default", "other"])
committing = pytest.mark.django_db(transaction=True, databases=["default", "other"])
EVENT = {"id": "evt_1", "type": "x"}


def receipt():
    return WebhookReceipt.objects.get()


def attempt():
    return WebhookAttempt.objects.order_by("-pk")[0]


def effects(using="default"):
    return list(Effect.objects.using(using).order_by("pk").values_list("name", flat=True))


def make_due():
    WebhookReceipt.objects.update(due_at=timezone.now() - timedelta(hours=1))


def lease_is_out():
    WebhookReceipt.objects.update(lease_until=timezone.now() - timedelta(seconds=1))


@pytest.fixture
def scripted(handler):
    """Register a handler that writes an effect, then plays its script: an exception to raise or a value to return."""

    def register(*script, name="h", using=None, **options):
        steps = list(script)

        def play(event):
            Effect.objects.using(using or "default").create(name=f"{name}{event.attempt}", handler=name)
            step = steps.pop(0) if steps else None
            if isinstance(step, BaseException):
                raise step
            return step() if callable(step) else step

        handler("stripe", "*", name=name, using=using, **options)(play)

    return register


def answer(response):
    return response.status_code, response.json()["status"]


# -- one handler -------------------------------------------------------------------------------------------------------


def test_e1_what_failed_once_runs_again_with_the_redelivery(post, scripted):
    scripted(ValueError("first"), "done")
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert (receipt().status, receipt().attempts) == ("failed", 1)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert (receipt().status, receipt().attempts, receipt().result) == ("processed", 2, "done")
    assert effects() == ["h2"]


@pytest.mark.tells_secrets
def test_a_failed_attempt_is_written_down(post, scripted, sources, caplog):
    sources(stripe={"RELEASE": "r42"})
    scripted(ValueError(f"no {senders.STRIPE_SECRET}\0\ud800"))
    post("stripe", EVENT)
    row = attempt()
    assert (row.number, row.trigger, row.outcome, row.handler, row.release) == (1, "delivery", "failed", "h", "r42")
    assert row.error_class == "builtins.ValueError"
    assert row.message.startswith("no ***")
    assert "play" in row.traceback
    assert senders.STRIPE_SECRET not in row.traceback
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info


def test_a_first_run_that_works_leaves_no_attempt_and_no_checkpoint(post, scripted):
    scripted("done")
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert not WebhookAttempt.objects.exists()
    assert not WebhookCheckpoint.objects.exists()
    assert (receipt().last_handler, receipt().due_at, receipt().lease_until) == ("h", None, None)


def test_f1_a_processed_event_is_a_duplicate_without_an_error(post, scripted, caplog):
    scripted()
    answers = [answer(post("stripe", EVENT)) for _ in range(4)]
    assert answers == [(200, "processed")] + [(200, "duplicate")] * 3
    assert effects() == ["h1"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_f2_a_type_without_handler_is_ignored(post, scripted):
    assert answer(post("stripe", {"id": "evt_1", "type": "nobody.cares"})) == (200, "ignored")
    assert (receipt().status, receipt().reason, receipt().attempts, receipt().due_at) == (
        "ignored",
        "unhandled",
        0,
        None,
    )


def test_f4_a_known_id_with_a_wrong_signature_tells_nothing(post, scripted):
    scripted()
    post("stripe", EVENT)
    before = WebhookReceipt.objects.values().get()
    known, unknown = (post("stripe", {"id": id_, "type": "x"}, secret="wrong" * 5) for id_ in ("evt_1", "evt_2"))
    assert (
        (known.status_code, known.content) == (unknown.status_code, unknown.content) == (401, b'{"status": "rejected"}')
    )
    assert WebhookReceipt.objects.values().get() == before


def test_an_integrity_error_of_a_handler_is_a_failure_and_no_duplicate(post, scripted):
    Unique.objects.create(name="taken")
    scripted(lambda: Unique.objects.create(name="taken"))
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert receipt().status == "failed"
    assert attempt().error_class == "django.db.utils.IntegrityError"
    assert effects() == []


def swallow():
    try:
        Unique.objects.create(name="taken")
    except IntegrityError:
        return "swallowed"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_handler_that_breaks_its_transaction_and_hides_it_has_failed(post, scripted, atomic):
    Unique.objects.create(name="taken")

    def broken():
        return swallow() if atomic else transaction.set_rollback(True)

    scripted(broken)
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert effects() == []


@committing
def test_a_handler_that_closes_the_connection_has_failed(post, scripted):
    """Not on SQLite in memory, where closing does nothing; PostgreSQL's driver says that the database is away."""
    scripted(connection.close)
    told = {"sqlite": (200, "processed"), "postgresql": (503, "unavailable"), "mysql": (500, "failed")}
    assert answer(post("stripe", EVENT)) == told[connection.vendor]
    assert receipt().status == ("processed" if connection.vendor == "sqlite" else "failed")
    assert effects() == (["h1"] if connection.vendor == "sqlite" else [])


def test_a_durable_block_inside_an_atomic_handler_is_a_failure(post, handler):
    @handler("stripe", "*", name="h")
    def durable(event):
        with transaction.atomic(), transaction.atomic(durable=True):
            pass

    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert "durable" in attempt().message


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (None, ""),
        (7, "7"),
        ({"a": 1}, "{'a': 1}"),
        (b"\xff", "b'\\xff'"),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\ud800 é 😀", "? é 😀"),
    ],
)
def test_any_result_can_be_kept(post, scripted, result, kept):
    scripted(result)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert receipt().result == kept


def test_a_long_result_is_cut(post, scripted):
    scripted("é" * 1_000_000)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert len(receipt().result) == 4096


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [Unreadable(), type("Hard", (GiveUp,), {"__str__": Unreadable.__str__})()])
def test_an_error_without_a_readable_message_is_a_failure_like_any_other(post, scripted, error):
    scripted(error)
    assert post("stripe", EVENT).status_code == (200 if isinstance(error, GiveUp) else 500)
    assert receipt().status == ("dead" if isinstance(error, GiveUp) else "failed")
    assert "no readable message" in attempt().message


def test_an_async_handler_runs_inside_the_transaction(post, handler):
    @handler("stripe", "*", name="h")
    async def write(event):
        await Effect.objects.acreate(name="async")
        assert await sync_to_async(lambda: connection.in_atomic_block)()
        if event.attempt == 1:
            raise ValueError
        return "done"

    assert post("stripe", EVENT).status_code == 500
    assert effects() == []
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["async"]


def test_a_handler_that_returns_something_to_await_is_not_processed_without_it(post, handler):
    class Work:
        async def __call__(self, event):
            raise ValueError

    handler("stripe", "*", name="h")(Work())
    assert post("stripe", EVENT).status_code == 500


# -- what a handler raises on purpose ----------------------------------------------------------------------------------


def test_e6_give_up_is_told_as_a_success_and_waits_for_a_person(post, scripted):
    scripted(GiveUp("never"), "done")
    assert answer(post("stripe", EVENT)) == (200, "gave_up")
    assert (receipt().status, receipt().reason, receipt().due_at) == ("dead", "gave_up", None)
    assert answer(post("stripe", EVENT)) == (200, "duplicate")
    assert attempt().message == "never"
    assert operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin", "anna").decision == "processed"
    assert (attempt().actor, attempt().trigger) == ("anna", "admin")
    assert effects() == ["h2"]


def test_e6_a_passing_fault_runs_again(post, scripted):
    scripted(ConnectionError("refused"))
    assert answer(post("stripe", EVENT)) == (500, "failed")
    make_due()
    assert processing.run(receipt().pk, "sweeper").status == "processed"


def test_everything_skipped_is_ignored(post, scripted):
    scripted(Skip("nothing to do"))
    assert answer(post("stripe", EVENT)) == (200, "ignored")
    assert (receipt().status, receipt().reason) == ("ignored", "skipped")
    assert WebhookCheckpoint.objects.get().result == "nothing to do"
    assert answer(post("stripe", EVENT)) == (200, "duplicate")
    assert effects() == []


def test_what_was_skipped_on_another_database_does_not_run_with_every_redelivery(post, scripted):
    scripted(Skip(), using="other")
    assert answer(post("stripe", EVENT)) == (200, "ignored")
    assert answer(post("stripe", EVENT)) == (200, "duplicate")
    assert receipt().attempts == 1


def test_skipped_and_done_is_processed(post, scripted):
    scripted(Skip(), name="a")
    scripted("b", name="b")
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["b1"]


def test_gave_up_and_done_is_dead_and_a_retry_runs_only_what_gave_up(post, scripted):
    scripted(GiveUp(), name="a")
    scripted("b", name="b")
    assert answer(post("stripe", EVENT)) == (200, "gave_up")
    assert (receipt().status, receipt().reason) == ("dead", "gave_up")
    assert operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert effects() == ["b1", "a2"]


@pytest.mark.parametrize("after", [3600, timedelta(hours=1)])
def test_a_storm_under_retry_later_runs_nothing_and_uses_no_attempt(post, scripted, after):
    scripted(RetryLater(after))
    first = post("stripe", EVENT)
    assert answer(first) == (503, "retry_later")
    assert first["Retry-After"] == "3600"
    assert {post("stripe", EVENT).status_code for _ in range(10)} == {503}
    assert (receipt().attempts, receipt().excused, receipt().reason) == (1, 1, "retry_later")
    make_due()
    assert answer(post("stripe", EVENT)) == (200, "processed")


def test_retry_later_without_a_time_goes_by_the_policy(post, scripted, sources):
    sources(stripe={"RETRY": {"base": 70, "jitter": 0}})
    scripted(RetryLater())
    assert post("stripe", EVENT)["Retry-After"] == "70"


def test_retry_later_without_a_time_waits_as_long_as_it_has_taken_so_far(post, scripted, sources):
    sources(stripe={"RETRY": {"jitter": 0}})
    scripted(RetryLater(), RetryLater())
    post("stripe", EVENT)
    WebhookReceipt.objects.update(budget_from=timezone.now() - timedelta(minutes=10), due_at=timezone.now())
    assert 600 <= int(post("stripe", EVENT)["Retry-After"]) <= 605


def test_retry_later_does_not_run_out_of_attempts_but_of_age(post, scripted, sources):
    sources(stripe={"RETRY": {"max_attempts": 2}})
    scripted(*[RetryLater(0) for _ in range(5)])
    for _ in range(4):
        assert answer(post("stripe", EVENT)) == (503, "retry_later")
        assert answer(post("stripe", EVENT)) == (503, "busy")  # a second's rest, even after RetryLater(0)
        WebhookReceipt.objects.update(due_at=timezone.now())
    WebhookReceipt.objects.update(budget_from=timezone.now() - timedelta(days=4))
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert (receipt().status, receipt().reason) == ("dead", "exhausted")


@pytest.mark.parametrize("after", [10**12, 1e300, timedelta.max])
def test_retry_later_in_the_far_future_is_stored_on_every_database(post, scripted, after):
    scripted(RetryLater(after))
    assert answer(post("stripe", EVENT)) == (503, "retry_later")
    assert receipt().due_at.year > timezone.now().year + 5


def test_a_failure_beside_retry_later_counts(post, scripted):
    scripted(RetryLater(3600), name="a")
    scripted(ValueError(), name="b")
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert (receipt().excused, receipt().reason) == (0, "")


def test_attempts_run_out(post, scripted, sources):
    sources(stripe={"RETRY": {"max_attempts": 2}})
    scripted(ValueError(), ValueError(), "done")
    assert [answer(post("stripe", EVENT)) for _ in range(2)] == [(500, "failed")] * 2
    assert (receipt().status, receipt().reason, receipt().due_at) == ("dead", "exhausted", None)
    assert operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert receipt().attempts == 3


# -- several handlers --------------------------------------------------------------------------------------------------


def test_a_retry_runs_only_what_is_open(post, scripted):
    scripted(ValueError(), name="a")
    scripted("b", name="b")
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert effects() == ["b1"]
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["b1", "a2"]


def test_the_mark_on_the_receipt_is_never_lost_to_another_one(post, scripted):
    """``b`` ends on the receipt itself; two persons' retries and a new handler later it must still be known."""
    scripted(GiveUp(), GiveUp(), "a", name="a")
    scripted(ValueError(), "b", name="b")
    post("stripe", EVENT)
    assert answer(post("stripe", EVENT)) == (200, "gave_up")
    assert receipt().last_handler == "b"
    scripted(ValueError(), "c", name="c")
    operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").status == "failed"
    make_due()
    assert processing.run(receipt().pk, "sweeper").status == "dead"
    operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert effects() == ["b2", "c4", "a5"]


def test_a_handler_changes_data_for_itself_alone(post, handler):
    seen = []

    def spoil(event):
        seen.append(event.data["list"][:])
        event.data["list"].append(2)
        event.data.pop("id")

    handler("stripe", "*", name="a")(spoil)
    handler("stripe", "*", name="b")(lambda event: spoil(event))
    assert post("stripe", {**EVENT, "list": [1]}).status_code == 200
    assert seen == [[1], [1]]


def test_one_name_of_two_sources_is_two_handlers(post, handler):
    runs = []
    handler("stripe", "*", name="book")(lambda event: runs.append("stripe"))
    handler("github", "*", name="book")(lambda event: runs.append("github"))
    post("stripe", EVENT)
    post("github", {"a": 1})
    assert runs == ["stripe", "github"]


def test_a_former_name_counts_as_ended(post, scripted):
    scripted("old", name="old")
    scripted(ValueError(), name="b")
    post("stripe", EVENT)
    assert effects() == ["old1"]
    WebhookCheckpoint.objects.filter(handler="old").update(handler="older")
    WebhookReceipt.objects.update(handlers=["older", "b"])
    scripted("new", name="new", formerly=["older", "old"])
    make_due()
    post("stripe", EVENT)
    assert "new2" not in effects()


def test_a_renamed_handler_finishes_what_the_old_one_began(post, handler):
    function = handler("stripe", "*", name="old")(lambda event: 1 / (event.attempt - 1))
    assert post("stripe", EVENT).status_code == 500
    unregister(function)
    handler("stripe", "*", name="new", formerly="old")(lambda event: Effect.objects.create(name="new"))
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["new"]


def test_a_name_that_this_process_does_not_know_is_a_failed_attempt_after_the_known_ran(post, scripted):
    scripted(ValueError(), "done")
    post("stripe", EVENT)
    WebhookReceipt.objects.update(handlers=["newer", "h"])
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert effects() == ["h2"]
    assert (attempt().handler, attempt().outcome) == ("newer", "failed")
    assert attempt().message.startswith("no handler here for newer")
    make_due()
    assert processing.run(receipt().pk, "sweeper").status == "failed"
    assert effects() == ["h2"]


def test_a_failed_receipt_whose_handlers_are_gone_is_not_finished(post, handler):
    function = handler("stripe", "*", name="h")(lambda event: 1 / 0)
    post("stripe", EVENT)
    unregister(function)
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert receipt().status == "failed"
    assert attempt().error_class.endswith("NoHandlerHere")


def test_a_lease_is_as_long_as_the_longest_handler_says(post, handler):
    left = []

    def look(event):
        left.append((receipt().lease_until - timezone.now()).total_seconds())

    handler("stripe", "*", name="h", lease=timedelta(minutes=10))(look)
    handler("stripe", "*", name="i")(lambda event: None)
    post("stripe", EVENT)
    assert 590 < left[0] < 601


def test_a_taken_over_lease_is_as_long_as_the_kept_handlers_say(post, handler):
    left = []

    def look(event):
        left.append((receipt().lease_until - timezone.now()).total_seconds())
        raise RetryLater(0)

    handler("stripe", "other", name="h", lease=600)(look)
    handler("stripe", "x", name="i")(lambda event: 1 / 0)
    post("stripe", EVENT)
    WebhookReceipt.objects.update(handlers=["h", "i"])
    post("stripe", EVENT)
    make_due()
    processing.run(receipt().pk, "sweeper")
    assert [590 < seconds < 601 for seconds in left] == [True, True]


# -- outside of the transaction ----------------------------------------------------------------------------------------


@committing
def test_a_handler_outside_of_a_transaction_runs_at_least_once(post, handler):
    def work(event):
        assert not connection.in_atomic_block
        Effect.objects.create(name=f"{event.attempt}")
        if event.attempt == 1:
            raise ValueError
        return "done"

    handler("stripe", "*", name="h", atomic=False)(work)
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["1", "2"]
    assert WebhookCheckpoint.objects.get().result == "done"


@committing
def test_a_handler_that_switches_autocommit_off_is_not_answered_as_if_it_were_stored(post, handler, caplog):
    handler("stripe", "*", name="h", atomic=False)(lambda event: transaction.set_autocommit(False))
    try:
        assert answer(post("stripe", EVENT)) == (503, "unavailable")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert "Autocommit" in caplog.text
    assert receipt().status == "processing"


@committing
@pytest.mark.parametrize("atomic", [True, False])
def test_the_receipt_is_committed_before_the_handler_runs(post, handler, atomic):
    if atomic and connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nobody else can look")
    seen = []

    def look(event):
        elsewhere = connections["default"].copy()
        try:
            with elsewhere.cursor() as cursor:
                cursor.execute(f"SELECT status, attempts FROM {WebhookReceipt._meta.db_table}")
                seen.extend(cursor.fetchall())
        finally:
            elsewhere.close()

    handler("stripe", "*", name="h", atomic=atomic)(look)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert seen == [("processing", 1)]


@committing
def test_d1_atomic_requests_do_not_undo_the_receipt(post, scripted, monkeypatch):
    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    scripted(ValueError("why"))
    assert answer(post("stripe", EVENT)) == (500, "failed")
    assert (receipt().status, receipt().attempts, attempt().message) == ("failed", 1, "why")
    assert effects() == []


@committing
def test_a_run_refuses_an_outer_transaction(post, scripted):
    scripted(ValueError())
    post("stripe", EVENT)
    make_due()
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        processing.run(receipt().pk, "sweeper")
    assert (receipt().status, receipt().attempts, effects()) == ("failed", 1, [])


def test_inside_a_test_case_everything_works(post, scripted):
    scripted(ValueError(), "done")
    post("stripe", EVENT)
    make_due()
    assert processing.run(receipt().pk, "sweeper").status == "processed"


# -- another database --------------------------------------------------------------------------------------------------


@committing
def test_effects_on_another_database_are_there_once_after_a_crash(post, scripted, monkeypatch):
    scripted(using="other")

    def crash(*args):
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(processing, "_finish", crash)
        post("stripe", EVENT)
    assert (receipt().status, effects("other")) == ("processing", ["h1"])
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects("other") == ["h1"]
    assert WebhookCheckpoint.objects.using("other").count() == 1
    assert not WebhookCheckpoint.objects.exists()


@committing
def test_a_mark_that_a_zombie_left_on_another_database_counts_and_the_run_goes_on(post, scripted, monkeypatch):
    scripted(ValueError(), using="other")
    scripted(ValueError(), name="i")
    assert post("stripe", EVENT).status_code == 500
    read, left = statements.checkpoints, []

    def overtaken(using, fingerprint):
        found = read(using, fingerprint)
        if using == "other" and not left:
            left.append(statements.insert_checkpoint("other", fingerprint, "h", "done", "", 1))
        return found

    monkeypatch.setattr(statements, "checkpoints", overtaken)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert (effects("other"), effects()) == ([], ["i2"])


@committing
@pytest.mark.parametrize("away", ["no-such-alias", "other"])
def test_a_database_that_is_away_stops_only_its_own_handler(post, scripted, monkeypatch, away):
    scripted(ValueError(), ValueError(), using=away)
    scripted(ValueError(), name="i")
    read = statements.checkpoints

    def gone(using, fingerprint):
        if using != "default":
            raise OperationalError("gone")
        return read(using, fingerprint)

    monkeypatch.setattr(statements, "checkpoints", gone)
    assert post("stripe", EVENT).status_code in (500, 503)
    assert post("stripe", EVENT).status_code in (500, 503)
    assert effects() == ["i2"]
    assert (receipt().status, receipt().attempts) == ("failed", 2)
    assert list(WebhookAttempt.objects.values_list("number", "outcome")) == [(1, "failed"), (2, "failed")]
    assert attempt().handler == "h"


def test_a_receipt_that_is_deleted_under_its_run_is_not_answered_as_done(post, handler):
    handler("stripe", "*", name="h", atomic=False)(lambda event: WebhookReceipt.objects.all().delete() and None)
    assert answer(post("stripe", EVENT)) == (503, "busy")


@pytest.mark.tells_secrets
@pytest.mark.parametrize("ending", [GiveUp, Skip, str])
def test_what_is_kept_of_a_result_holds_no_secret(post, scripted, ending):
    secret = senders.STRIPE_SECRET
    told = ending(f"the partner said {secret}")
    scripted(told)
    scripted(name="i")
    post("stripe", EVENT)
    kept = [*WebhookCheckpoint.objects.values_list("result", flat=True), receipt().result]
    assert any("the partner said ***" in result for result in kept)
    assert not any(secret in result for result in kept)


@committing
def test_effects_of_a_failed_handler_on_another_database_are_undone(post, scripted):
    scripted(ValueError(), using="other")
    scripted(name="i")
    assert post("stripe", EVENT).status_code == 500
    assert (effects("other"), effects()) == ([], ["i1"])
    assert post("stripe", EVENT).status_code == 200
    assert (effects("other"), effects()) == (["h2"], ["i1"])


def test_a_retry_of_what_gave_up_on_another_database_runs_it(post, scripted):
    scripted(GiveUp(), using="other")
    assert answer(post("stripe", EVENT)) == (200, "gave_up")
    operations.retry(receipt(), actor="anna")
    assert processing.run(receipt().pk, "admin").status == "processed"
    assert effects("other") == ["h2"]


# -- after the commit --------------------------------------------------------------------------------------------------


@committing
@pytest.mark.parametrize("error", [ValueError("late"), DatabaseError("late"), OperationalError(1213, "late")])
@pytest.mark.parametrize("others", [0, 1])
def test_an_error_after_the_commit_changes_nothing(post, handler, scripted, caplog, error, others):
    def fail():
        raise error

    @handler("stripe", "*", name="h")
    def work(event):
        Effect.objects.create(name="h")
        transaction.on_commit(fail)

    if others:
        scripted(name="i")
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["h", "i1"][: 1 + others]
    assert (attempt().outcome, attempt().handler, attempt().number) == ("processed", "h", 1)
    assert "late" in attempt().message
    assert [each for each in caplog.records if "after its commit" in each.getMessage()]


# -- conflicts ---------------------------------------------------------------------------------------------------------


def caused(name, value, kind=OperationalError):
    error = kind("lost")
    error.__cause__ = type("Cause", (Exception,), {name: value})()
    return error


CONFLICTS = [
    OperationalError(1213, "Deadlock found"),
    OperationalError(1020, "Record has changed"),
    caused("sqlstate", "40P01"),
    caused("sqlstate", "40001"),
    caused("sqlite_errorname", "SQLITE_BUSY"),
    caused("sqlite_errorname", "SQLITE_LOCKED_SHAREDCACHE"),
]


@pytest.mark.parametrize("error", CONFLICTS)
@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_conflict_repeats_an_atomic_handler_three_times_within_its_attempt(post, scripted, error, times):
    scripted(*[error] * times)
    assert post("stripe", EVENT).status_code == (200 if times < 4 else 500)
    assert receipt().attempts == 1
    assert effects() == (["h1"] if times < 4 else [])


@pytest.mark.parametrize(
    "error", [OperationalError(1205, "lock"), caused("sqlstate", "55P03"), OperationalError("gone")]
)
def test_no_other_error_repeats_a_handler(post, handler, error):
    runs = []

    @handler("stripe", "*", name="h")
    def fail(event):
        runs.append(event.attempt)
        raise error

    assert post("stripe", EVENT).status_code == 500
    assert runs == [1]


@committing
def test_a_conflict_does_not_repeat_a_handler_outside_of_a_transaction(post, scripted):
    scripted(CONFLICTS[0], atomic=False)
    assert post("stripe", EVENT).status_code == 500
    assert effects() == ["h1"]


def test_a_repeated_handler_gets_data_of_its_own(post, handler):
    seen = []

    @handler("stripe", "*", name="h")
    def spoil(event):
        seen.append(event.data.pop("id"))
        if len(seen) == 1:
            raise CONFLICTS[0]

    assert post("stripe", EVENT).status_code == 200
    assert seen == ["evt_1", "evt_1"]


# -- leases ------------------------------------------------------------------------------------------------------------


@committing
def test_e3_a_zombie_is_fenced_out_and_its_effect_undone(post, scripted):
    scripted(lambda: WebhookReceipt.objects.update(attempts=2))
    response = post("stripe", EVENT)
    assert answer(response) == (503, "busy")
    assert effects() == []
    assert (attempt().outcome, attempt().number) == ("fenced", 1)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"status": "processed"}, (200, "duplicate")),
        ({"status": "dead", "reason": "gave_up"}, (200, "duplicate")),
        ({"status": "dead", "reason": "exhausted"}, (503, "busy")),
        ({"status": "failed"}, (503, "busy")),
        ({"attempts": 2}, (503, "busy")),
    ],
)
@pytest.mark.parametrize("ends", [None, ValueError(), Skip(), GiveUp(), RetryLater(9)])
def test_e3_the_late_finish_is_answered_from_the_row(post, handler, row, told, ends):
    @handler("stripe", "*", name="h", atomic=False)
    def slow(event):
        WebhookReceipt.objects.update(**row)
        if ends:
            raise ends

    assert answer(post("stripe", EVENT)) == told
    kept = WebhookReceipt.objects.values(*row).get()
    assert kept == row
    assert attempt().outcome == "fenced"


@committing
def test_a_take_over_by_somebody_else_undoes_the_running_handler(post, scripted):
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nobody else can take over")

    def take_over():
        elsewhere = connections["default"].copy()
        with elsewhere.cursor() as cursor:
            cursor.execute(f"UPDATE {WebhookReceipt._meta.db_table} SET attempts = 2, status = 'processed'")
        elsewhere.close()

    scripted(take_over)
    assert answer(post("stripe", EVENT)) == (200, "duplicate")
    assert (effects(), receipt().attempts) == ([], 2)


@committing
@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_process_that_must_stop_lets_go_at_once(post, scripted, error, atomic):
    scripted(error, atomic=atomic)
    with pytest.raises(type(error)):
        post("stripe", EVENT)
    assert (receipt().status, receipt().attempts) == ("processing", 1)
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == (["h2"] if atomic else ["h1", "h2"])


@committing
def test_a_stop_is_not_hidden_by_a_database_that_is_away(post, scripted, monkeypatch):
    def away(*args):
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(statements, "let_go", away)
    scripted(SystemExit())
    with pytest.raises(SystemExit):
        post("stripe", EVENT)
    assert receipt().status == "processing"


@committing
def test_e4_work_that_was_done_and_not_marked_is_undone(post, scripted, monkeypatch):
    def crash(*args, **kwargs):
        raise SystemExit

    scripted()
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(statements, "close", crash)
        post("stripe", EVENT)
    assert effects() == []
    assert answer(post("stripe", EVENT)) == (200, "processed")
    assert effects() == ["h2"]


@committing
@pytest.mark.parametrize("others", [0, 1])
def test_a_commit_whose_answer_is_lost_is_answered_from_the_row(post, scripted, monkeypatch, others):
    commit, lost = connection.commit, []

    def commit_then_fail():
        commit()
        if not lost and effects():
            lost.append(True)
            raise OperationalError("server closed the connection unexpectedly")

    scripted()
    if others:
        scripted(name="i")
    monkeypatch.setattr(connection, "commit", commit_then_fail)
    assert post("stripe", EVENT).status_code == 200
    monkeypatch.undo()
    assert lost
    assert receipt().status == "processed"
    assert effects() == ["h1", "i1"][: 1 + others]


@committing
def test_a_database_that_goes_away_at_the_end_leaves_the_lease(post, scripted, monkeypatch):
    scripted(ValueError())

    def away(*args, **kwargs):
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(statements, "fail", away)
        assert answer(post("stripe", EVENT)) == (503, "unavailable")
    assert receipt().status == "processing"
    lease_is_out()
    assert answer(post("stripe", EVENT)) == (200, "processed")


# -- other doors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "runs"),
    [
        ({"status": "received"}, True),
        ({"status": "failed", "due_at": -1}, True),
        ({"status": "failed", "due_at": 60}, False),
        ({"status": "processing", "lease_until": 60}, False),
        ({"status": "processing", "lease_until": -1}, True),
        ({"status": "processed"}, False),
        ({"status": "dead", "reason": "exhausted"}, False),
        ({"status": "quarantined"}, False),
        ({"status": "ignored"}, False),
        ({"status": "discarded"}, False),
    ],
)
def test_e2_a_run_begins_only_what_is_due(post, scripted, row, runs):
    scripted()
    post("stripe", EVENT)
    moments = {name: timezone.now() + timedelta(seconds=row[name]) for name in row if isinstance(row[name], int)}
    WebhookReceipt.objects.update(last_handler="", **{**row, **moments})
    run = processing.run(receipt().pk, "sweeper")
    assert (run is not None, receipt().attempts) == (runs, 1 + runs)


def test_a_receipt_that_is_gone_or_not_ours_is_left_alone(post, scripted, sources):
    assert processing.run(4711, "sweeper") is None
    scripted(ValueError())
    post("stripe", EVENT)
    make_due()
    sources(stripe=None)
    assert processing.run(receipt().pk, "sweeper") is None
    assert receipt().status == "failed"


def test_a_run_whose_lease_somebody_else_took_does_nothing(post, scripted, monkeypatch):
    scripted(ValueError())
    post("stripe", EVENT)
    make_due()
    monkeypatch.setattr(statements, "lease", lambda *args: False)
    assert processing.run(receipt().pk, "sweeper") is None


def test_j7_a_retry_asks_for_neither_key_nor_window(post, scripted, sources):
    scripted(ValueError())
    post("stripe", EVENT, at=int(time.time()) - 290)
    make_due()
    sources(stripe={"SECRETS": ["whsec_another0123456789abcd"], "TOLERANCE": 1})
    assert processing.run(receipt().pk, "sweeper").status == "processed"
    assert effects() == ["h2"]


def test_a_retry_runs_while_the_source_has_no_usable_secret(post, scripted, sources):
    scripted(ValueError())
    post("stripe", EVENT)
    make_due()
    sources(stripe={"SECRETS": []})
    assert processing.run(receipt().pk, "sweeper").status == "processed"


def test_a_later_run_gets_the_same_event(post, handler):
    seen = []

    @handler("partner", "*", name="h")
    def look(event):
        seen.append(event)
        if event.attempt == 1:
            raise ValueError

    post("partner", {"type": "x", "n": 1}, key="k")
    make_due()
    processing.run(receipt().pk, "sweeper")
    first, second = seen
    names = "source tenant event_id event_type object_key occurred_at signed_at body headers key_id receipt_id signed"
    assert [getattr(first, name) for name in names.split()] == [getattr(second, name) for name in names.split()]
    assert first.data == second.data
    assert abs(first.received_at - second.received_at) < timedelta(milliseconds=1)


@pytest.fixture
def renaming(handler):
    """A deploy that renames the handler ``old`` to ``new``, beside a handler that fails until the end."""
    runs, failing = [], [True]

    def work(event):
        runs.append(event.attempt)

    def flaky(event):
        if failing:
            raise ValueError

    def become(name):
        unregister(work)
        handler("stripe", "*", name=name, formerly="old" if name == "new" else ())(work)

    handler("stripe", "*", name="flaky")(flaky)
    become.runs, become.failing = runs, failing
    return become


@pytest.mark.parametrize("order", ["old new old new", "new old new old", "new old old new", "old new new old new"])
def test_while_a_deploy_renames_a_handler_it_runs_once(post, renaming, order):
    """Whichever process has the next attempt: a worker, or a web process that takes over with a redelivery."""
    for number, name in enumerate(order.split()):
        renaming(name)
        if number % 2:
            post("stripe", EVENT)
        else:
            WebhookReceipt.objects.update(due_at=timezone.now())
            post("stripe", EVENT) if not number else processing.run(receipt().pk, "sweeper")
        WebhookReceipt.objects.update(due_at=timezone.now())
    renaming.failing.clear()
    renaming("new")
    processing.run(receipt().pk, "sweeper")
    assert receipt().status == "processed"
    assert len(renaming.runs) == 1


def test_a_process_that_does_not_know_a_kept_name_runs_no_other_handler_that_the_receipt_does_not_keep(post, handler):
    runs = []
    handler("stripe", "*", name="new")(work := lambda event: runs.append(1) or 1 / 0)
    post("stripe", EVENT)
    unregister(work)
    handler("stripe", "*", name="old")(lambda event: runs.append("doubled"))
    WebhookReceipt.objects.update(due_at=timezone.now())
    assert processing.run(receipt().pk, "sweeper").status == "failed"
    assert runs == [1]
    assert receipt().handlers == ["new"]
    assert "no handler here for new" in WebhookAttempt.objects.latest("pk").message

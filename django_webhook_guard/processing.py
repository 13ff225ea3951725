"""One attempt: run the open handlers of a leased receipt, and record how they ended.

First run, sender's retry, sweeper and admin all come through here. The order inside an atomic handler's
transaction is handler, checkpoint, fence: a fence at the start would hold the receipt's row for the handler's
whole run, and then even the inserts of copies wait on it.
"""

import logging
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import uniform
from typing import Any

from django.db import Error, connections
from django.utils import timezone

from django_webhook_guard import leases, ordering, statements, watching
from django_webhook_guard.conf import receipts_alias, source_of
from django_webhook_guard.events import Reply, WebhookEvent, announce, bury, lease_seconds, marks, owed
from django_webhook_guard.exceptions import EffectUnknown, GiveUp, LeaseLost, NoHandlerHere, RetryLater, Skip
from django_webhook_guard.handlers import Handler
from django_webhook_guard.leases import AlreadyDone, Lease, lease_of
from django_webhook_guard.models import WebhookCheckpoint, WebhookReceipt
from django_webhook_guard.pausing import is_paused
from django_webhook_guard.recording import Failure, failing_name, insert_attempt, kept, message_of, record
from django_webhook_guard.running import HandlerRun
from django_webhook_guard.signals import webhook_dead, webhook_failed, webhook_processed
from django_webhook_guard.statements import Row
from django_webhook_guard.transactions import (
    committed,
    durable,
    is_conflict,
    is_connection_lost,
    is_sqlite_lock,
    repeated,
)

__all__ = ["Lease", "Run", "carry_out", "lease_of", "run"]

logger = logging.getLogger("django_webhook_guard")
handlers_logger = logging.getLogger("django_webhook_guard.handlers")

#: Seconds until a receipt is looked at again that a person has paused.
PAUSED = 60
#: How often an atomic handler's transaction is repeated after a deadlock, serialization failure or SQLite lock.
HANDLER_REPEATS = 3
#: The shortest wait until a next attempt, in seconds: ``RetryLater(0)`` must not keep a worker busy with one event.
MIN_WAIT = 1
#: The longest wait until a next attempt, in seconds: what is further away no database can add to its clock.
MAX_WAIT = 3_650 * 86_400


class _Superseded(Exception):
    """A handler has seen a newer version of the event's object."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """How an attempt ended.

    Args:
        decision: ``processed``, ``ignored``, ``failed``, ``retry_later``, ``gave_up``; ``unavailable`` where the
            database went away under the handlers; or, where another attempt took over, what the row says now:
            ``duplicate`` or ``busy``.
        status: The receipt's status.
        retry_after: Seconds until the next attempt, where there is one.
        reply: What a handler answers.
        reason: The code that a dead receipt has.
    """

    decision: str
    status: str
    retry_after: float | None = None
    reply: Reply | None = None
    reason: str = ""


@dataclass
class _Progress:
    """What one attempt has found out so far."""

    marks: dict[str, str]
    failures: list[Failure] = field(default_factory=list)
    afterthoughts: list[Failure] = field(default_factory=list)
    closed: Run | None = None
    reply: Reply | None = None

    @property
    def kept_reply(self) -> str | None:
        """The form in which the receipt keeps the reply; None where there is none."""
        return self.reply.kept() if self.reply is not None else None

    def reply_in(self, result: Any) -> Reply | None:
        """Return a handler's reply, unless another handler has answered before."""
        return result if isinstance(result, Reply) and self.reply is None else None


# -- doors -------------------------------------------------------------------------------------------------------------


def run(receipt_id: int, trigger: str, actor: str = "") -> Run | None:
    """Run a receipt that is due: received, failed and due, or left behind by a run whose lease is out.

    Args:
        receipt_id: The receipt.
        trigger: ``sweeper``, ``worker`` or ``admin``.
        actor: Who asked for it, as text.

    Returns:
        How it ended; None where it is gone, not due, paused, not this process's, or somebody was faster.

    Raises:
        RuntimeError: There is an outer transaction.
        django.db.OperationalError: The database is away.
    """
    using = receipts_alias()
    row = statements.read_by_id(using, receipt_id)
    source = source_of(row.source) if row is not None else None
    if row is None or source is None or not _may_run(row):
        return None
    # One that is received and has used its budget was dead, and a delivery asked for one more attempt.
    if row.used >= source.retry.max_attempts and row.status != "received":
        return Run(decision="failed", status="dead", reason="exhausted") if bury(using, row) else None
    handlers = owed(source.name, row.event_type, row.handlers)
    if is_paused(source, handlers):
        with committed(using):
            statements.postpone(using, receipt_id, PAUSED)
        return None
    seconds = lease_seconds(handlers, source)
    names = tuple(dict.fromkeys((*row.handlers, *(handler.name for handler in handlers))))

    def take() -> bool:
        with committed(using):
            return statements.lease(using, row, seconds, names)

    if not repeated(take):
        return None
    return carry_out(lease_of(row, source, using, seconds, names, trigger, actor))


def carry_out(lease: Lease, event: WebhookEvent | None = None) -> Run:
    """Run every open handler of a leased receipt, and finish or fail it.

    Args:
        lease: The lease, held by this process.
        event: The event where it is at hand; else it is read from the receipt.

    Raises:
        django.db.OperationalError: The database is away; the lease then runs out by itself.
    """
    started_at, clock = timezone.now(), time.monotonic()
    try:
        if event is None:
            receipt = WebhookReceipt.objects.using(lease.using).get(pk=lease.receipt_id)
            event = WebhookEvent.stored(receipt, lease.source, lease.attempt)
        with watching.attempt(event) if watching.around else nullcontext():
            progress = _run_open(lease, event)
        ended = progress.closed or repeated(lambda: _finish(lease, progress, started_at, clock))
    except LeaseLost:
        return _fenced_out(lease, started_at, clock)
    except BaseException as error:
        if not isinstance(error, Exception):
            _release(lease)
        raise
    if ended.status == "processed":
        ended = replace(ended, reply=progress.reply)
    if progress.closed is not None and (lease.attempt > 1 or progress.afterthoughts):
        record(lease, ended.status, progress.afterthoughts, started_at, clock)
    _tell(lease, ended, progress)
    return ended


def _may_run(row: Row) -> bool:
    if row.status == "received":
        return True
    if row.status == "failed":
        return row.overdue or row.reason == "woken"
    return row.status == "processing" and not row.leased


# -- handlers ----------------------------------------------------------------------------------------------------------


def _run_open(lease: Lease, event: WebhookEvent) -> _Progress:
    handlers, unknown = _handlers_of(lease)
    away: dict[str, Exception] = {}
    earlier = _marks(lease, handlers, away) if lease.attempt > 1 else {}
    progress = _Progress(marks=earlier, reply=Reply.of(lease.reply))
    todo = [handler for handler in handlers if not progress.marks.keys() & set(handler.names)]
    for handler in [each for each in todo if each.using in away]:
        todo.remove(handler)  # whether it is done cannot be known; the others go on
        _failed(handler, away[str(handler.using)], progress)
    unknown = [name for name in unknown if name not in progress.marks]
    try:
        for number, handler in enumerate(todo, start=1):
            last = number == len(todo) and not progress.failures and not unknown
            started = time.monotonic()
            _run_handler(lease, handler, event if number == 1 else event.fresh(), progress, last=last)
            how = progress.marks.get(handler.name, "failed")
            watching.tell(watching.runs, lease.source.name, handler.name, how, time.monotonic() - started)
    finally:
        _log(lease, progress)
    return progress


def _handlers_of(lease: Lease) -> tuple[list[Handler], list[str]]:
    """Return the handlers that the receipt waits for, in order, and the names that this process does not know."""
    handlers = owed(lease.source.name, lease.event_type, lease.names)
    known = {name for handler in handlers for name in handler.names}
    return handlers, [name for name in lease.names if name not in known]


def _marks(lease: Lease, handlers: Iterable[Handler], unreadable: dict[str, Exception]) -> dict[str, str]:
    return marks(lease.fingerprint, handlers, lease.using, lease.last_handler, unreadable)


def _run_handler(lease: Lease, handler: Handler, event: WebhookEvent, progress: _Progress, *, last: bool) -> None:
    running = HandlerRun(lease, handler)
    try:
        if event.expired:
            raise GiveUp("The body has expired (RETENTION): there is nothing left to hand to the handler.")
        event = event.bound(running, handler.fetched(event))
        if handler.atomic:
            _run_atomic(lease, handler, event, progress, last=last)
        else:
            _run_outside(lease, running, event, progress)
    except Skip as skip:
        _end(lease, handler, "skipped", skip, progress)
    except _Superseded as stale:
        _end(lease, handler, "superseded", stale, progress)
    except GiveUp as giving_up:
        _end(lease, handler, "gave_up", giving_up, progress)
        _failed(handler, giving_up, progress)
    except AlreadyDone:
        progress.marks[handler.name] = "done"
    except LeaseLost:
        raise
    except Exception as error:
        _failed(handler, error, progress)


def _call(handler: Handler, event: WebhookEvent) -> Any:
    if ordering.is_stale(handler, event):
        raise _Superseded("a newer version was seen")
    return handler.call(event)


def _run_outside(lease: Lease, running: HandlerRun, event: WebhookEvent, progress: _Progress) -> None:
    """Run a handler that has no transaction around it; its checkpoint follows, unless it wrote that one itself."""
    handler, result = running.handler, None
    try:
        result = _call(handler, event)
    except LeaseLost:
        raise
    except Exception as error:
        if running.unknown is not None:
            raise running.unknown from error
        if not running.committed:
            raise
        _afterthought(lease, handler, error, progress)
    if running.unknown is not None:
        raise running.unknown  # whatever the handler made of it
    text, reply = kept(lease, result), progress.reply_in(result)
    if not running.committed:
        repeated(lambda: leases.checkpoint(lease, handler, "done", text, reply))
    else:
        if reply is not None:
            _keep_reply(lease, reply)
        if text:
            _set_result(lease, running, text)
    progress.reply = progress.reply or reply
    progress.marks[handler.name] = "done"


def _keep_reply(lease: Lease, reply: Reply) -> None:
    """Keep what a handler answers whose own transaction has ended, so that it outlives this process."""

    def keep() -> None:
        with committed(lease.using):
            leases.fence(lease, reply)

    repeated(keep)


def _set_result(lease: Lease, running: HandlerRun, text: str) -> None:
    try:
        with committed(running.using):
            rows = WebhookCheckpoint.objects.using(running.using)
            rows.set_result(lease.fingerprint, running.handler.name, text)
    except Error as error:
        logger.warning("webhook receipt %s: a result could not be kept (%s)", lease.receipt_id, type(error).__name__)


def _afterthought(lease: Lease, handler: Handler, error: Exception, progress: _Progress) -> None:
    progress.afterthoughts.append(Failure(handler.name, error))
    handlers_logger.error(
        "webhook handler %s of source %s failed after its commit, which stands",
        handler.name, lease.source.name, exc_info=error,
    )  # fmt: skip


def _failed(handler: Handler, error: Exception, progress: _Progress) -> None:
    progress.failures.append(Failure(handler.name, error))


def _end(lease: Lease, handler: Handler, mark: str, error: Exception, progress: _Progress) -> None:
    """Write down that a handler ended without doing its work, unless another attempt's word for it is there."""
    text = kept(lease, message_of(error))
    with suppress(AlreadyDone):
        repeated(lambda: leases.checkpoint(lease, handler, mark, text))
    progress.marks[handler.name] = mark


def _run_atomic(lease: Lease, handler: Handler, event: WebhookEvent, progress: _Progress, *, last: bool) -> None:
    """Run a handler in its fenced transaction, again after a conflict with another transaction."""
    using = handler.using or lease.using
    # The receipt keeps the mark of one handler: where it has one from an earlier attempt, a checkpoint is written.
    closes = last and using == lease.using and not lease.last_handler
    for left in range(HANDLER_REPEATS, -1, -1):
        complete = False
        try:
            with durable(using):
                if connections[using].vendor == "sqlite" and using == lease.using:
                    leases.fence(lease)  # a transaction that writes first waits for SQLite's lock instead of failing
                result = _call(handler, event)
                text, reply = kept(lease, result), progress.reply_in(result)
                if closes:
                    closed = _close_with(lease, handler, text, reply, progress)
                else:
                    leases.mark(lease, handler, "done", text, using, reply)
                complete = True
        except (LeaseLost, AlreadyDone, _Superseded):
            raise
        except Exception as error:
            if complete and leases.is_committed(lease, handler, using):
                _afterthought(lease, handler, error, progress)
            elif left and (is_conflict(error) or is_sqlite_lock(error)):
                time.sleep(uniform(0.005, 0.05))  # noqa: S311 - spreads load, no secret
                event = event.fresh()
                continue
            else:
                raise
        progress.marks[handler.name] = "done"
        progress.reply = progress.reply or reply
        if closes:
            progress.closed = closed
        return


def _close_with(lease: Lease, handler: Handler, result: str, reply: Reply | None, progress: _Progress) -> Run:
    """Close the receipt inside the last handler's transaction: fence and mark in one statement."""
    status, reason = _verdict([*progress.marks.values(), "done"])
    if not statements.close(
        lease.using, lease.receipt_id, lease.attempt,
        status=status, reason=reason, result=result, last_handler=handler.name,
        reply=reply.kept() if reply is not None else None,
    ):  # fmt: skip
        raise LeaseLost
    return _closed(status, reason)


def _closed(status: str, reason: str) -> Run:
    return Run(decision="gave_up" if status == "dead" else status, status=status, reason=reason)


# -- the end of an attempt ---------------------------------------------------------------------------------------------


def _verdict(marks: Iterable[str]) -> tuple[str, str]:
    """Return status and reason of a receipt whose handlers have all ended."""
    found = set(marks)
    if "gave_up" in found:
        return "dead", "gave_up"
    if "done" in found:
        return "processed", ""
    return "ignored", "superseded" if "superseded" in found else "skipped"


def _finish(lease: Lease, progress: _Progress, started_at: datetime, clock: float) -> Run:
    """Close the receipt if nothing is open, else record the failure; decided by the stored checkpoints."""
    handlers, unknown = _handlers_of(lease)
    away: dict[str, Exception] = {}
    marks = _marks(lease, handlers, away)
    still_open = [handler for handler in handlers if not marks.keys() & set(handler.names)]
    told = {failure.handler for failure in progress.failures}
    for handler in still_open:
        if handler.using in away and handler.name not in told:
            _failed(handler, away[handler.using], progress)
    missing = [name for name in unknown if name not in marks]
    with durable(lease.using):
        if marks and not still_open and not missing:
            status, reason = _verdict(marks.values())
            if not statements.close(
                lease.using, lease.receipt_id, lease.attempt, status=status, reason=reason, reply=progress.kept_reply
            ):
                raise LeaseLost
            ended = _closed(status, reason)
        else:
            ended = _fail(lease, progress, missing)
        if lease.attempt > 1 or progress.failures or progress.afterthoughts:
            failures = [*progress.failures, *progress.afterthoughts]
            insert_attempt(lease, ended.status, failures, started_at, clock)
    return ended


def _fail(lease: Lease, progress: _Progress, missing: list[str]) -> Run:
    failed = [each.error for each in progress.failures if not isinstance(each.error, GiveUp)]
    if not failed:
        names = ", ".join(missing) or lease.event_type
        error = NoHandlerHere(f"no handler here for {names}: deploy it, or discard the receipt")
        progress.failures.append(Failure(missing[0] if missing else "", error))
        handlers_logger.error("webhook receipt %s: %s", lease.receipt_id, error)
        failed = [error]
    if any(isinstance(error, EffectUnknown) for error in failed):
        return _die(lease, progress, "gave_up", "effect_unknown")
    later = [error for error in failed if isinstance(error, RetryLater)]
    excused = len(later) == len(failed)
    policy = lease.source.retry
    if policy.exhausted(used=lease.used - excused, age=lease.budget_age):
        return _die(lease, progress, "failed", "exhausted")
    asked = [error.after for error in later if error.after is not None]
    wait = policy.delay(lease.used)
    if excused:
        # Attempts that do not count give no backoff: without after=, wait as long as it has taken so far.
        wait = max(asked) if asked else max(wait, min(lease.budget_age, policy.max_delay))
    wait = min(max(wait, MIN_WAIT), MAX_WAIT)
    if not statements.fail(
        lease.using, lease.receipt_id, lease.attempt,
        wait=wait, reason="retry_later" if excused else "", excuse=excused, reply=progress.kept_reply,
    ):  # fmt: skip
        raise LeaseLost
    if all(is_connection_lost(error) for error in failed):
        return Run(decision="unavailable", status="failed")  # no fault of a handler's
    return Run(decision="retry_later" if excused else "failed", status="failed", retry_after=wait)


def _die(lease: Lease, progress: _Progress, decision: str, reason: str) -> Run:
    if not statements.close(
        lease.using, lease.receipt_id, lease.attempt, status="dead", reason=reason, reply=progress.kept_reply
    ):
        raise LeaseLost
    return Run(decision=decision, status="dead", reason=reason)


def _fenced_out(lease: Lease, started_at: datetime, clock: float) -> Run:
    """Answer for a run that lost its lease from the row as it is now."""
    logger.warning(
        "webhook receipt %s: attempt %s lost its lease, what it did was rolled back; LEASE may be too short",
        lease.receipt_id,
        lease.attempt,
    )
    record(lease, "fenced", [], started_at, clock)
    row = statements.read_by_id(lease.using, lease.receipt_id)
    if row is None:  # somebody deleted it: nothing is held, so the sender must come again
        return Run(decision="busy", status="", retry_after=1)
    if row.status in ("processed", "ignored", "discarded"):
        reply = Reply.of(row.reply) if row.status == "processed" else None
        return Run(decision="duplicate", status=row.status, reply=reply)
    if row.status == "dead" and row.reason != "exhausted":
        return Run(decision="duplicate", status=row.status)
    wait = row.lease_left if row.status == "processing" else row.due_in
    return Run(decision="busy", status=row.status, retry_after=max(wait or 0, 1))


def _release(lease: Lease) -> None:
    """Let the receipt go when the process is told to stop in the middle of a run."""
    try:
        with committed(lease.using):
            statements.let_go(lease.using, lease.receipt_id, lease.attempt)
    except Error:
        logger.warning("webhook receipt %s: the lease could not be released, it will run out", lease.receipt_id)


# -- what is written down and told -------------------------------------------------------------------------------------


def _log(lease: Lease, progress: _Progress) -> None:
    """Write one record for an attempt that failed, with the tracebacks of all that did."""
    failures = [each for each in progress.failures if not isinstance(each.error, RetryLater)]
    for each in progress.failures:
        if isinstance(each.error, RetryLater):
            handlers_logger.info("webhook handler %s of source %s asked to run later", each.handler, lease.source.name)
    if not failures:
        return
    names = ", ".join(failing_name(each.handler, each.error) for each in failures)
    error = failures[0].error
    if len(failures) > 1:
        error = ExceptionGroup("several webhook handlers failed", [each.error for each in failures])
    handlers_logger.error(
        "webhook handler %s of source %s failed: receipt %s, attempt %s",
        names, lease.source.name, lease.receipt_id, lease.attempt,
        exc_info=error,
        extra={
            "source": lease.source.name, "event_type": lease.event_type, "receipt_id": lease.receipt_id,
            "attempt": lease.attempt, "handler": names, "trigger": lease.trigger,
        },
    )  # fmt: skip


def _tell(lease: Lease, ended: Run, progress: _Progress) -> None:
    """Tell onlookers how the attempt ended."""
    about: dict[str, Any] = {
        "receipt_id": lease.receipt_id, "source": lease.source.name, "event_type": lease.event_type,
    }  # fmt: skip
    if ended.status == "processed":
        announce(webhook_processed, **about)
    if progress.failures:
        announce(webhook_failed, attempt=lease.attempt, error=progress.failures[0].error, **about)
    if ended.status == "dead":
        announce(webhook_dead, reason=ended.reason, **about)

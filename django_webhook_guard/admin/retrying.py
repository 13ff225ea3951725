"""What a person asks for: once for what the page showed, and runs never inside the request's transaction."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import Error, transaction
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from django_webhook_guard import operations, processing, sweeper
from django_webhook_guard.models import WebhookReceipt

logger = logging.getLogger("django_webhook_guard")

#: How many receipts are run inside one request, and for how many seconds a request may go on.
RUNS = 20
SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Act:
    """Something that a person may do to receipts.

    Args:
        name: The operation's, also its permission's and its address's.
        possible: Whether a receipt is in a state for it.
        runs: Whether the receipt is run afterwards, which takes its source.
        operation: What is called with the receipt, ``actor`` and ``reason``; None: the operation of that name.
    """

    name: str
    possible: Callable[[WebhookReceipt], bool]
    runs: bool = True
    operation: Callable[..., bool] | None = None

    def __call__(self, receipt: WebhookReceipt, *, actor: str, reason: str) -> bool:
        """Do it to one receipt; returns whether it was done by this call."""
        operation: Callable[..., bool] = self.operation or getattr(operations, self.name)
        return operation(receipt, actor=actor, reason=reason)


RETRY = Act(name="retry", possible=lambda receipt: receipt.retryable)
RELEASE = Act(name="release", possible=lambda receipt: receipt.releasable)
DISCARD = Act(name="discard", possible=lambda receipt: receipt.discardable, runs=False)
ACTS = (RETRY, RELEASE, DISCARD)
#: These have a page of their own, which asks which handlers, and which effects.
RERUN = Act(name="rerun", possible=lambda receipt: receipt.rerunnable)
SETTLE = Act(name="settle", possible=lambda receipt: receipt.retryable)


def rerun_of(handlers: Sequence[str]) -> Act:
    """Return the act that has some handlers run again."""
    return replace(RERUN, operation=partial(_rerun, handlers))


def _rerun(handlers: Sequence[str], receipt: WebhookReceipt, *, actor: str, reason: str) -> bool:
    return operations.rerun(receipt, handlers, actor=actor, reason=reason)


def settle_of(handler: str, name: str, *, happened: bool, result: Any) -> Act:
    """Return the act that says what became of an effect."""
    return replace(
        SETTLE, operation=partial(operations.settle, handler=handler, name=name, happened=happened, result=result)
    )


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page showed when it was made; it comes back with the page's form.

    Args:
        rows: Number → status and attempt number.
        at: When, by the database's clock; None for a page of one receipt.
    """

    rows: Mapping[int, tuple[str, int]]
    at: datetime | None = None

    def still_true(self, receipt: WebhookReceipt) -> bool:
        """Tell whether a receipt is as it was shown.

        One that stands on no page, in a selection of all, must not have been retried since.
        """
        row = self.rows.get(receipt.pk)
        if row is not None:
            return row == (receipt.status, receipt.attempts)
        return self.at is not None and receipt.budget_from < self.at


def read_shown(rows: Iterable[str], moments: Iterable[str] = ()) -> Shown:
    """Read what a form sends back; what cannot be read was not shown."""
    found: dict[int, tuple[str, int]] = {}
    for row in rows:
        number, _first, rest = row.partition(":")
        status, _second, attempts = rest.partition(":")
        if _is_count(number) and _is_count(attempts):
            found[int(number)] = (status, int(attempts))
    return Shown(rows=found, at=max(filter(None, map(moment, moments)), default=None))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def moment(text: str) -> datetime | None:
    """Read a moment that a form sends back; None where it cannot be read."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if timezone.is_aware(found) else None


def row_shown(receipt: WebhookReceipt) -> str:
    """Return what a form says about a receipt that it shows."""
    return f"{receipt.pk}:{receipt.status}:{receipt.attempts}"


@dataclass(kw_only=True)
class Report:
    """What became of a person's wish.

    Args:
        done: Receipts to which this request did it.
        moved_on: How many are not any more what the page showed.
        closed: How many are in no state for it.
        homeless: Names of sources that this process does not have, with the number of their receipts.
        refused: To how many the person may not do it.
        failed: How many could not be written.
        unreached: How many were not looked at, because time was up.
        ran: Status → how many runs ended in it; None → somebody else was faster.
        woken: For how many a worker was woken, because their source is deferred.
        broken: How many runs could not be begun or ended.
        over: Whether the runs are over; they are not yet where the request has a transaction.
    """

    done: list[int] = field(default_factory=list)
    moved_on: int = 0
    closed: int = 0
    homeless: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    failed: int = 0
    unreached: int = 0
    ran: Counter[str] = field(default_factory=Counter)
    woken: int = 0
    broken: int = 0
    over: bool = False

    @property
    def waiting(self) -> int:
        """How many of those that should run are left to the sweeper."""
        return len(self.done) - sum(self.ran.values()) - self.woken


def do_all(
    act: Act,
    receipts: Sequence[WebhookReceipt],
    *,
    shown: Shown,
    actor: str,
    reason: str,
    allowed: Callable[[WebhookReceipt], bool],
    audit: Callable[[WebhookReceipt], Any],
    using: str,
) -> Report:
    """Do something to receipts that are as they were shown, and run the first of them once that is committed.

    Each is a transaction of its own together with its audit entry; one that fails does not stop the others.

    Args:
        act: What.
        receipts: The receipts as they are now.
        shown: What the person saw.
        actor: Who, as text.
        reason: Why.
        allowed: Whether the person may do it to a receipt.
        audit: Writes who did what to a receipt.
        using: The receipts' database alias.
    """
    report = Report()
    deadline = time.monotonic() + SECONDS
    for position, receipt in enumerate(receipts):
        if time.monotonic() > deadline:
            report.unreached = len(receipts) - position
            break
        if _may_go(act, receipt, shown, allowed, report):
            _do(act, receipt, actor, reason, audit, report, using)
    if report.done and act.runs:
        transaction.on_commit(partial(_run_all, report, actor, deadline), using=using, robust=True)
    return report


def _may_go(
    act: Act, receipt: WebhookReceipt, shown: Shown, allowed: Callable[[WebhookReceipt], bool], report: Report
) -> bool:
    if not allowed(receipt):
        report.refused += 1
    elif not shown.still_true(receipt):
        report.moved_on += 1
    elif not act.possible(receipt):
        report.closed += 1
    elif act.runs and not operations.runnable(receipt):
        report.homeless[receipt.source] += 1
    else:
        return True
    return False


def _do(
    act: Act,
    receipt: WebhookReceipt,
    actor: str,
    reason: str,
    audit: Callable[[WebhookReceipt], Any],
    report: Report,
    using: str,
) -> None:
    try:
        with transaction.atomic(using=using):
            done = act(receipt, actor=actor, reason=reason)
            if done:
                audit(receipt)
    except (Error, ConnectionDoesNotExist):
        logger.exception("webhook receipt %s: %s could not be written", receipt.pk, act.name)
        report.failed += 1
        return
    if done:
        report.done.append(receipt.pk)
    else:
        report.moved_on += 1


def _run_all(report: Report, actor: str, deadline: float) -> None:
    """Run what was made due, within bounds, or wake workers for it; the sweeper brings the rest."""
    for receipt_id in report.done[:RUNS]:
        if time.monotonic() > deadline:
            break
        try:
            woken = sweeper.handed_over(receipt_id)
            if woken is not None:
                report.woken += woken
                continue
            run = processing.run(receipt_id, "admin", actor)
        except Exception:
            logger.exception("webhook receipt %s is due and could not be run", receipt_id)
            report.broken += 1
            continue
        report.ran[run.status if run is not None else ""] += 1
    report.over = True

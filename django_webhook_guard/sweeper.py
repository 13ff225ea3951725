"""Bring whatever is due, of every source that this process knows: run it, or wake a worker for it.

Any number of sweepers may run at once: one conditional UPDATE decides who runs, or wakes, on every database alike.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Literal, Protocol

from django.db import DatabaseError, Error, InterfaceError, close_old_connections, connections, reset_queries

from django_webhook_guard import alerts, bulk, dispatchers, pausing, processing, statements
from django_webhook_guard.conf import names_of, receipts_alias, runnable_names, source_of
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.processing import Run
from django_webhook_guard.sources import Source
from django_webhook_guard.transactions import committed, is_connection_lost, repeated

logger = logging.getLogger("django_webhook_guard")

#: Seconds until a receipt is tried again that could not even be leased.
POSTPONED = 60
#: Seconds that ``forever`` waits while nothing is due, and after an error of the database.
IDLE = 1.0
AFTER_ERROR = 5.0

#: Seconds between two looks of ``forever`` at what needs a person.
LOOK = 60.0

Report = Callable[[int, Run], None]


class Stop(Protocol):
    """Something that is set when a sweeper must end."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> object: ...


def sweep(
    *,
    batch: int = 100,
    source: str | None = None,
    report: Report | None = None,
    stop: Stop | None = None,
) -> Counter[str]:
    """Make one pass over the receipts that are due: received, failed, or left behind by a run that died.

    Before it, bulk actions go one step further.

    Several passes may run at once: the lease decides who runs what.

    Args:
        batch: How many receipts at most.
        source: Only this source's, those under its former names included.
        report: Called with number and end of each run.
        stop: Ends the pass between two receipts.

    Returns:
        How many runs ended in which status; ``woken``: for how many a worker was woken; ``postponed``: how many
        could not be run; ``elsewhere``: how many another process was faster with.

    Raises:
        django.db.Error: The database is away.
    """
    using = receipts_alias()
    _advance_bulk()
    names = _names(source)
    rest = _due(using, names, batch)[::-1]
    counts: Counter[str] = Counter()
    while rest and (stop is None or not stop.is_set()):
        receipt_id, stored = rest.pop()
        ended = _bring(using, receipt_id, source_of(stored), report)
        counts[ended] += 1
        if ended == "elsewhere":
            random.shuffle(rest)  # somebody goes through the same list: alone it keeps its order, together it is shared
    return counts


def _advance_bulk() -> None:
    """Let what people asked for make receipts due; an error in it stops no sweep."""
    try:
        bulk.advance()
    except Exception as error:
        if is_connection_lost(error):
            raise
        logger.exception("webhook bulk actions could not go on")


def sweep_all(*, batch: int = 100, source: str | None = None, report: Report | None = None) -> Counter[str]:
    """Make passes until one finds less than it may take: what piled up is brought by one call.

    A receipt that becomes due again meanwhile is not waited for.

    Args:
        batch: How many receipts a pass looks at.
        source: Only this source's.
        report: Called with number and end of each run.

    Returns:
        The sum of all passes, as ``sweep`` gives it.

    Raises:
        django.db.Error: The database is away.
    """
    totals: Counter[str] = Counter()
    for _ in range(_due_now(source) // batch + 1):
        counts = sweep(batch=batch, source=source, report=report)
        totals += counts
        if counts.total() < batch:
            break
    return totals


def handed_over(receipt_id: int) -> bool | None:
    """Leave a receipt that was made due to the workers of its source, where it is deferred.

    Args:
        receipt_id: The receipt.

    Returns:
        Whether a worker was woken for it, by this call or another; None where the source is not deferred, so that
        it may be run here.
    """
    using = receipts_alias()
    row = statements.read_by_id(using, receipt_id)
    source = source_of(row.source) if row is not None else None
    if source is None or not source.deferred:
        return None
    return _woken(using, receipt_id) != "here"


def _names(source: str | None) -> list[str]:
    """Return the stored source names whose receipts may run: without those that a person has paused."""
    names = runnable_names() if source is None else names_of(source)
    paused = pausing.paused_sources()
    if not paused:
        return names
    return [name for name in names if (found := source_of(name)) is not None and found.name not in paused]


def _due(using: str, names: Sequence[str], batch: int) -> list[tuple[int, str]]:
    """Return numbers and stored sources of receipts that are due.

    Names are compared here once more: MariaDB's comparison makes no difference between ``Shop`` and ``shop``, and
    another project's receipts would stand in front of ours for ever.
    """
    rows = WebhookReceipt.objects.using(using).due().filter(source__in=names).values_list("pk", "source")
    found: list[tuple[int, str]] = []
    for start in count(0, batch):
        page = list(rows[start : start + batch])
        found += [(pk, stored) for pk, stored in page if stored in names]
        if len(page) < batch or len(found) >= batch:
            return found[:batch]
    raise AssertionError("unreachable")


def _due_now(source: str | None) -> int:
    names = _names(source)
    return WebhookReceipt.objects.using(receipts_alias()).due().filter(source__in=names).count()


def _bring(using: str, receipt_id: int, source: Source | None, report: Report | None) -> str:
    """Run a receipt, or wake a worker for it; returns how it ended, in a word."""
    try:
        if source is not None and dispatchers.ready(source):
            told = _woken(using, receipt_id)
            if told != "here":
                return told
        run = processing.run(receipt_id, "sweeper")
    except Exception as error:
        if is_connection_lost(error):
            raise
        logger.error("webhook receipt %s could not be run: %s", receipt_id, type(error).__name__)
        _postpone(using, receipt_id)
        return "postponed"
    if run is None:
        return "elsewhere"
    if report is not None:
        report(receipt_id, run)
    return run.status


def _woken(using: str, receipt_id: int) -> Literal["woken", "elsewhere", "here"]:
    """Wake a worker where the source has one.

    Returns:
        ``woken``; ``elsewhere``: somebody else has woken one, or runs it, so that it must be left alone; ``here``:
        nobody can be woken, so that this process must run it.
    """
    row = statements.read_by_id(using, receipt_id)
    source = source_of(row.source) if row is not None else None
    if row is None or source is None or not row.overdue or row.leased:
        return "elsewhere"
    spent = row.status == "processing" and row.used >= source.retry.max_attempts
    if spent or not dispatchers.ready(source):
        return "here"

    def push() -> bool:
        with committed(using):
            return statements.push(using, row, row.rewake)

    if not repeated(push):
        return "elsewhere"
    return "woken" if dispatchers.wake(source, receipt_id) else "here"


def _postpone(using: str, receipt_id: int) -> None:
    """Let others go first at the next pass: what fails before its lease would be the oldest for ever."""
    with suppress(Error), committed(using):
        statements.postpone(using, receipt_id, POSTPONED)


def forever(
    *, batch: int = 100, source: str | None = None, report: Report | None = None, stop: Stop, idle: float = IDLE
) -> Counter[str]:
    """Make passes until told to stop: the worker of a project without a broker.

    A database that goes away is waited for. What is being run when the stop comes is run to its end.

    Args:
        batch: How many receipts a pass looks at.
        source: Only this source's.
        report: Called with number and end of each run.
        stop: Ends it.
        idle: How long to wait while nothing is due, in seconds.

    Returns:
        The sum of all passes.
    """
    totals: Counter[str] = Counter()
    look_at = 0.0
    while not stop.is_set():
        reset_queries()
        close_old_connections()
        try:
            if monotonic() >= look_at:
                look_at = monotonic() + LOOK
                _look()
            counts = sweep(batch=batch, source=source, report=report, stop=stop)
        except (DatabaseError, InterfaceError) as error:
            logger.error("webhook sweeper: the database is away (%s), trying again", type(error).__name__)
            _drop_connection()
            stop.wait(AFTER_ERROR)
            continue
        totals += counts
        if counts.total() == counts["elsewhere"]:
            stop.wait(idle)
    return totals


def _look() -> None:
    """See whether something needs a person; an error in it stops no sweep."""
    try:
        alerts.look_and_tell()
    except Exception as error:
        if is_connection_lost(error):
            raise
        logger.exception("webhook alerts could not be looked at")


def _drop_connection() -> None:
    with suppress(Error):
        connections[receipts_alias()].close()

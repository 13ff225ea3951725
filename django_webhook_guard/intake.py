"""The claim: one event, one receipt, and what a sender is told who delivers it again.

The unique constraint decides; nothing here looks before it inserts, except for a late delivery, which may not
insert at all, and for an event that may have its receipt under a former name of its source.
"""

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from django_webhook_guard import statements
from django_webhook_guard.conf import Source, receipts_alias, source_of
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.events import bury, lease_seconds, marks, owed, wanted
from django_webhook_guard.handlers import Handler
from django_webhook_guard.identity import Event, held_fingerprint
from django_webhook_guard.statements import Inserted, NewReceipt, Row
from django_webhook_guard.transactions import committed, durable, repeated

logger = logging.getLogger("django_webhook_guard")

Decision = Literal["run", "ignored", "duplicate", "busy", "quarantined", "late"]

#: How often a claim looks again when the row changes between reading and writing it.
LOOKS = 5
#: A receipt's counter of deliveries is written at most once in so many seconds.
COUNT_EVERY = 1.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What became of a delivery at the database.

    Args:
        decision: ``run`` where this process holds the lease, else what the sender is told.
        fingerprint: Of the receipt, or of the event where there is none.
        receipt_id: The receipt, or None.
        attempt: The number of the run that the lease is for.
        lease: Seconds that it lasts.
        handlers: Names that the receipt keeps.
        row: The receipt as it was before the lease; None where it is new.
        retry_after: Seconds until the sender should come again.
        reason: A code for the log.
    """

    decision: Decision
    fingerprint: str
    receipt_id: int | None = None
    attempt: int = 0
    lease: float = 0
    handlers: tuple[str, ...] = ()
    row: Row | None = None
    retry_after: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Claimant:
    """One delivery on its way to its claim."""

    event: Event
    source: Source
    delivery: Delivery
    now: datetime
    request_id: str
    using: str
    handlers: tuple[Handler, ...]

    @property
    def lease(self) -> float:
        return lease_seconds(self.handlers, self.source)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(handler.name for handler in self.handlers)


def claim(event: Event, *, source: Source, delivery: Delivery, now: datetime, request_id: str) -> Claim:
    """Claim an event, or find out who has.

    Args:
        event: The verified event.
        source: Its source.
        delivery: The delivery, for its bytes and headers.
        now: When it came.
        request_id: Kept on the receipt.

    Raises:
        django.db.OperationalError: The database is away, or busy for too long.
        RuntimeError: There is an outer transaction.
    """
    claimant = _Claimant(
        event=event,
        source=source,
        delivery=delivery,
        now=now,
        request_id=request_id,
        using=receipts_alias(),
        handlers=wanted(source.name, event.event_type),
    )
    return repeated(lambda: _look(claimant))


def _look(claimant: _Claimant) -> Claim:
    for _ in range(LOOKS):
        found = _claim_late(claimant) if claimant.event.late else _claim_once(claimant)
        if found is not None:
            return found
    return Claim(decision="busy", fingerprint=claimant.event.fingerprint, retry_after=1)


def _claim_once(claimant: _Claimant) -> Claim | None:
    """Insert, or answer from the row that is there; None where it changed meanwhile."""
    event = claimant.event
    former = _former(claimant)
    if former is not None:
        return _answer_former(claimant, former)
    new = _new_receipt(claimant)
    if not claimant.source.keeps_seen:
        with committed(claimant.using):
            inserted = statements.insert(claimant.using, new)
        return _inserted(claimant, new, inserted)
    inserted_or_seen = _insert_with_seen(claimant, new)
    if inserted_or_seen is not None:
        return _inserted(claimant, new, inserted_or_seen)
    seen_as = statements.read_seen(claimant.using, event.seen_digest)
    if seen_as is None:
        return None
    if seen_as != event.fingerprint:
        return _hold(claimant, "replayed", held_fingerprint("replayed", event.seen_digest))
    row = statements.read(claimant.using, event.fingerprint)
    return _answer(claimant, row) if row is not None else _duplicate(event.fingerprint)


def _insert_with_seen(claimant: _Claimant, new: NewReceipt) -> Inserted | None:
    """Remember the message, then insert; None where the message was used before.

    The seen row comes first (the other order deadlocks on MariaDB), and it stays where the receipt is another
    try's: a failed insert is undone by itself, alone, on all three databases.
    """
    event = claimant.event
    with durable(claimant.using):
        if statements.insert_seen(claimant.using, event.seen_digest, event.fingerprint, _keep_for(claimant)):
            return statements.insert(claimant.using, new)
    return None


def _keep_for(claimant: _Claimant) -> float | None:
    """Return how long a message is remembered, in seconds: until it is late twice over, or with its receipt."""
    signed_at, tolerance = claimant.event.signed_at, claimant.source.tolerance
    if signed_at is None or tolerance is None:
        return None
    return (signed_at - claimant.now).total_seconds() + 2 * tolerance


def _claim_late(claimant: _Claimant) -> Claim | None:
    """Answer a delivery that came after its window: it may end what is open, but begins nothing."""
    event = claimant.event
    row = _former(claimant) or statements.read(claimant.using, event.fingerprint)
    if claimant.source.keeps_seen:
        seen_as = statements.read_seen(claimant.using, event.seen_digest)
        if seen_as not in (None, row.fingerprint if row else event.fingerprint):
            return _hold(claimant, "replayed", held_fingerprint("replayed", event.seen_digest))
    if row is None or row.status in ("processed", "ignored", "dead", "discarded"):
        return Claim(decision="late", fingerprint=event.fingerprint, reason="known" if row else "unknown")
    return _answer(claimant, row)


def _former(claimant: _Claimant) -> Row | None:
    """Return the receipt that the event has under a former name of its source."""
    for namespace in claimant.source.formerly:
        row = statements.read(claimant.using, claimant.event.under(namespace).fingerprint)
        if row is not None:
            return row
    return None


def _answer_former(claimant: _Claimant, row: Row) -> Claim | None:
    """Answer from the receipt under a former name; the message is remembered like any other."""
    digest = claimant.event.seen_digest
    if claimant.source.keeps_seen:
        with committed(claimant.using):
            new = statements.insert_seen(claimant.using, digest, row.fingerprint, _keep_for(claimant))
        if not new and statements.read_seen(claimant.using, digest) not in (None, row.fingerprint):
            return _hold(claimant, "replayed", held_fingerprint("replayed", digest))
    return _answer(claimant, row)


def _inserted(claimant: _Claimant, new: NewReceipt, inserted: Inserted) -> Claim | None:
    if inserted.id is None:
        row = inserted.row or statements.read(claimant.using, new.fingerprint)
        return _answer(claimant, row) if row is not None else None
    return Claim(
        decision="run" if new.lease is not None else "ignored",
        fingerprint=new.fingerprint,
        receipt_id=inserted.id,
        attempt=new.attempts,
        lease=new.lease or 0,
        handlers=tuple(new.handlers),
        reason=new.reason,
    )


def _new_receipt(claimant: _Claimant) -> NewReceipt:
    if not claimant.handlers:
        return _receipt(claimant, status="ignored", reason="unhandled", finished=True)
    return _receipt(claimant, status="processing", attempts=1, lease=claimant.lease)


def _receipt(
    claimant: _Claimant,
    *,
    status: str,
    reason: str = "",
    fingerprint: str | None = None,
    attempts: int = 0,
    lease: float | None = None,
    finished: bool = False,
) -> NewReceipt:
    event, delivery = claimant.event, claimant.delivery
    return NewReceipt(
        fingerprint=fingerprint or event.fingerprint,
        source=event.source,
        tenant=event.tenant,
        event_id=event.event_id,
        event_type=event.event_type,
        object_key=event.object_key,
        idempotency_key=event.key.text[:1000],
        key_origin=event.key.kind,
        key_id=event.key_id,
        request_id=claimant.request_id,
        status=status,
        reason=reason,
        handlers=claimant.names,
        attempts=attempts,
        signed_at=event.signed_at,
        occurred_at=event.occurred_at,
        received_at=claimant.now,
        headers=kept_headers(delivery, claimant.source),
        body=delivery.body,
        body_digest=event.body_digest.hex(),
        lease=lease,
        finished=finished,
    )


def kept_headers(delivery: Delivery, source: Source) -> dict[str, str]:
    """Return the headers that a receipt keeps, without what a database refuses."""
    return {
        name: delivery.headers[name].replace("\0", "")[:1024]
        for name in source.keep_headers
        if name in delivery.headers
    }


# -- the state table ---------------------------------------------------------------------------------------------------


def _answer(claimant: _Claimant, row: Row) -> Claim | None:
    """Branch on the state of a receipt that exists: it is not an event that was handled."""
    event = claimant.event
    if row.body_digest != event.body_digest.hex():
        if event.key.kind == "nonce":
            reused = held_fingerprint("key_reused", event.fingerprint, event.body_digest)
            return _hold(claimant, "key_reused", reused)
        if event.key.kind == "id" and "body" not in claimant.source.provider.varies:
            logger.warning("webhook of source %s: signed id came again with another body", event.source)
    if row.status in ("processed", "discarded", "quarantined"):
        return _answer_closed(claimant, row)
    claimant = _as_stored(claimant, row)
    if row.status == "received":
        return _take_over(claimant, row)
    if row.status == "processing":
        return _answer_processing(claimant, row)
    if row.status == "failed":
        return _answer_failed(claimant, row)
    if row.status == "dead" and row.reason == "exhausted":
        return _answer_exhausted(claimant, row)
    if row.status == "ignored" and _has_open_handler(claimant, row):
        return _take_over(claimant, row)
    return _answer_closed(claimant, row)


def _answer_closed(claimant: _Claimant, row: Row) -> Claim:
    """Answer for a receipt that nobody runs by itself: count the delivery, and say what became of the event."""
    _count(claimant, row)
    if row.status == "quarantined":
        return Claim(decision="quarantined", fingerprint=row.fingerprint, receipt_id=row.id, reason=row.reason)
    return _duplicate(row.fingerprint, row)


def _as_stored(claimant: _Claimant, row: Row) -> _Claimant:
    """Go by what is stored: its source runs the receipt, and its type chooses the handlers.

    The type of a later delivery may be a forger's, where it is an unsigned header, and sources of one namespace
    share their receipts.
    """
    source = source_of(row.source) or claimant.source
    handlers = owed(source.name, row.event_type, row.handlers)
    return replace(claimant, source=source, handlers=tuple(handlers))


def _answer_processing(claimant: _Claimant, row: Row) -> Claim | None:
    return _busy(row, row.lease_left) if row.leased else _next_attempt(claimant, row)


def _answer_failed(claimant: _Claimant, row: Row) -> Claim | None:
    first = row.used == 1 and row.reason != "retry_later"
    if first or (row.due_in is not None and row.due_in <= 0):
        return _next_attempt(claimant, row)
    _count(claimant, row)
    return _busy(row, row.due_in)


def _next_attempt(claimant: _Claimant, row: Row) -> Claim | None:
    """Take over, or write dead what has no attempts left and then look again."""
    if row.used < claimant.source.retry.max_attempts:
        return _take_over(claimant, row)
    bury(claimant.using, row)
    return None


def _answer_exhausted(claimant: _Claimant, row: Row) -> Claim | None:
    """Give a dead receipt one more attempt, at most one per longest delay: a delivery is a wish to try again."""
    rest = claimant.source.retry.max_delay - (row.finished_ago or 0)
    if rest <= 0:
        return _take_over(claimant, row)
    _count(claimant, row)
    return _busy(row, rest)


def _has_open_handler(claimant: _Claimant, row: Row) -> bool:
    if not claimant.handlers:
        return False
    marked = marks(row.fingerprint, claimant.handlers, claimant.using, row.last_handler).keys()
    return any(not marked & set(handler.names) for handler in claimant.handlers)


def _take_over(claimant: _Claimant, row: Row) -> Claim | None:
    """Lease a receipt as it was read; None where somebody was faster."""
    names = tuple(dict.fromkeys((*row.handlers, *claimant.names)))
    with committed(claimant.using):
        if not statements.lease(claimant.using, row, claimant.lease, names):
            return None
    return Claim(
        decision="run",
        fingerprint=row.fingerprint,
        receipt_id=row.id,
        attempt=row.attempts + 1,
        lease=claimant.lease,
        handlers=names,
        row=row,
    )


def _busy(row: Row, wait: float | None) -> Claim:
    return Claim(
        decision="busy",
        fingerprint=row.fingerprint,
        receipt_id=row.id,
        retry_after=max(wait or 0, 1),
        reason=row.status,
    )


def _duplicate(fingerprint: str, row: Row | None = None) -> Claim:
    return Claim(
        decision="duplicate",
        fingerprint=fingerprint,
        receipt_id=row.id if row else None,
        reason=row.status if row else "",
    )


def _hold(claimant: _Claimant, reason: str, fingerprint: str) -> Claim | None:
    """Store a genuine message under a key of its own, for a person; further ones are counted on it."""
    new = _receipt(claimant, status="quarantined", reason=reason, fingerprint=fingerprint)
    with committed(claimant.using):
        inserted = statements.insert(claimant.using, new)
    if inserted.id is None:
        row = inserted.row or statements.read(claimant.using, fingerprint)
        if row is None:
            return None
        _count(claimant, row)
        return Claim(decision="quarantined", fingerprint=fingerprint, receipt_id=row.id, reason=reason)
    return Claim(decision="quarantined", fingerprint=fingerprint, receipt_id=inserted.id, reason=reason)


def _count(claimant: _Claimant, row: Row) -> None:
    if row.counted_ago >= COUNT_EVERY:
        with committed(claimant.using):
            statements.count(claimant.using, row, COUNT_EVERY)

"""The claim: one event, one receipt, and what a sender is told who delivers it again.

The unique constraint decides; nothing here looks before it inserts, except for a late delivery, which may not
insert at all, and for an event that may have its receipt under a former name of its source.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from django_webhook_guard import statements, watching
from django_webhook_guard.conf import Source, source_of
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.events import bury, lease_seconds, marks, owed
from django_webhook_guard.handlers import Handler
from django_webhook_guard.identity import Event, held_fingerprint
from django_webhook_guard.pausing import is_paused
from django_webhook_guard.statements import Inserted, NewReceipt, Row
from django_webhook_guard.transactions import committed, durable, repeated

logger = logging.getLogger("django_webhook_guard")

Decision = Literal["run", "accepted", "ignored", "duplicate", "busy", "quarantined", "late", "declined"]

#: How often a claim looks again when the row changes between reading and writing it.
LOOKS = 5
#: Seconds until the sweeper looks at a receipt for which a worker was woken.
WOKEN_FOR = 30.0
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
        reply: What a handler answered to the first delivery, as it is kept.
        new: Whether this delivery made the receipt.
        wake: Whether a worker should be woken for it.
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
    reply: str = ""
    new: bool = False
    wake: bool = False


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A verified event on its way to its claim.

    Args:
        event: The event.
        source: Its source.
        delivery: The delivery, for its bytes and headers.
        now: When it came.
        request_id: Kept on the receipt.
        using: The receipts' database alias.
        handlers: Those that want it.
        hold: The code why it must be held for a person, or an empty string.
        why: The same in words.
        validated: What its schema made of its content.
        waking: Whether a worker can be woken at the moment.
        paused: Whether a person has paused the source, or a handler of the event.
    """

    event: Event
    source: Source
    delivery: Delivery
    now: datetime
    request_id: str
    using: str
    handlers: tuple[Handler, ...]
    hold: str = ""
    why: str = ""
    validated: Any = field(default=None, repr=False)
    waking: bool = False
    paused: bool = False

    @property
    def deferred(self) -> bool:
        """Whether the event is only held, for somebody else to run it."""
        return self.paused or self.source.deferred

    @property
    def lease(self) -> float:
        return lease_seconds(self.handlers, self.source)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(handler.name for handler in self.handlers)


def claim(arrival: Arrival) -> Claim:
    """Claim an event, or find out who has.

    Args:
        arrival: The event.

    Raises:
        django.db.OperationalError: The database is away, or busy for too long.
        RuntimeError: There is an outer transaction.
    """
    return repeated(lambda: _look(or_paused(arrival)))


def or_paused(arrival: Arrival) -> Arrival:
    """Return an event that is only held where a person has paused its source, or one of its handlers.

    Raises:
        django.db.OperationalError: The database is away.
    """
    return replace(arrival, paused=True, waking=False) if is_paused(arrival.source, arrival.handlers) else arrival


def _look(arrival: Arrival) -> Claim:
    for _ in range(LOOKS):
        found = _claim_late(arrival) if arrival.event.late else _claim_once(arrival)
        if found is not None:
            return found
    return Claim(decision="busy", fingerprint=arrival.event.fingerprint, retry_after=1)


def _claim_once(arrival: Arrival) -> Claim | None:
    """Insert, or answer from the row that is there; None where it changed meanwhile."""
    event = arrival.event
    earlier = former(arrival)
    if earlier is None and event.item is not None:  # an insert that fails would carry the whole body for each item
        earlier = statements.read(arrival.using, event.fingerprint)
    if earlier is not None:
        return _answer_former(arrival, earlier)
    if is_dropped(arrival):
        row = statements.read(arrival.using, event.fingerprint)
        return Claim(decision="declined", fingerprint=event.fingerprint) if row is None else _answer(arrival, row)
    new = new_receipt(arrival)
    if not arrival.source.keeps_seen:
        with committed(arrival.using):
            inserted = statements.insert(arrival.using, new)
        return _inserted(arrival, new, inserted)
    inserted_or_seen = _insert_with_seen(arrival, new)
    if inserted_or_seen is not None:
        return _inserted(arrival, new, inserted_or_seen)
    seen_as = statements.read_seen(arrival.using, event.seen_digest)
    if seen_as is None:
        return None
    if seen_as != event.fingerprint:
        return _hold(arrival, "replayed", seen_as)
    row = statements.read(arrival.using, event.fingerprint)
    return _answer(arrival, row) if row is not None else _duplicate(event.fingerprint)


def _insert_with_seen(arrival: Arrival, new: NewReceipt) -> Inserted | None:
    """Remember the message, then insert; None where the message was used before.

    The seen row comes first (the other order deadlocks on MariaDB), and it stays where the receipt is another
    try's: a failed insert is undone by itself, alone, on all three databases.
    """
    event = arrival.event
    with durable(arrival.using):
        if statements.insert_seen(arrival.using, event.seen_digest, event.fingerprint, keep_for(arrival)):
            return statements.insert(arrival.using, new)
    return None


def keep_for(arrival: Arrival) -> float | None:
    """Return how long a message is remembered, in seconds: until it is late twice over, or with its receipt."""
    signed_at, tolerance = arrival.event.signed_at, arrival.source.tolerance
    if signed_at is None or tolerance is None or arrival.source.late == "quarantine":
        return None
    return (signed_at - arrival.now).total_seconds() + 2 * tolerance


def _claim_late(arrival: Arrival) -> Claim | None:
    """Answer a delivery that came after its window: it may end what is open, but runs nothing that is new."""
    event, seen_as = arrival.event, None
    row = former(arrival) or statements.read(arrival.using, event.fingerprint)
    if arrival.source.keeps_seen:
        seen_as = statements.read_seen(arrival.using, event.seen_digest)
        if seen_as not in (None, row.fingerprint if row else event.fingerprint):
            return _hold(arrival, "replayed", seen_as)
    if row is None and seen_as is None and arrival.source.late == "quarantine":
        return _hold_late(arrival)
    if row is None or row.status in ("processed", "ignored", "dead", "discarded"):
        return Claim(decision="late", fingerprint=event.fingerprint, reason="known" if row else "unknown")
    return _answer(arrival, row)


def _hold_late(arrival: Arrival) -> Claim | None:
    """Store an event that nobody knew before its window was over; None where somebody was faster."""
    if is_dropped(arrival):
        return Claim(decision="declined", fingerprint=arrival.event.fingerprint)
    new = new_receipt(arrival)
    if arrival.source.keeps_seen:
        inserted = _insert_with_seen(arrival, new)
    else:
        with committed(arrival.using):
            inserted = statements.insert(arrival.using, new)
    return _inserted(arrival, new, inserted) if inserted is not None and inserted.id is not None else None


def is_dropped(arrival: Arrival) -> bool:
    """Tell whether the source stores nothing that no handler wants."""
    return arrival.source.unhandled == "drop" and not arrival.handlers and not arrival.hold


def former(arrival: Arrival) -> Row | None:
    """Return the receipt that the event has under a former name of its source."""
    for namespace in arrival.source.formerly:
        row = statements.read(arrival.using, arrival.event.under(namespace).fingerprint)
        if row is not None:
            return row
    return None


def _answer_former(arrival: Arrival, row: Row) -> Claim | None:
    """Answer from the receipt under a former name; the message is remembered like any other."""
    digest = arrival.event.seen_digest
    if arrival.source.keeps_seen:
        with committed(arrival.using):
            new = statements.insert_seen(arrival.using, digest, row.fingerprint, keep_for(arrival))
        seen_as = None if new else statements.read_seen(arrival.using, digest)
        if seen_as not in (None, row.fingerprint):
            return _hold(arrival, "replayed", seen_as)
    return _answer(arrival, row)


def _inserted(arrival: Arrival, new: NewReceipt, inserted: Inserted) -> Claim | None:
    if inserted.id is None:
        row = inserted.row or statements.read(arrival.using, new.fingerprint)
        return _answer(arrival, row) if row is not None else None
    if new.status == "quarantined":
        return _held(new, inserted.id)
    born: dict[str, Decision] = {"processing": "run", "received": "accepted", "ignored": "ignored"}
    return Claim(
        decision=born[new.status],
        fingerprint=new.fingerprint,
        receipt_id=inserted.id,
        attempt=new.attempts,
        lease=new.lease or 0,
        handlers=tuple(new.handlers),
        reason=new.reason,
        new=True,
        wake=new.status == "received" and arrival.waking,
    )


def _held(new: NewReceipt, receipt_id: int) -> Claim:
    return Claim(
        decision="quarantined", fingerprint=new.fingerprint, receipt_id=receipt_id, reason=new.reason, new=True
    )


def new_receipt(arrival: Arrival) -> NewReceipt:
    """Return the receipt in the state in which it is born: held, ignored, due, or leased by this process."""
    if arrival.hold or arrival.event.late:
        return _receipt(arrival, status="quarantined", reason=arrival.hold or "late", result=arrival.why)
    if not arrival.handlers:
        return _receipt(arrival, status="ignored", reason="unhandled", finished=True)
    if arrival.deferred:
        return _receipt(arrival, status="received", due=WOKEN_FOR if arrival.waking else 0)
    return _receipt(arrival, status="processing", attempts=1, lease=arrival.lease)


def _receipt(
    arrival: Arrival,
    *,
    status: str,
    reason: str = "",
    result: str = "",
    fingerprint: str | None = None,
    attempts: int = 0,
    lease: float | None = None,
    finished: bool = False,
    due: float | None = None,
) -> NewReceipt:
    event, delivery = arrival.event, arrival.delivery
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
        request_id=arrival.request_id,
        status=status,
        reason=reason,
        result=result,
        handlers=arrival.names,
        attempts=attempts,
        signed_at=event.signed_at,
        occurred_at=event.occurred_at,
        received_at=arrival.now,
        headers=kept_headers(delivery, arrival.source),
        body=delivery.body,
        body_size=len(delivery.body),
        body_digest=event.body_digest.hex(),
        item=event.item,
        lease=lease,
        finished=finished,
        due=due,
    )


def kept_headers(delivery: Delivery, source: Source) -> dict[str, str]:
    """Return the headers that a receipt keeps, without what a database refuses, and the trace that it belongs to."""
    kept = {
        name: delivery.headers[name].replace("\0", "")[:1024]
        for name in source.keep_headers
        if name in delivery.headers
    }
    trace = watching.traceparent(delivery.headers.get("traceparent"))
    return {**kept, "traceparent": trace} if trace else kept


# -- the state table ---------------------------------------------------------------------------------------------------


def _answer(arrival: Arrival, row: Row) -> Claim | None:
    """Branch on the state of a receipt that exists: it is not an event that was handled."""
    event = arrival.event
    if row.body_digest != event.body_digest.hex():
        if event.key.kind == "nonce":
            return _hold(arrival, "key_reused", row.fingerprint)
        if event.key.kind == "id" and event.item is None and "body" not in arrival.source.provider.varies:
            logger.warning("webhook of source %s: signed id came again with another body", event.source)
    held = row.status == "quarantined" and (row.reason != "late" or event.late or arrival.hold)
    if held or row.status in ("processed", "discarded"):
        return _answer_closed(arrival, row)
    arrival = _as_stored(arrival, row)
    return _answer_deferred(arrival, row) if arrival.deferred else _answer_inline(arrival, row)


def _answer_inline(arrival: Arrival, row: Row) -> Claim | None:
    """Answer from an open receipt of a source whose sender waits for the run; None where it changed meanwhile."""
    if row.status == "quarantined":  # as late, and now it is here in time
        return take_over(arrival, row) if arrival.handlers else _answer_closed(arrival, row)
    if row.status == "received":
        return take_over(arrival, row)
    if row.status == "processing":
        return _answer_processing(arrival, row)
    if row.status == "failed":
        return _answer_failed(arrival, row)
    if row.status == "dead" and row.reason == "exhausted":
        return _answer_exhausted(arrival, row)
    if row.status == "ignored" and _has_open_handler(arrival, row):
        return take_over(arrival, row)
    return _answer_closed(arrival, row)


def _answer_deferred(arrival: Arrival, row: Row) -> Claim | None:
    """Answer from an open receipt that a worker or the sweeper runs; None where it changed meanwhile."""
    if row.status in ("received", "processing", "failed"):
        if row.status == "failed":
            _count(arrival, row)
        return accepted(row, wake=arrival.waking and row.overdue and _pushed(arrival, row))
    revives = (
        (row.status == "quarantined" and bool(arrival.handlers))
        or (row.status == "ignored" and _has_open_handler(arrival, row))
        or (row.status == "dead" and row.reason == "exhausted" and _rest(arrival, row) <= 0)
    )
    if revives:
        with committed(arrival.using):
            revived = statements.revive(arrival.using, row, WOKEN_FOR if arrival.waking else 0)
        return accepted(row, wake=arrival.waking) if revived else None
    if row.status == "dead" and row.reason == "exhausted":
        _count(arrival, row)
        return _busy(row, _rest(arrival, row))
    return _answer_closed(arrival, row)


def accepted(row: Row, *, wake: bool, new: bool = False) -> Claim:
    """Say that an event is held, and that somebody else runs it."""
    return Claim(
        decision="accepted", fingerprint=row.fingerprint, receipt_id=row.id, row=row, reason=row.status, wake=wake,
        new=new,
    )  # fmt: skip


def _pushed(arrival: Arrival, row: Row) -> bool:
    """Tell whether this delivery is the one of many that wakes a worker for what is overdue."""
    with committed(arrival.using):
        return statements.push(arrival.using, row, row.rewake)


def _answer_closed(arrival: Arrival, row: Row) -> Claim:
    """Answer for a receipt that nobody runs by itself: count the delivery, and say what became of the event."""
    _count(arrival, row)
    if row.status == "quarantined":
        return Claim(decision="quarantined", fingerprint=row.fingerprint, receipt_id=row.id, reason=row.reason)
    return _duplicate(row.fingerprint, row)


def _as_stored(arrival: Arrival, row: Row) -> Arrival:
    """Go by what is stored: its source runs the receipt, and its type chooses the handlers.

    The type of a later delivery may be a forger's, where it is an unsigned header, and sources of one namespace
    share their receipts.
    """
    source = source_of(row.source) or arrival.source
    handlers = owed(source.name, row.event_type, row.handlers)
    paused = is_paused(source, handlers)
    waking = arrival.waking and source.wakes and not paused
    return replace(arrival, source=source, handlers=tuple(handlers), waking=waking, paused=paused)


def _answer_processing(arrival: Arrival, row: Row) -> Claim | None:
    return _busy(row, row.lease_left) if row.leased else _next_attempt(arrival, row)


def _answer_failed(arrival: Arrival, row: Row) -> Claim | None:
    first = row.used == 1 and row.reason != "retry_later"
    if first or row.overdue or row.reason == "woken":
        return _next_attempt(arrival, row)
    _count(arrival, row)
    return _busy(row, row.due_in)


def _next_attempt(arrival: Arrival, row: Row) -> Claim | None:
    """Take over, or write dead what has no attempts left and then look again."""
    if row.used < arrival.source.retry.max_attempts:
        return take_over(arrival, row)
    bury(arrival.using, row)
    return None


def _answer_exhausted(arrival: Arrival, row: Row) -> Claim | None:
    """Give a dead receipt one more attempt, at most one per longest delay: a delivery is a wish to try again."""
    if _rest(arrival, row) <= 0:
        return take_over(arrival, row)
    _count(arrival, row)
    return _busy(row, _rest(arrival, row))


def _rest(arrival: Arrival, row: Row) -> float:
    """Return for how many seconds a dead receipt gets no further attempt."""
    return arrival.source.retry.max_delay - (row.finished_ago or 0)


def _has_open_handler(arrival: Arrival, row: Row) -> bool:
    if not arrival.handlers:
        return False
    marked = marks(row.fingerprint, arrival.handlers, arrival.using, row.last_handler).keys()
    return any(not marked & set(handler.names) for handler in arrival.handlers)


def take_over(arrival: Arrival, row: Row) -> Claim | None:
    """Lease a receipt as it was read; None where somebody was faster."""
    names = tuple(dict.fromkeys((*row.handlers, *arrival.names)))
    with committed(arrival.using):
        if not statements.lease(arrival.using, row, arrival.lease, names):
            return None
    return Claim(
        decision="run",
        fingerprint=row.fingerprint,
        receipt_id=row.id,
        attempt=row.attempts + 1,
        lease=arrival.lease,
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
        reply=row.reply if row and row.status == "processed" else "",
    )


def _hold(arrival: Arrival, reason: str, original: str | None) -> Claim | None:
    """Store a genuine message under a key of its own, for a person; further ones are counted on it.

    Args:
        arrival: The event that the message claims to be.
        reason: ``replayed`` or ``key_reused``.
        original: The fingerprint of the event that had the message, or its nonce, first.
    """
    event = arrival.event
    parts = (event.seen_digest,) if reason == "replayed" else (event.fingerprint, event.body_digest)
    fingerprint = held_fingerprint(reason, *parts)
    if event.item is not None:  # its body is the whole batch's: not even to be refused is it sent for every item
        row = statements.read(arrival.using, fingerprint)
        if row is not None:
            return _held_already(arrival, row, reason)
    new = _receipt(
        arrival, status="quarantined", reason=reason, fingerprint=fingerprint, result=f"first came as {original}"
    )
    if event.item is not None and reason == "replayed" and original is not None:
        first = statements.read(arrival.using, original)
        if first is not None and first.batch_id is not None:  # the very bytes that this is a copy of
            new = replace(new, batch_id=first.batch_id, body=None)
    with committed(arrival.using):
        inserted = statements.insert(arrival.using, new)
    if inserted.id is None:
        row = inserted.row or statements.read(arrival.using, fingerprint)
        if row is None:
            return None
        return _held_already(arrival, row, reason)
    return _held(new, inserted.id)


def _held_already(arrival: Arrival, row: Row, reason: str) -> Claim:
    _count(arrival, row)
    return Claim(decision="quarantined", fingerprint=row.fingerprint, receipt_id=row.id, reason=reason)


def _count(arrival: Arrival, row: Row) -> None:
    if row.counted_ago >= COUNT_EVERY:
        with committed(arrival.using):
            statements.count(arrival.using, row, COUNT_EVERY)

"""Many events in one body: what is new is stored at once, and each is then claimed like one that came alone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from django_webhook_guard import statements
from django_webhook_guard.intake import (
    LOOKS,
    Arrival,
    Claim,
    Decision,
    accepted,
    claim,
    former,
    is_dropped,
    keep_for,
    new_receipt,
    take_over,
)
from django_webhook_guard.statements import NewBatch, NewReceipt
from django_webhook_guard.transactions import durable, repeated


class _Taken(Exception):
    """Another delivery has stored one of the events meanwhile."""


def store(arrivals: Sequence[Arrival], *, items: int) -> frozenset[str]:
    """Store those events of a batch that are new, all of them or none, due to be run.

    Args:
        arrivals: The events of one delivery.
        items: How many items its body holds.

    Returns:
        The fingerprints of the receipts that this call made.

    Raises:
        django.db.OperationalError: The database is away, or busy for too long.
    """
    for _ in range(LOOKS):
        with suppress(_Taken):
            return repeated(lambda: _store(arrivals, items))
    return frozenset()  # then each is claimed like one that came alone


def _store(arrivals: Sequence[Arrival], items: int) -> frozenset[str]:
    using = arrivals[0].using
    wanted = {each.event.fingerprint: each for each in reversed(arrivals) if _is_storable(each)}
    known = statements.present(using, list(wanted))
    # Sorted, so that two deliveries of the same events wait for each other instead of locking each other out.
    new = [wanted[fingerprint] for fingerprint in sorted(wanted.keys() - known)]
    new = [each for each in new if not _is_used(each)]
    if not new:
        return frozenset()
    with durable(using):
        batch_id = statements.insert_batch(using, _batch(new[0], items))
        for each in new:
            if each.source.keeps_seen and not statements.insert_seen(
                using, each.event.seen_digest, each.event.fingerprint, keep_for(each)
            ):
                raise _Taken
        if not statements.insert_many(using, [_item(each, batch_id) for each in new]):
            raise _Taken
    return frozenset(each.event.fingerprint for each in new)


def _is_storable(arrival: Arrival) -> bool:
    if is_dropped(arrival) or (arrival.event.late and arrival.source.late == "reject"):
        return False
    return former(arrival) is None


def _is_used(arrival: Arrival) -> bool:
    """Tell whether the signed message was accepted before; the claim of that item says under which key."""
    if not arrival.source.keeps_seen:
        return False
    return statements.read_seen(arrival.using, arrival.event.seen_digest) is not None


def _batch(arrival: Arrival, items: int) -> NewBatch:
    return NewBatch(
        source=arrival.source.name,
        request_id=arrival.request_id,
        received_at=arrival.now,
        items=items,
        body=arrival.delivery.body,
        body_digest=arrival.event.body_digest.hex(),
    )


def _item(arrival: Arrival, batch_id: int) -> NewReceipt:
    """Return the receipt of an item: the body stands on the batch, and whoever is first leases it."""
    born = new_receipt(arrival)
    if born.status == "processing":
        born = replace(born, status="received", attempts=0, lease=None, due=0)
    return replace(born, batch_id=batch_id, body=None)


def claim_stored(arrival: Arrival) -> Claim:
    """Claim an event that ``store`` has just stored.

    Raises:
        django.db.OperationalError: The database is away, or busy for too long.
    """
    return repeated(lambda: _claim_stored(arrival)) or claim(arrival)


def _claim_stored(arrival: Arrival) -> Claim | None:
    row = statements.read(arrival.using, arrival.event.fingerprint)
    if row is None or row.status not in ("received", "ignored", "quarantined"):
        return None
    if row.status == "received" and arrival.deferred:
        return accepted(row, wake=arrival.waking, new=True)
    if row.status == "received":
        taken = take_over(arrival, row)
        return replace(taken, new=True) if taken is not None else None
    decision: Decision = "ignored" if row.status == "ignored" else "quarantined"
    return Claim(decision=decision, fingerprint=row.fingerprint, receipt_id=row.id, reason=row.reason, new=True)

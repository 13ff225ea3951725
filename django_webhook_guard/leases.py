"""The right to run a receipt, and the marks that only its holder may leave."""

from dataclasses import dataclass

from django_webhook_guard import statements
from django_webhook_guard.events import Reply
from django_webhook_guard.exceptions import LeaseLost
from django_webhook_guard.handlers import Handler
from django_webhook_guard.sources import Source
from django_webhook_guard.statements import Row
from django_webhook_guard.transactions import durable


class AlreadyDone(Exception):
    """Another attempt has left its mark on the handler's own database; what this one did must be rolled back."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to run a receipt.

    Args:
        receipt_id: The receipt.
        fingerprint: Its fingerprint.
        source: Its source.
        event_type: Its type.
        using: The receipts' database alias.
        attempt: The number of this run, its fencing token.
        seconds: How long the lease lasts from each renewal.
        names: Handlers that the receipt waits for or has run.
        used: Attempts that count, this one included.
        budget_age: Seconds since the budget of attempts began.
        last_handler: The handler whose mark is on the receipt itself.
        reply: What a handler of an earlier attempt answered, as it is kept.
        trigger: What began the attempt.
        actor: Who, as text.
    """

    receipt_id: int
    fingerprint: str
    source: Source
    event_type: str
    using: str
    attempt: int
    seconds: float
    names: tuple[str, ...]
    used: int = 1
    budget_age: float = 0
    last_handler: str = ""
    reply: str = ""
    trigger: str = "delivery"
    actor: str = ""


def lease_of(
    row: Row,
    source: Source,
    using: str,
    seconds: float,
    names: tuple[str, ...],
    trigger: str,
    actor: str = "",
) -> Lease:
    """Return the lease that was just taken on a row as it was before."""
    return Lease(
        receipt_id=row.id,
        fingerprint=row.fingerprint,
        source=source,
        event_type=row.event_type,
        using=using,
        attempt=row.attempts + 1,
        seconds=seconds,
        names=names,
        used=row.used + 1,
        budget_age=0 if row.at_rest else row.budget_age,
        last_handler=row.last_handler,
        reply=row.reply,
        trigger=trigger,
        actor=actor,
    )


def fence(lease: Lease, reply: Reply | None = None) -> None:
    """Prove that the lease is still held, and renew it.

    Args:
        lease: The lease.
        reply: What a handler answers, to be kept.

    Raises:
        LeaseLost: Another attempt has taken over.
    """
    kept = reply.kept() if reply is not None else ""
    if not statements.fence(lease.using, lease.receipt_id, lease.attempt, lease.seconds, kept):
        raise LeaseLost


def mark(lease: Lease, handler: Handler, how: str, result: str, using: str, reply: Reply | None = None) -> None:
    """Write a checkpoint, and last the fence; on another database the checkpoint's unique key is the fence.

    Args:
        lease: The lease.
        handler: Who ended.
        how: ``done``, ``skipped``, ``superseded`` or ``gave_up``.
        result: What is kept of it.
        using: The database alias of the transaction that this is called in.
        reply: What the handler answers, to be kept.

    Raises:
        LeaseLost: Another attempt has taken over.
        AlreadyDone: Another attempt left its mark on the handler's own database.
    """
    if not statements.insert_checkpoint(using, lease.fingerprint, handler.name, how, result, lease.attempt):
        raise LeaseLost if using == lease.using else AlreadyDone
    if using == lease.using:
        fence(lease, reply)


def checkpoint(lease: Lease, handler: Handler, how: str, result: str, reply: Reply | None = None) -> None:
    """Write a checkpoint in a transaction of its own; arguments and errors are those of ``mark``."""
    using = handler.using or lease.using
    with durable(using):
        mark(lease, handler, how, result, using, reply)


def is_committed(lease: Lease, handler: Handler, using: str) -> bool:
    """Tell, after an error in a commit or behind it, whether the handler's transaction stands."""
    if handler.name in statements.checkpoints(using, lease.fingerprint):
        return True
    row = statements.read_by_id(lease.using, lease.receipt_id)
    return row is not None and row.attempts == lease.attempt and row.last_handler == handler.name

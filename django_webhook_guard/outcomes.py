"""What a sender is told, and what the log is told about it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from django_webhook_guard.events import Reply
from django_webhook_guard.identity import Event
from django_webhook_guard.sources import STATUS, Source

#: Seconds after which a sender should come again when the fault is ours.
RETRY_AFTER = 10


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sender is told.

    Args:
        decision: What was decided, the key of ``RESPONSES`` and the body's ``status``.
        http_status: The HTTP status.
        body: The answer's body.
        content_type: Its content type.
        headers: Further headers.
        receipt_id: The receipt's number, never told to the sender.
        reference: The first 16 hex of its fingerprint.
        retry_after: Seconds, rounded up, or None.
        reason: A code for the log and for onlookers, never told to the sender.
        detail: More for the log, in words: no secret, no content.
        level: How important the log takes it, where that is not the decision's usual level.
        error: What went wrong on our side.
        event: The event, once it is known which one it is.
    """

    decision: str
    http_status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    receipt_id: int | None = None
    reference: str = ""
    retry_after: int | None = None
    reason: str = ""
    detail: str = ""
    level: int | None = None
    error: BaseException | None = field(default=None, repr=False)
    event: Event | None = field(default=None, repr=False)


@lru_cache(maxsize=64)
def _constant_body(decision: str) -> bytes:
    return json.dumps({"status": decision}).encode()


def answer(
    decision: str,
    source: Source | None = None,
    *,
    http_status: int | None = None,
    fingerprint: str = "",
    receipt_id: int | None = None,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
    reply: Reply | None = None,
    reason: str = "",
    detail: str = "",
    level: int | None = None,
    error: BaseException | None = None,
    event: Event | None = None,
) -> Outcome:
    """Make the outcome of a decision.

    Args:
        decision: A key of ``STATUS``.
        source: Whose ``RESPONSES`` count; None where it is unknown.
        http_status: In place of all tables.
        fingerprint: Of the receipt, whose first 16 hex are told.
        receipt_id: The receipt.
        retry_after: Seconds; given for every 503.
        headers: Further headers.
        reply: What a handler, or a handshake, answers in place of all tables.
        reason: A code, for the log.
        detail: Words, for the log.
        level: Of the log.
        error: For the log.
        event: For the log.
    """
    status = http_status or (source.responses.get(decision) if source else None) or STATUS[decision]
    if status == 503 and retry_after is None:
        retry_after = RETRY_AFTER
    seconds = None if retry_after is None else max(1, math.ceil(min(retry_after, 86_400)))
    reference = fingerprint[:16]
    # Both are words of ours: nothing in them has to be escaped.
    body = f'{{"status": "{decision}", "receipt": "{reference}"}}'.encode() if reference else _constant_body(decision)
    extra = dict(headers or {})
    if seconds is not None:
        extra["Retry-After"] = str(seconds)
    return Outcome(
        decision=decision,
        http_status=status if reply is None else reply.status,
        body=body if reply is None else reply.content,
        content_type="application/json" if reply is None else reply.content_type,
        headers=extra,
        receipt_id=receipt_id,
        reference=reference,
        retry_after=seconds,
        reason=reason,
        detail=detail,
        level=level,
        error=error,
        event=event,
    )


#: From the best to the worst thing that can become of one of several events.
_RANKS = (
    "declined", "duplicate", "ignored", "processed", "accepted", "gave_up", "quarantined", "late", "malformed",
    "retry_later", "busy", "unavailable", "failed",
)  # fmt: skip


def worst(outcomes: list[Outcome]) -> Outcome:
    """Return the outcome of a batch: the worst of its items', so that the sender comes again if one is not held."""
    return max(outcomes, key=lambda outcome: (outcome.http_status >= 500, _RANKS.index(outcome.decision)))

"""The one sequence that every door runs: verify, identify, claim, run, answer.

``admit`` looks at the headers, ``receive`` takes the body. Both give an ``Outcome`` and never raise for anything
that a stranger can send.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from django.db import Error

from django_webhook_guard import intake, processing
from django_webhook_guard.conf import STATUS, URL_TENANT, Source, UnknownSource, get_source, receipts_alias, source_of
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.exceptions import (
    MalformedContent,
    Misconfigured,
    SignatureMismatch,
    UnknownTenant,
    VerificationError,
)
from django_webhook_guard.identity import Event, identify, is_name
from django_webhook_guard.intake import Claim, kept_headers
from django_webhook_guard.locators import Reading
from django_webhook_guard.transactions import is_conflict, is_lock_timeout, is_sqlite_lock
from django_webhook_guard.verifiers.base import Verification, check_window
from django_webhook_guard.verifiers.digests import check_body_digests

logger = logging.getLogger("django_webhook_guard")

#: Seconds after which a sender should come again when the fault is ours.
RETRY_AFTER = 10
#: A stamp further away than this was surely read in the wrong unit.
_WRONG_UNIT = timedelta(days=20 * 365)


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
    """

    decision: str
    http_status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    receipt_id: int | None = None
    reference: str = ""
    retry_after: int | None = None


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
    """
    status = http_status or (source.responses.get(decision) if source else None) or STATUS[decision]
    if status == 503 and retry_after is None:
        retry_after = RETRY_AFTER
    seconds = None if retry_after is None else max(1, math.ceil(min(retry_after, 86_400)))
    reference = fingerprint[:16]
    body = json.dumps({"status": decision, "receipt": reference}).encode() if reference else _constant_body(decision)
    extra = dict(headers or {})
    if seconds is not None:
        extra["Retry-After"] = str(seconds)
    return Outcome(
        decision=decision,
        http_status=status,
        body=body,
        headers=extra,
        receipt_id=receipt_id,
        reference=reference,
        retry_after=seconds,
    )


# -- before the body ---------------------------------------------------------------------------------------------------


def find_source(name: str, *, tenant: str | None, routed: bool) -> Source | Outcome:
    """Return the source that a URL names.

    Args:
        name: Its name.
        tenant: The tenant that the URL names.
        routed: Whether the catch-all URLs were used, which serve only what says so.
    """
    if tenant is not None and not is_name(tenant):
        logger.info("webhook refused: the URL's tenant is blank, too long or holds a NUL")
        return answer("not_found")
    try:
        source = get_source(name)
    except UnknownSource:
        logger.info("webhook refused: no such source or route")
        return answer("not_found")
    except Misconfigured as error:
        logger.error("webhook refused: %s", error)
        return answer("unavailable")
    if (routed and not source.route) or (source.tenant == URL_TENANT) != (tenant is not None):
        logger.info("webhook refused: source %s is not served at this path", source.name)
        return answer("not_found")
    return source


def admit(source: Source, delivery: Delivery, *, length: int) -> Outcome | None:
    """Look at what needs no body: its announced length, then whether a proof is there.

    Args:
        source: The source.
        delivery: The delivery without its body.
        length: What ``Content-Length`` announces, in bytes; 0 where it announces nothing.

    Returns:
        The refusal, or None where the body may be read.
    """
    if length > source.max_body:
        return too_large(source, length)
    try:
        source.provider.verifier.admit(delivery)
    except VerificationError as error:
        return _rejected(source, error)
    except Exception:
        logger.exception("webhook not accepted: source %s: unexpected error", source.name)
        return answer("unavailable", source)
    return None


def too_large(source: Source, size: int) -> Outcome:
    """Refuse a body over the source's limit."""
    logger.warning(
        "webhook refused: source %s: body of %s bytes or more is over MAX_BODY, %s bytes",
        source.name,
        size,
        source.max_body,
    )
    return answer("too_large", source)


def unavailable(source: Source, why: str) -> Outcome:
    """Answer for a fault on our side that an operator must mend: one ERROR line, and the sender comes again."""
    logger.error("webhook not accepted: source %s: %s", source.name, why)
    return answer("unavailable", source)


def malformed(source: Source, why: str, *, http_status: int | None = None) -> Outcome:
    """Refuse what cannot be read."""
    logger.warning("webhook refused: source %s: malformed: %s", source.name, why)
    return answer("malformed", source, http_status=http_status)


def _rejected(source: Source, error: VerificationError) -> Outcome:
    level = logging.INFO if isinstance(error, UnknownTenant) else logging.WARNING
    logger.log(level, "webhook refused: source %s: %s: %s", source.name, error.reason, error.detail)
    return answer("rejected", source)


# -- the sequence ------------------------------------------------------------------------------------------------------


def receive(source: Source, delivery: Delivery, *, now: datetime, request_id: str) -> Outcome:
    """Verify, identify, claim and run a delivery.

    Args:
        source: Its source.
        delivery: The delivery with its whole body.
        now: When it came.
        request_id: Kept on the receipt.
    """
    try:
        verification = _verify(source, delivery, now)
        event = _identify(source, delivery, verification, now)
        if event is None:
            return answer("late", source)
        claim = intake.claim(event, source=source, delivery=delivery, now=now, request_id=request_id)
        if claim.decision != "run":
            return _claimed(source, event, claim)
        return _run(source, event, delivery, claim, now)
    except VerificationError as error:
        return _rejected(source, error)
    except MalformedContent as error:
        return malformed(source, error.detail)
    except Misconfigured as error:
        logger.error("webhook not accepted: %s", error)
        return answer("unavailable", source)
    except Error as error:
        return _database_fault(source, error)
    except Exception:
        logger.exception("webhook not accepted: source %s: unexpected error", source.name)
        return answer("unavailable", source)


def _verify(source: Source, delivery: Delivery, now: datetime) -> Verification:
    verification = source.provider.verifier.verify(delivery, source.live_secrets(delivery.tenant, now))
    holder = verification.secret.tenant
    if holder is not None and source.tenant == URL_TENANT and holder != delivery.tenant:
        raise SignatureMismatch("the secret is another tenant's")
    return verification


def _identify(source: Source, delivery: Delivery, verification: Verification, now: datetime) -> Event | None:
    """Return the event; None where its stamp lies in the future."""
    side = check_window(verification.signed_at, now, source.tolerance)
    if side != "inside":
        _log_window(source, verification, now, side)
    if side == "future":
        return None
    check_body_digests(delivery)
    data, form = source.provider.parse(delivery.body, delivery.header("content-type") or "")
    event = identify(
        Reading(delivery, data, form),
        verification,
        source.rules,
        tenant=delivery.tenant,
        late=side == "late",
    )
    holder = verification.secret.tenant
    if source.rules.tenant is not None and not source.tenant_signed and holder is None:
        raise SignatureMismatch("neither the proof nor the secret vouches for the tenant")
    if holder is not None and source.tenant is not None and holder != event.tenant:
        raise SignatureMismatch("the secret is another tenant's")
    return event


def _log_window(source: Source, verification: Verification, now: datetime, side: str) -> None:
    signed_at = verification.signed_at
    if signed_at is None or source.tolerance is None:
        return
    over = abs((now - signed_at).total_seconds()) - source.tolerance
    hint = ""
    if signed_at - now > _WRONG_UNIT:
        hint = "; the value looks like milliseconds"
    elif now - signed_at > _WRONG_UNIT and signed_at < datetime(1971, 1, 1, tzinfo=UTC):
        hint = "; the value looks like seconds"
    words = "too old" if side == "late" else "in the future"
    logger.warning("webhook of source %s: signature valid, %s by %d s%s", source.name, words, over, hint)


def _claimed(source: Source, event: Event, claim: Claim) -> Outcome:
    logger.info("webhook of source %s: %s %s", source.name, claim.decision, claim.reason)
    if claim.decision == "late":
        return answer("late", source)
    return answer(
        claim.decision,
        source,
        fingerprint=claim.fingerprint,
        receipt_id=claim.receipt_id,
        retry_after=claim.retry_after,
    )


def _run(source: Source, event: Event, delivery: Delivery, claim: Claim, now: datetime) -> Outcome:
    assert claim.receipt_id is not None
    using = receipts_alias()
    if claim.row is None:
        lease = processing.Lease(
            receipt_id=claim.receipt_id,
            fingerprint=claim.fingerprint,
            source=source,
            event_type=event.event_type,
            using=using,
            attempt=claim.attempt,
            seconds=claim.lease,
            names=claim.handlers,
        )
        run = processing.carry_out(lease, _first(source, event, delivery, claim, now))
    else:
        owner = source_of(claim.row.source) or source  # sources of one namespace share their receipts
        lease = processing.lease_of(claim.row, owner, using, claim.lease, claim.handlers, "delivery")
        run = processing.carry_out(lease)
    logger.info("webhook of source %s: %s", source.name, run.decision)
    waits = run.decision in ("retry_later", "busy", "failed")
    return answer(
        run.decision,
        source,
        fingerprint=claim.fingerprint,
        receipt_id=claim.receipt_id,
        retry_after=run.retry_after if waits else None,
    )


def _first(source: Source, event: Event, delivery: Delivery, claim: Claim, now: datetime) -> WebhookEvent:
    """Return what the handlers of a new receipt get, without reading it back."""
    assert claim.receipt_id is not None
    first = WebhookEvent(
        source=source.name,
        tenant=event.tenant,
        event_id=event.event_id,
        event_type=event.event_type,
        object_key=event.object_key,
        occurred_at=event.occurred_at,
        signed_at=event.signed_at,
        received_at=now,
        body=delivery.body,
        headers=kept_headers(delivery, source),
        key_id=event.key_id,
        receipt_id=claim.receipt_id,
        attempt=claim.attempt,
        signed=source.provider.signs,
        provider=source.provider,
    )
    first.__dict__["data"] = event.data  # parsed once already
    return first


def _database_fault(source: Source, error: Exception) -> Outcome:
    """Answer for a database that is away (one ERROR line) or only busy (everyday on SQLite)."""
    busy = is_sqlite_lock(error) or is_conflict(error) or is_lock_timeout(error)
    logger.log(
        logging.WARNING if busy else logging.ERROR,
        "webhook not accepted: source %s: the database is %s (%s)",
        source.name,
        "busy" if busy else "away or refuses the statement",
        type(error).__name__,
    )
    return answer("unavailable", source, retry_after=1 if busy else None)

"""The one sequence that every door runs: verify, identify, claim, run, answer.

``admit`` looks at the headers, ``receive`` takes the body. Both give an ``Outcome`` and never raise for anything
that a stranger can send.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import Error

from django_webhook_guard import batches, dispatchers, intake, processing
from django_webhook_guard.conf import UnknownSource, get_source, receipts_alias, source_of
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.events import Reply, WebhookEvent, announce, wanted
from django_webhook_guard.exceptions import (
    MalformedContent,
    Misconfigured,
    SignatureMismatch,
    UnknownTenant,
    VerificationError,
)
from django_webhook_guard.identity import Event, identify, is_name, unidentified
from django_webhook_guard.intake import Arrival, Claim, kept_headers
from django_webhook_guard.locators import MISSING, Reading
from django_webhook_guard.logbook import UNREAD
from django_webhook_guard.outcomes import Outcome, answer, worst
from django_webhook_guard.parsing import FormData
from django_webhook_guard.schemas import SchemaFailed, SchemaMismatch, schema_for, validated
from django_webhook_guard.signals import webhook_duplicate, webhook_quarantined, webhook_rejected
from django_webhook_guard.sources import SETTING, URL_TENANT, Source
from django_webhook_guard.transactions import is_conflict, is_lock_timeout, is_sqlite_lock
from django_webhook_guard.verifiers.base import Verification, check_window
from django_webhook_guard.verifiers.digests import check_body_digests

__all__ = ["Outcome", "admit", "answer", "find_source", "malformed", "receive", "tell", "too_large", "unavailable"]

handlers_logger = logging.getLogger("django_webhook_guard.handlers")

#: A stamp further away than this was surely read in the wrong unit.
_WRONG_UNIT = timedelta(days=20 * 365)
#: Decisions that end in an onlooker's ``webhook_rejected``.
_REFUSED = frozenset({"rejected", "late", "malformed", "too_large"})


# -- before the body ---------------------------------------------------------------------------------------------------


def find_source(name: str, *, tenant: str | None, routed: bool) -> Source | Outcome:
    """Return the source that a URL names.

    Args:
        name: Its name.
        tenant: The tenant that the URL names.
        routed: Whether the catch-all URLs were used, which serve only what says so.
    """
    if tenant is not None and not is_name(tenant):
        return answer("not_found", detail="the URL's tenant is blank, too long or holds a NUL")
    try:
        source = get_source(name)
    except UnknownSource:
        return answer("not_found", detail="no such source or route")
    except Misconfigured as error:
        return answer("unavailable", detail=str(error))
    if (routed and not source.route) or (source.tenant == URL_TENANT) != (tenant is not None):
        return answer("not_found", detail=f"source {source.name} is not served at this path")
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
    except Exception as error:
        return answer("unavailable", source, detail="unexpected error", error=error)
    return None


def too_large(source: Source, size: int) -> Outcome:
    """Refuse a body over the source's limit."""
    detail = f"body of {size} bytes or more is over MAX_BODY, {source.max_body} bytes"
    return answer("too_large", source, detail=detail)


def unavailable(source: Source | None, why: str) -> Outcome:
    """Answer for a fault on our side that an operator must mend: one ERROR line, and the sender comes again."""
    return answer("unavailable", source, detail=why)


def malformed(source: Source, why: str, *, http_status: int | None = None) -> Outcome:
    """Refuse a body that cannot be read to its end."""
    return answer("malformed", source, http_status=http_status, reason=UNREAD, detail=why)


def _rejected(source: Source, error: VerificationError) -> Outcome:
    level = logging.INFO if isinstance(error, UnknownTenant) else None
    detail = f"{error.reason}: {error.detail}" if error.detail else error.reason
    return answer("rejected", source, reason=error.reason, detail=detail, level=level)


# -- the sequence ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Verified:
    """A delivery that is proven genuine, and what its body says."""

    source: Source
    delivery: Delivery
    verification: Verification
    now: datetime
    request_id: str
    late: bool
    data: Any
    form: FormData

    def reading(self, data: Any) -> Reading:
        return Reading(self.delivery, data, self.form)


def receive(
    source: Source,
    delivery: Delivery,
    *,
    now: datetime,
    request_id: str,
    allow: Callable[[], Outcome | None] = lambda: None,
) -> Outcome:
    """Verify, identify, claim and run a delivery.

    Args:
        source: Its source.
        delivery: The delivery with its whole body.
        now: When it came.
        request_id: Kept on the receipt.
        allow: Asked about a verified delivery inside its window; returns a refusal, or None.
    """
    try:
        verification = _verify(source, delivery, now)
        side = check_window(verification.signed_at, now, source.tolerance)
        if side == "future":
            return answer("late", source, reason=side, detail=_beside(source, verification, now, side))
        refused = allow() if side == "inside" else None  # what is late begins nothing
        if refused is not None:
            return refused
        check_body_digests(delivery)
        data, form = source.provider.parse(delivery.body, delivery.header("content-type") or "")
        verified = _Verified(
            source=source, delivery=delivery, verification=verification, now=now, request_id=request_id,
            late=side == "late", data=data, form=form,
        )  # fmt: skip
        outcome = _take(verified)
        if side == "late":
            outcome = _with_detail(outcome, _beside(source, verification, now, side))
        return outcome
    except VerificationError as error:
        return _rejected(source, error)
    except MalformedContent as error:
        return answer("malformed", source, detail=error.detail)
    except Misconfigured as error:
        return answer("unavailable", source, detail=str(error))
    except Error as error:
        return _database_fault(source, error)
    except Exception as error:
        return answer("unavailable", source, detail="unexpected error", error=error)


def _verify(source: Source, delivery: Delivery, now: datetime) -> Verification:
    verification = source.provider.verifier.verify(delivery, source.live_secrets(delivery.tenant, now))
    holder = verification.secret.tenant
    if holder is not None and source.tenant == URL_TENANT and holder != delivery.tenant:
        raise SignatureMismatch("the secret is another tenant's")
    return verification


def _beside(source: Source, verification: Verification, now: datetime, side: str) -> str:
    """Say, for the log, how far a stamp lies beside the window."""
    signed_at = verification.signed_at
    if signed_at is None or source.tolerance is None:
        return ""
    over = abs((now - signed_at).total_seconds()) - source.tolerance
    hint = ""
    if signed_at - now > _WRONG_UNIT:
        hint = "; the value looks like milliseconds"
    elif now - signed_at > _WRONG_UNIT and signed_at < datetime(1971, 1, 1, tzinfo=UTC):
        hint = "; the value looks like seconds"
    words = "too old" if side == "late" else "in the future"
    return f"signature valid, {words} by {over:.0f} s{hint}"


def _with_detail(outcome: Outcome, detail: str) -> Outcome:
    return replace(outcome, detail="; ".join(filter(None, (outcome.detail, detail))))


def _take(verified: _Verified) -> Outcome:
    """Answer a handshake, or take the event, or the events, that a genuine delivery reports."""
    provider = verified.source.provider
    handshake = provider.handshake(verified.data) if provider.handshake is not None and not verified.late else None
    if handshake is not None:
        reply = Reply(handshake.body, 200, handshake.content_type)
        return answer("handshake", verified.source, reply=reply, detail="handshake")
    if provider.split is not None:
        return _take_all(verified, provider.split(verified.data))
    event = _identify(verified, verified.data)
    arrival = _arrival(verified, event)
    if arrival is None:
        return answer("declined", verified.source, event=event)
    try:
        return _settle(verified, arrival, intake.claim(arrival))
    except Error as error:
        return replace(_database_fault(verified.source, error), event=event)


def _identify(verified: _Verified, data: Any, item: int | None = None) -> Event:
    source, holder = verified.source, verified.verification.secret.tenant
    event = identify(
        verified.reading(data),
        verified.verification,
        source.rules,
        tenant=verified.delivery.tenant,
        late=verified.late,
        item=item,
    )
    if source.rules.tenant is not None and not source.tenant_signed and holder is None:
        raise SignatureMismatch("neither the proof nor the secret vouches for the tenant")
    if holder is not None and source.tenant is not None and holder != event.tenant:
        raise SignatureMismatch("the secret is another tenant's")
    return event


def _arrival(verified: _Verified, event: Event) -> Arrival | None:
    """Ask the project about an event; None where it declines it."""
    source = verified.source
    if source.accept is not None and not event.held and not _accepts(source, source.accept(event)):
        return None
    arrival = Arrival(
        event=event,
        source=source,
        delivery=verified.delivery,
        now=verified.now,
        request_id=verified.request_id,
        using=receipts_alias(),
        handlers=wanted(source.name, event.event_type),
        waking=dispatchers.ready(source),
    )
    if event.held:
        return replace(arrival, hold=event.held)
    schema = schema_for(source.schemas, event.event_type)
    if schema is None:
        return arrival
    try:
        return replace(arrival, validated=validated(schema, event.data))
    except SchemaFailed as error:
        handlers_logger.error("webhook schema %s of source %s failed", schema.__name__, source.name, exc_info=error)
        return replace(arrival, hold="schema", why=error.detail)
    except SchemaMismatch as error:
        if source.invalid == "reject":
            raise
        return replace(arrival, hold="schema", why=error.detail)


def _accepts(source: Source, verdict: Any) -> bool:
    """Return the project's word; a forgotten ``return`` must decline nothing."""
    if not isinstance(verdict, bool):
        raise Misconfigured(
            f"{SETTING} source {source.name!r}: ACCEPT returned {type(verdict).__name__}; return True or False."
        )
    return verdict


def _settle(verified: _Verified, arrival: Arrival, claim: Claim) -> Outcome:
    """Run what was claimed, or say what became of the event earlier."""
    if claim.decision == "run":
        return _run(verified, arrival, claim)
    source, event = verified.source, arrival.event
    if claim.decision in ("late", "declined"):  # nothing is stored that could be referred to
        return answer(claim.decision, source, reason=claim.reason, detail=claim.reason, event=event)
    outcome = answer(
        claim.decision,
        source,
        fingerprint=claim.fingerprint,
        receipt_id=claim.receipt_id,
        retry_after=claim.retry_after,
        reply=Reply.of(claim.reply),
        reason=claim.reason,
        detail=arrival.why or claim.reason,
        event=event,
    )
    if claim.decision == "quarantined" and claim.new:
        announce(webhook_quarantined, reason=claim.reason, **_about(outcome, source))
    elif claim.decision == "duplicate":
        announce(webhook_duplicate, **_about(outcome, source))
    if claim.wake and claim.receipt_id is not None:
        dispatchers.wake_on_commit(_owner(claim, source), claim.receipt_id, arrival.using)
    return outcome


def _owner(claim: Claim, source: Source) -> Source:
    """Return the source that runs a receipt: sources of one namespace share their receipts."""
    return source if claim.row is None else source_of(claim.row.source) or source


def _about(outcome: Outcome, source: Source) -> dict[str, Any]:
    event_type = outcome.event.event_type if outcome.event is not None else ""
    return {"receipt_id": outcome.receipt_id, "source": source.name, "event_type": event_type}


def _run(verified: _Verified, arrival: Arrival, claim: Claim) -> Outcome:
    assert claim.receipt_id is not None
    source, event = verified.source, arrival.event
    if claim.row is None:
        lease = processing.Lease(
            receipt_id=claim.receipt_id,
            fingerprint=claim.fingerprint,
            source=source,
            event_type=event.event_type,
            using=arrival.using,
            attempt=claim.attempt,
            seconds=claim.lease,
            names=claim.handlers,
        )
    else:
        lease = processing.lease_of(
            claim.row, _owner(claim, source), arrival.using, claim.lease, claim.handlers, "delivery"
        )
    run = processing.carry_out(lease, _first(verified, arrival, claim) if claim.new else None)
    waits = run.decision in ("retry_later", "busy", "failed")
    return answer(
        run.decision,
        source,
        fingerprint=claim.fingerprint,
        receipt_id=claim.receipt_id,
        retry_after=run.retry_after if waits else None,
        reply=run.reply,
        detail=f"attempt {claim.attempt}" if claim.attempt > 1 else "",
        event=event,
    )


def _first(verified: _Verified, arrival: Arrival, claim: Claim) -> WebhookEvent:
    """Return what the handlers of a new receipt get, without reading it back."""
    assert claim.receipt_id is not None
    source, event = verified.source, arrival.event
    first = WebhookEvent(
        source=source.name,
        tenant=event.tenant,
        event_id=event.event_id,
        event_type=event.event_type,
        object_key=event.object_key,
        occurred_at=event.occurred_at,
        signed_at=event.signed_at,
        received_at=verified.now,
        body=verified.delivery.body,
        headers=kept_headers(verified.delivery, source),
        key_id=event.key_id,
        receipt_id=claim.receipt_id,
        attempt=claim.attempt,
        signed=source.provider.signs,
        provider=source.provider,
        schema=schema_for(source.schemas, event.event_type),
        item=event.item,
        part=MISSING if event.item is None else event.data,
    )
    if event.item is None:
        first.__dict__["data"] = event.data  # parsed once already
    if first.schema is not None:
        first.__dict__["validated"] = arrival.validated
    return first


# -- many events in one body -------------------------------------------------------------------------------------------


def _take_all(verified: _Verified, items: Sequence[Any]) -> Outcome:
    """Store what is new of a batch at once, then run its events one by one; the answer is the worst of theirs."""
    found = [_item(verified, number, item) for number, item in enumerate(items)]
    arrivals = [each for each in found if isinstance(each, Arrival)]
    outcomes = [each for each in found if isinstance(each, Outcome)]
    arrivals = [intake.or_paused(arrival) for arrival in arrivals]
    new = set(batches.store(arrivals, items=len(items))) if arrivals else set()
    for arrival in arrivals:
        first = arrival.event.fingerprint in new
        new.discard(arrival.event.fingerprint)
        claim = batches.claim_stored(arrival) if first else intake.claim(arrival)
        outcomes.append(_settle(verified, arrival, claim))
    counts = Counter(each.decision for each in outcomes)
    detail = f"{len(items)} items" + "".join(f", {decision} {n}" for decision, n in counts.items())
    if not outcomes:
        return answer("declined", verified.source, detail=detail)
    return replace(worst(outcomes), detail=detail)


def _item(verified: _Verified, number: int, item: Any) -> Arrival | Outcome:
    """Return an item of a batch on its way to its claim, or what the project or its schema says against it."""
    try:
        event = _identify(verified, item, number)
    except MalformedContent:
        rules = verified.source.rules
        event = unidentified(
            verified.reading(item), verified.verification, rules,
            tenant=verified.delivery.tenant, late=verified.late, item=number,
        )  # fmt: skip
    try:
        return _arrival(verified, event) or answer("declined", verified.source, event=event)
    except SchemaMismatch as error:
        return answer("malformed", verified.source, detail=error.detail, event=event)


# -- what is told ------------------------------------------------------------------------------------------------------


def tell(outcome: Outcome, source: str) -> None:
    """Tell onlookers that a delivery was refused.

    Args:
        outcome: What became of it.
        source: The source's name.
    """
    if outcome.decision in _REFUSED:
        announce(webhook_rejected, source=source, decision=outcome.decision, reason=outcome.reason)


def _database_fault(source: Source, error: Exception) -> Outcome:
    """Answer for a database that is away (one ERROR line) or only busy (everyday on SQLite)."""
    busy = is_sqlite_lock(error) or is_conflict(error) or is_lock_timeout(error)
    detail = f"the database is {'busy' if busy else 'away or refuses the statement'} ({type(error).__name__})"
    level = logging.WARNING if busy else logging.ERROR
    return answer("unavailable", source, retry_after=1 if busy else None, detail=detail, level=level)

"""A receipt in words, for a terminal: every text from outside is made visible and cut."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.utils import timezone

from django_webhook_guard import plans
from django_webhook_guard.models import WebhookAttempt, WebhookEffect, WebhookReceipt
from django_webhook_guard.models.receipts import Reason, Status
from django_webhook_guard.text import shortened

#: The longest text of a line, in characters, and how many attempts are shown, the newest.
LONGEST = 300
ATTEMPTS = 10


def moment(value: datetime | None, now: datetime) -> str:
    """Return a time of the project's zone, with its date where that is not today's.

    Args:
        value: The moment.
        now: What today is, an aware moment.
    """
    if value is None:
        return "-"
    local = timezone.localtime(value)
    return local.strftime("%H:%M:%S" if local.date() == timezone.localtime(now).date() else "%Y-%m-%d %H:%M:%S")


def line(receipt: WebhookReceipt, now: datetime) -> str:
    """Return the line of a receipt in a list of several."""
    about = (receipt.source, receipt.event_type or "-", receipt.event_id or receipt.object_key or "-")
    told = "  ".join(shortened(each, 60) for each in about)
    return f"{receipt.pk}  {moment(receipt.received_at, now)}  {receipt.status}  {told}  {receipt.reference}"


def all_about(receipt: WebhookReceipt, now: datetime) -> Iterator[str]:
    """Return the lines about one receipt, one sentence first.

    Args:
        receipt: The receipt, as it was read.
        now: What today is, an aware moment.
    """
    found = plans.marks(receipt)
    attempts = list(
        WebhookAttempt.objects.using(receipt._state.db)
        .filter(receipt_id=receipt.pk)
        .defer("traceback")
        .order_by("-number", "-pk")[: ATTEMPTS + 1]
    )
    yield sentence(receipt, found, attempts, now)
    yield ""
    yield from _state(receipt, now)
    yield from _handlers(receipt, found, now)
    yield from _effects(receipt, now)
    yield from _attempts(receipt, attempts, now)
    yield from _next(receipt, plans.plan(receipt, found))


def sentence(receipt: WebhookReceipt, found: plans.Marks, attempts: Sequence[WebhookAttempt], now: datetime) -> str:
    """Return what became of a receipt, in one sentence."""
    results = [row.result for row in found.rows if row.result]
    if receipt.result and receipt.result not in results:
        results.append(receipt.result)
    ended = moment(receipt.processed_at, now)
    error = f": {_error(attempts[0])}" if attempts and attempts[0].error_class else ""
    reason = f", {receipt.get_reason_display()}" if receipt.reason else ""
    due = moment(receipt.due_at, now)
    what = {
        Status.RECEIVED: f"waits to be run since {due}" if _past(receipt.due_at, now) else f"is due {due}",
        Status.PROCESSING: f"is being run, attempt {receipt.attempts}, until {moment(receipt.lease_until, now)}",
        Status.PROCESSED: f"processed {ended}",
        Status.FAILED: f"failed {_times(receipt.attempts)}, is due again {due}{error}",
        Status.DEAD: f"dead after {_times(receipt.attempts, 'attempt')}{reason}{error}",
        Status.QUARANTINED: f"held{reason}",
        Status.IGNORED: f"ignored {ended}{reason}",
        Status.DISCARDED: f"discarded by a person {ended}",
    }.get(Status(receipt.status), receipt.status)
    told = "; ".join(shortened(each, LONGEST) for each in results) if receipt.status == Status.PROCESSED else ""
    return f"received {moment(receipt.received_at, now)}, {what}{', ' if told else ''}{told}"


def _past(value: datetime | None, now: datetime) -> bool:
    return value is not None and value <= now


def _times(number: int, word: str = "time") -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _error(attempt: WebhookAttempt) -> str:
    return shortened(f"{attempt.error_class.removeprefix('builtins.')}: {attempt.message}", LONGEST)


def _row(name: str, *values: str) -> str:
    return f"  {name:<12}{'  '.join(each for each in values if each)}"


def _state(receipt: WebhookReceipt, now: datetime) -> Iterator[str]:
    reason = str(receipt.get_reason_display()) if receipt.reason != Reason.NONE else ""
    yield f"receipt {receipt.pk}"
    yield _row("state", receipt.status, f"({reason})" if reason else "")
    tenant = f"tenant {shortened(receipt.tenant, 255)}" if receipt.tenant is not None else ""
    yield _row("source", shortened(receipt.source, 100), tenant)
    yield _row("event", shortened(receipt.event_type, 255) or "-", shortened(receipt.event_id, 255))
    if receipt.object_key:
        yield _row("object", shortened(receipt.object_key, 255))
    yield _row("reference", receipt.reference)
    yield _row("signed", moment(receipt.signed_at, now), f"with key {shortened(receipt.key_id, 64) or '-'}")
    if receipt.occurred_at is not None:
        yield _row("occurred", moment(receipt.occurred_at, now))
    yield _row("deliveries", f"{receipt.deliveries}, the last {moment(receipt.last_delivered_at, now)}")
    batch = f"item {receipt.item} of batch {receipt.batch_id}" if receipt.batch_id is not None else ""
    yield _row("body", f"{receipt.body_size:,} bytes", batch)
    if receipt.status in (Status.QUARANTINED, Status.DEAD) and receipt.result:
        yield _row("said", shortened(receipt.result, LONGEST))


def _handlers(receipt: WebhookReceipt, found: plans.Marks, now: datetime) -> Iterator[str]:
    rows = [
        (row.handler, f"{row.get_mark_display()} {moment(row.created_at, now)}, attempt {row.attempt}", row.result)
        for row in found.rows
    ]
    if receipt.last_handler:
        ended = f"done {moment(receipt.processed_at, now)}, attempt {receipt.attempts}"
        rows.append((receipt.last_handler, ended, receipt.result))
    waiting = plans.waiting(receipt, found)
    if rows or waiting or found.unread:
        yield "handlers"
    for handler, ended, result in rows:
        yield f"  {shortened(handler, 255)}: {ended}{', ' if result else ''}{shortened(result, LONGEST)}"
    for handler in waiting:
        yield f"  {shortened(handler, 255)}: to be run"
    for alias in found.unread:
        yield f"  the marks on the database {alias!r} cannot be read"


def _effects(receipt: WebhookReceipt, now: datetime) -> Iterator[str]:
    effects = list(WebhookEffect.objects.using(receipt._state.db).of_receipt(receipt.fingerprint))
    if effects:
        yield "effects"
    for effect in effects:
        about = f"{effect.get_state_display()} {moment(effect.finished_at or effect.key_since, now)}"
        result = shortened(effect.result, LONGEST) if effect.state == WebhookEffect.State.DONE else ""
        key = f"key {shortened(effect.key, 64)}, {_times(effect.calls, 'call')} with it"
        yield f"  {shortened(effect.handler, 255)}: {shortened(effect.name, 255)}: {about}, {result or key}"


def _attempts(receipt: WebhookReceipt, attempts: Sequence[WebhookAttempt], now: datetime) -> Iterator[str]:
    if not attempts:
        return
    yield f"attempts{f' (the last {ATTEMPTS})' if len(attempts) > ATTEMPTS else ''}"
    for attempt in reversed(attempts[:ATTEMPTS]):
        actor = f" by {shortened(attempt.actor, 255)}" if attempt.actor else ""
        yield (
            f"  {attempt.number}: {attempt.outcome} {moment(attempt.started_at, now)}, {attempt.trigger}{actor}, "
            f"{attempt.duration_ms} ms"
        )
        if attempt.error_class:
            yield f"     {shortened(attempt.handler, 255)}: {_error(attempt)}"


def _next(receipt: WebhookReceipt, plan: plans.Plan) -> Iterator[str]:
    yield "what next"
    runs = _names(plan.runs) or "nothing"
    if plan.problem:
        yield f"  {plan.problem}"
    elif receipt.retryable:
        yield f"  webhook_retry {receipt.pk} would run {runs}"
    elif receipt.releasable:
        yield f"  webhook_release {receipt.pk} would run {runs}"
    elif receipt.rerunnable:
        yield f"  nothing failed; webhook_retry {receipt.pk} --missing would run {runs}"
    elif receipt.status == Status.DISCARDED:
        yield "  nothing: a person ended it"
    else:
        yield f"  it is to run {runs} already"
    if plan.stays and not plan.problem:
        yield f"  done, and not run again: {_names(plan.stays)}"
    if plan.unknown:
        yield f"  not known to this process: {_names(plan.unknown)}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(shortened(name, 255) for name in names)

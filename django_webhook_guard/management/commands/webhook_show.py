"""``manage.py webhook_show``."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from django_webhook_guard.conf import receipts_alias, runnable_names, source_of
from django_webhook_guard.events import owed
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookEffect, WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet, Status
from django_webhook_guard.text import shortened, visible

#: How many receipts are listed, and how many attempts are told.
MOST, ATTEMPTS = 50, 10
_LONGEST = 255


class Command(BaseCommand):
    """Tell what became of an event."""

    help = (
        "Tells what became of a webhook event, in one sentence and then in detail. It is looked up exactly, as event "
        "id, object of a configured source, reference (16 to 64 hex from an answer or a log) or number of its receipt."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", help="An event id, an object, a reference or a number.")
        parser.add_argument("--source", help="Only of this source.")

    def handle(self, *, what: str, source: str | None, **options: Any) -> None:
        found = _found(what.strip(), source)
        if not found:
            raise CommandError(
                f"Nothing is known as {visible(what)!r}: not as event id, object, reference or number of a receipt."
            )
        if len(found) > 1:
            for receipt in found:
                self.stdout.write(f"{receipt.pk}  {_title(receipt)}  {_sentence(receipt)}")
            self.stdout.write(f"{'More than ' if len(found) == MOST else ''}{len(found)} receipts: give a number.")
            return
        for line in _told(found[0]):
            self.stdout.write(line)


def _found(what: str, source: str | None) -> list[WebhookReceipt]:
    """Return the receipts that a text names, each kind of name by an index of its own, the oldest first."""
    if not what or len(what) > _LONGEST or "\0" in what or any("\ud800" <= each <= "\udfff" for each in what):
        return []
    rows: Any = WebhookReceipt.objects.using(receipts_alias()).defer("body")
    if source is not None:
        rows = rows.filter(source=source)
    found = {receipt.pk: receipt for named in _lookups(rows, what) for receipt in named[:MOST]}
    return sorted(found.values(), key=lambda receipt: (receipt.received_at, receipt.pk))[:MOST]


def _lookups(rows: ReceiptQuerySet, what: str) -> Iterator[ReceiptQuerySet]:
    yield rows.filter(event_id=what)
    yield rows.filter(source__in=runnable_names(), object_key=what)
    if what.isascii() and what.isdigit() and len(what) < 19:
        yield rows.filter(pk=int(what))
    if 16 <= len(what) <= 64 and not set(what) - set("0123456789abcdef"):
        yield rows.filter(fingerprint__gte=what, fingerprint__lt=f"{what}g")


def _title(receipt: WebhookReceipt) -> str:
    return f"{visible(receipt.source)} {visible(receipt.event_type) or '-'} {visible(receipt.event_id) or '-'}"


def _at(moment: datetime | None) -> str:
    if moment is None:
        return "-"
    local = timezone.localtime(moment)
    return local.strftime("%H:%M:%S" if local.date() == timezone.localdate() else "%Y-%m-%d %H:%M:%S")


def _sentence(receipt: WebhookReceipt) -> str:
    """Say in one sentence what became of it."""
    told = [f"received {_at(receipt.received_at)}"]
    if receipt.status in (Status.PROCESSED, Status.IGNORED, Status.DISCARDED, Status.DEAD):
        told.append(f"{receipt.status} {_at(receipt.processed_at)}")
    elif receipt.status != Status.RECEIVED:
        told.append(receipt.status)
    results = _results(receipt)
    if receipt.status == Status.FAILED and receipt.due_at is not None:
        told.append(f"next attempt {_at(receipt.due_at)}")
    if receipt.reason:
        told.append(str(receipt.get_reason_display()))
    told += [shortened(result, 200) for result in results]
    return ", ".join(told)


def _results(receipt: WebhookReceipt) -> list[str]:
    marks = WebhookCheckpoint.objects.using(receipts_alias()).filter(fingerprint=receipt.fingerprint, mark="done")
    found = [receipt.result] if receipt.result else []
    return found + [result for result in marks.order_by("created_at").values_list("result", flat=True) if result]


def _told(receipt: WebhookReceipt) -> Iterator[str]:
    using = receipts_alias()
    yield _sentence(receipt)
    yield ""
    yield f"receipt     {receipt.pk}, reference {receipt.reference}"
    yield f"event       {_title(receipt)}"
    if receipt.object_key:
        yield f"object      {visible(receipt.object_key)}"
    if receipt.tenant is not None:
        yield f"tenant      {visible(receipt.tenant)}"
    yield f"signed      {_at(receipt.signed_at)} with key {visible(receipt.key_id) or '-'}"
    yield f"deliveries  {receipt.deliveries} counted, the last {_at(receipt.last_delivered_at)}"
    yield f"attempts    {receipt.attempts}"
    marks = {row.handler: row for row in WebhookCheckpoint.objects.using(using).filter(fingerprint=receipt.fingerprint)}
    for name in dict.fromkeys([*receipt.handlers, *marks]):
        row = marks.get(name)
        how = row.mark if row is not None else ("done" if name == receipt.last_handler else "open")
        yield f"handler     {visible(name)}: {how}{_behind(row.result if row is not None else '')}"
    for effect in WebhookEffect.objects.using(using).of_receipt(receipt.fingerprint):
        yield (
            f"effect      {visible(effect.name)} of {visible(effect.handler)}: {effect.get_state_display()} since "
            f"{_at(effect.finished_at or effect.key_since)}, key {visible(effect.key)}"
        )
    attempts = WebhookAttempt.objects.using(using).filter(receipt_id=receipt.pk).order_by("-number", "-pk")[:ATTEMPTS]
    for attempt in reversed(attempts):
        error = f": {visible(attempt.error_class)}{_behind(attempt.message)}" if attempt.error_class else ""
        yield f"attempt {attempt.number:<3} {_at(attempt.started_at)} {attempt.trigger}, {attempt.outcome}{error}"
    if receipt.retryable:
        yield f"a retry     {_plan(receipt, set(marks))}"


def _behind(text: str) -> str:
    return f", {shortened(text, 200)}" if text else ""


def _plan(receipt: WebhookReceipt, ended: set[str]) -> str:
    """Say what a retry would do, as far as this process knows."""
    source = source_of(receipt.source)
    if source is None:
        return f"is not possible here: this process has no source {visible(receipt.source)!r}"
    try:
        handlers = owed(source.name, receipt.event_type, receipt.handlers)
    except Misconfigured as error:
        return f"is not possible here: {visible(str(error))}"
    gave_up = WebhookCheckpoint.objects.using(receipts_alias()).gave_up(receipt.fingerprint)
    done = (ended | {receipt.last_handler}) - set(gave_up.values_list("handler", flat=True))
    runs = [visible(handler.name) for handler in handlers if done.isdisjoint(handler.names)]
    return f"runs {', '.join(runs)}" if runs else "finds nothing to run"

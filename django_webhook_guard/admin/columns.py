"""How values are shown: as text whatever is in them, times relative and absolute, states by colour and word."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.admin.retrying import row_shown
from django_webhook_guard.events import Reply
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Status
from django_webhook_guard.text import shortened, visible

Column = Callable[[WebhookReceipt], str]

#: Longest text in a cell of the list, in characters; the detail page has all of it.
CELL = 40
EMPTY = "-"


def text(value: Any, limit: int | None = None) -> str:
    """Return a value as isolated text, so that neither markup nor writing direction leaves it."""
    written = "" if value is None else str(value)
    if not written:
        return EMPTY
    if limit is None or len(written) <= limit:
        return format_html("<bdi>{}</bdi>", visible(written))
    return format_html('<bdi title="{}">{}</bdi>', visible(written), shortened(written, limit))


def chip(value: str, label: Any) -> str:
    """Return a state in words, coloured by the stylesheet."""
    kind = value if value in (*Status.values, "fenced") else "unknown"
    return format_html('<span class="webhook-status webhook-status-{}">{}</span>', kind, visible(str(label)))


def moment(value: datetime | None) -> str:
    """Return a time as its distance from now, with the time itself beside it."""
    if value is None:
        return EMPTY
    return format_html(
        '<time class="webhook-time" datetime="{}">{} <span class="webhook-quiet">{}</span></time>',
        value.isoformat(),
        relative(value, timezone.now()),
        date_format(timezone.localtime(value) if timezone.is_aware(value) else value, "Y-m-d H:i:s T"),
    )


def relative(value: datetime, now: datetime) -> str:
    """Return how long ago, or in how long, in words."""
    length = _length(value, now)
    if value > now:
        return gettext("in %(length)s") % {"length": length}
    return gettext("%(length)s ago") % {"length": length}


def _length(value: datetime, now: datetime) -> str:
    seconds = int(abs((now - value).total_seconds()))
    if seconds < 60:
        return ngettext("%(count)d second", "%(count)d seconds", seconds) % {"count": seconds}
    return timesince(min(value, now), max(value, now), depth=1)


def plain(name: str, limit: int | None = None, label: Any = None) -> Column:
    """Return a column that shows a field as text, under its own name where no label is given."""
    return _column(name, lambda receipt: text(getattr(receipt, name), limit), label)


def time(name: str, label: Any = None) -> Column:
    """Return a column that shows a field as a moment, under its own name where no label is given."""
    return _column(name, lambda receipt: moment(getattr(receipt, name)), label)


def _column(name: str, show: Column, label: Any) -> Column:
    # There is no order field on purpose: the list has the one order that an index serves.
    field: Any = WebhookReceipt._meta.get_field(name)

    @admin.display(description=label or field.verbose_name)
    def column(receipt: WebhookReceipt) -> str:
        return show(receipt)

    column.__name__ = name
    return column


# -- columns of their own ----------------------------------------------------------------------------------------------


@admin.display(description=_("status"))
def status(receipt: WebhookReceipt) -> str:
    """Show the status, and why it is so."""
    shown = chip(receipt.status, receipt.get_status_display())
    if not receipt.reason:
        return shown
    return format_html('{} <span class="webhook-quiet">{}</span>', shown, visible(str(receipt.get_reason_display())))


@admin.display(description=_("type and source"))
def event(receipt: WebhookReceipt) -> str:
    """Show what happened, and who says so."""
    return _two_lines(text(receipt.event_type, CELL), text(receipt.source, CELL))


@admin.display(description=_("key and reference"))
def key(receipt: WebhookReceipt) -> str:
    """Show the sender's id, or else the key, and the reference that the sender was told."""
    return _two_lines(text(receipt.event_id or receipt.idempotency_key, CELL), reference(receipt))


@admin.display(description=_("object and tenant"))
def about(receipt: WebhookReceipt) -> str:
    """Show which object the event is about, and whose."""
    if not receipt.tenant:
        return text(receipt.object_key, CELL)
    return _two_lines(text(receipt.object_key, CELL), text(receipt.tenant, CELL))


def _two_lines(first: str, second: str) -> str:
    return format_html('{}<br><span class="webhook-quiet">{}</span>', first, second)


@admin.display(description=_("attempts"))
def attempts_with_form(receipt: WebhookReceipt) -> str:
    """Show the attempts, and put into the list's form what it showed of this receipt and when."""
    at: datetime = receipt.shown_at  # type: ignore[attr-defined]
    return format_html(
        '{}<input type="hidden" name="shown" value="{}"><input type="hidden" name="shown_at" value="{}">',
        receipt.attempts,
        row_shown(receipt),
        at.isoformat(),
    )


@admin.display(description=_("attempts"))
def attempts(receipt: WebhookReceipt) -> str:
    """Show the attempts, and how many of them count no more."""
    if not receipt.excused:
        return str(receipt.attempts)
    words = gettext("%(attempts)d, of which %(excused)d do not count any more")
    return words % {"attempts": receipt.attempts, "excused": receipt.excused}


@admin.display(description=_("reference"))
def reference(receipt: WebhookReceipt) -> str:
    """Show what the sender was told."""
    return format_html("<code>{}</code>", receipt.reference)


@admin.display(description=_("answer of a handler"))
def reply(receipt: WebhookReceipt) -> str:
    """Show what a handler answers to the sender, without its content."""
    found = Reply.of(receipt.reply)
    if found is None:
        return EMPTY
    words = gettext("%(status)d, %(size)d bytes of %(type)s")
    return visible(words % {"status": found.status, "size": len(found.content), "type": found.content_type})


@admin.display(description=_("batch"))
def item(receipt: WebhookReceipt) -> str:
    """Show which item of which batch the event is."""
    if receipt.item is None:
        return EMPTY
    if receipt.batch_id is None:
        return gettext("item %(item)d") % {"item": receipt.item + 1}
    return gettext("item %(item)d of batch #%(batch)d") % {"item": receipt.item + 1, "batch": receipt.batch_id}

"""Sources and their handlers: what is paused by whom and why, and the buttons to pause and to resume."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_webhook_guard import bulk, operations
from django_webhook_guard.admin import columns
from django_webhook_guard.conf import configuration, receipts_alias
from django_webhook_guard.handlers import registered
from django_webhook_guard.models import WebhookPause
from django_webhook_guard.text import shortened, visible

MAX_REASON = 200


@dataclass(frozen=True, kw_only=True)
class Row:
    """A source, or one of its handlers.

    Args:
        source: The source's name.
        handler: The handler's, or an empty string for the source as a whole.
        shown: The same, fit to be shown.
        pause: Its pause, or None.
        since: Since when, as it is shown.
    """

    source: str
    handler: str
    shown: str
    pause: WebhookPause | None = None
    since: Any = ""


def paused() -> list[WebhookPause]:
    """Return what is paused, as it is in the database now."""
    return list(WebhookPause.objects.using(receipts_alias()).order_by("source", "handler"))


def rows() -> list[Row]:
    """Return every configured source with its handlers, and whatever else is paused."""
    pauses = {(pause.source, pause.handler): pause for pause in paused()}
    known: dict[tuple[str, str], None] = {}
    for source in configuration().sources.values():
        known[source.name, ""] = None
        known |= {(source.name, handler.name): None for handler in registered() if handler.serves(source.name)}
    known |= dict.fromkeys(pauses)
    return [_row(source, handler, pauses.get((source, handler))) for source, handler in known]


def _row(source: str, handler: str, pause: WebhookPause | None) -> Row:
    return Row(
        source=source,
        handler=handler,
        shown=visible(handler or source),
        pause=pause,
        since=columns.moment(pause.since) if pause is not None else "",
    )


def act(request: HttpRequest) -> None:
    """Pause or resume what the form says, and tell the person."""
    user: Any = request.user
    source, handler = request.POST.get("source", ""), request.POST.get("handler", "")
    reason = shortened(request.POST.get("reason", "").strip(), MAX_REASON)
    if (source, handler) not in {(row.source, row.handler) for row in rows()}:
        messages.error(request, _("There is no such source or handler here."))
        return
    about = {"what": visible(handler or source)}
    if "pause" in request.POST:
        done = operations.pause(source, handler, actor=user.get_username(), reason=reason)
        words = (
            _("“%(what)s” is paused: deliveries are stored, and nothing runs.") if done else _("It was paused before.")
        )
    else:
        rate, readable = _rate(request)
        if not readable:
            messages.error(request, _("Give a rate of at least %(slowest)s.") % {"slowest": f"{bulk.SLOWEST:g}"})
            return
        done = operations.resume(source, handler, actor=user.get_username(), reason=reason, rate=rate)
        words = _("“%(what)s” goes on.") if done else _("It was not paused any more.")
    messages.add_message(request, messages.SUCCESS if done else messages.WARNING, words % about)


def _rate(request: HttpRequest) -> tuple[float | None, bool]:
    """Return receipts a second, None for all at once, and whether it could be read."""
    given = request.POST.get("rate", "").strip()
    if not given:
        return None, True
    try:
        rate = float(given)
    except ValueError:
        return None, False
    return rate, bulk.SLOWEST <= rate <= bulk.FASTEST

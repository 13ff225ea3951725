"""Many receipts, chosen by what they have in common, and brought in batches."""

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from django_webhook_guard.conf import names_of, receipts_alias
from django_webhook_guard.management.choosing import numbers_of
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt

#: How many receipts are read at once.
BATCH = 200
_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def since(text: str) -> datetime:
    """Read a moment: ISO 8601, a bare date (its start), or ``90m``, ``2h``, ``3d`` ago.

    Raises:
        ArgumentTypeError: It is none.
    """
    return _moment(text, timedelta(0))


def until(text: str) -> datetime:
    """Read a moment as ``since`` does; a bare date is the end of that day.

    Raises:
        ArgumentTypeError: It is none.
    """
    return _moment(text, timedelta(days=1))


def _moment(text: str, of_a_day: timedelta) -> datetime:
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return timezone.now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        if len(text) == len("2026-11-30"):
            return timezone.make_aware(datetime.combine(date.fromisoformat(text) + of_a_day, time.min))
        moment = datetime.fromisoformat(text)
        return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is no time: give 2026-11-30, 2026-11-30T14:00, or 90m, 2h, 3d ago") from None


def add_filters(parser: CommandParser, statuses: Sequence[str]) -> None:
    """Add the arguments that choose receipts.

    Args:
        parser: The command's.
        statuses: States that may be asked for.
    """
    parser.add_argument("receipts", nargs="*", help="Numbers of receipts, or references (16 to 64 hex).")
    parser.add_argument("--source", help="Of this source; its former names are meant, too.")
    parser.add_argument("--type", dest="event_type", help="Of this event type; invoice.* is all that begin so.")
    parser.add_argument("--status", action="append", choices=statuses, help="In this state; may be given again.")
    parser.add_argument("--since", type=since, help="Received since: a date, a time, or 2h for two hours ago.")
    parser.add_argument("--until", type=until, help="Received before, likewise; a date is meant with all of its day.")
    parser.add_argument("--error", help="Whose last attempt failed with this class: ValueError, or with its module.")
    parser.add_argument("--handler", help="Whose last attempt failed in this handler (the first one that failed).")
    parser.add_argument(
        "--order", choices=["oldest", "newest"], default="oldest", help="Which come first (default: %(default)s)."
    )


def chosen(options: dict[str, Any], statuses: Sequence[str]) -> QuerySet[WebhookReceipt]:
    """Return the receipts that the arguments choose, without their bodies.

    Args:
        options: The command's.
        statuses: States that are meant where none is asked for; empty: all.

    Raises:
        CommandError: The arguments choose nothing, or name a receipt that is not there.
    """
    rows = WebhookReceipt.objects.using(receipts_alias()).defer("body")
    names = ("source", "event_type", "status", "since", "until", "error", "handler")
    given = [name for name in names if options[name]]
    if options["receipts"]:
        if given:
            raise CommandError("Give receipts, or filters such as --source and --since, not both.")
        return rows.filter(pk__in=[number for text in options["receipts"] for number in numbers_of(text)])
    if not given:
        raise CommandError("Give numbers or references of receipts, or a filter such as --source or --since.")
    wanted = options["status"] or statuses
    rows = rows.filter(received_at__lt=options["until"] or timezone.now())
    if wanted:
        rows = rows.filter(status__in=wanted)
    if options["source"]:
        rows = rows.filter(source__in=names_of(options["source"]) or [options["source"]])
    if options["since"]:
        rows = rows.filter(received_at__gte=options["since"])
    return _of_type(_failed_so(rows, options["error"], options["handler"]), options["event_type"])


def _of_type(rows: QuerySet[WebhookReceipt], event_type: str | None) -> QuerySet[WebhookReceipt]:
    if not event_type:
        return rows
    if event_type.endswith("*"):
        return rows.filter(event_type__startswith=event_type[:-1])
    return rows.filter(event_type=event_type)


def _failed_so(rows: QuerySet[WebhookReceipt], error: str | None, handler: str | None) -> QuerySet[WebhookReceipt]:
    if not error and not handler:
        return rows
    last = WebhookAttempt.objects.using(rows.db).filter(receipt_id=OuterRef("pk"), number=OuterRef("attempts"))
    if error:
        last = last.filter(Q(error_class=error) | Q(error_class__endswith=f".{error}"))
    if handler:
        last = last.filter(Q(handler=handler) | Q(handler__startswith=f"{handler} ("))  # of a signal with its receiver
    return rows.filter(Exists(last))


def batches(
    rows: QuerySet[WebhookReceipt], *, newest: bool = False, size: int = BATCH
) -> Iterator[list[WebhookReceipt]]:
    """Bring receipts in the order in which they came, or the other way round; what changes meanwhile comes once.

    Args:
        rows: Which.
        newest: Whether the newest come first.
        size: How many are read at once.
    """
    sign, order = ("lt", ("-received_at", "-pk")) if newest else ("gt", ("received_at", "pk"))
    part = rows.order_by(*order)
    while found := list(part[:size]):
        yield found
        if len(found) < size:
            return
        last = found[-1]
        beyond = Q(**{f"received_at__{sign}": last.received_at}) | Q(
            received_at=last.received_at, **{f"pk__{sign}": last.pk}
        )
        # The first condition says nothing new; it is the one that an index serves.
        part = rows.filter(**{f"received_at__{sign}e": last.received_at}).filter(beyond).order_by(*order)

"""What the commands that act on receipts have in common: whom they mean, and what they print."""

import getpass
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet
from django.utils import timezone

from django_webhook_guard import groups, operations
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Reason, ReceiptQuerySet, Status

_NUMBER = re.compile(r"[0-9]{1,18}")
_REFERENCE = re.compile(r"[0-9a-f]{16,64}")
LIMIT = 1000
#: Reasons for which a receipt is held.
HELD = [str(each) for each in (Reason.LATE, Reason.SCHEMA, Reason.NO_KEY, Reason.REPLAYED, Reason.KEY_REUSED)]


def positive(text: str) -> int:
    """Read a positive whole number.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no positive whole number below a billion")
    return int(text)


class ActOnReceipts(BaseCommand):
    """A command that does something to the receipts that it is given."""

    #: What it does to one; returns whether it did.
    operation: Callable[..., bool]
    #: The word for it, when it is done, and what else a person should know.
    done: str
    afterwards: str = ""
    possible: Callable[[WebhookReceipt], bool]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "receipts", nargs="*", help="Numbers of receipts, or references (16 to 64 hex) from answers and logs."
        )
        parser.add_argument("--source", help="Of this source; together with --held.")
        parser.add_argument("--held", choices=HELD, help="All that are held for this reason.")
        parser.add_argument("--reason", default="", help="Why, for the log.")
        parser.add_argument("--actor", default="", help="Who (default: the user of the operating system).")
        parser.add_argument("--limit", type=positive, default=LIMIT, help="At most so many (default: %(default)s).")
        parser.add_argument("--dry-run", action="store_true", help="Print what would be done, and do nothing.")

    def handle(self, *, receipts: list[str], limit: int, dry_run: bool, **options: Any) -> None:
        found = list(self._chosen(receipts, options["source"], options["held"])[: limit + 1])
        if not found:
            raise CommandError("No such receipt. The admin's list shows numbers and references.")
        actor, told = options["actor"] or user(), []
        for receipt in found[:limit]:
            told.append(self._told(receipt, actor, options["reason"], dry_run))
            self.stdout.write(f"receipt {receipt.pk}: {told[-1]}")
        if self.afterwards and self.done in told:
            self.stdout.write(self.afterwards)
        if len(found) > limit:
            self.stdout.write("There are more: run it again, or give a higher --limit.")
        left = sum("left alone" in each for each in told)
        if left:
            raise CommandError(f"{left} of {len(told)} receipts were left alone: look at each, and run it again.")

    def _told(self, receipt: WebhookReceipt, actor: str, reason: str, dry_run: bool) -> str:
        if not type(self).possible(receipt):
            return f"left alone, it is {receipt.status}"
        if self.afterwards and not operations.runnable(receipt):
            return f"left alone, this process has no source {receipt.source!r}"
        if dry_run:
            return f"would be {self.done}"
        return self.done if type(self).operation(receipt, actor=actor, reason=reason) else "left alone, it moved on"

    def _chosen(self, named: Iterable[str], source: str | None, held: str | None) -> QuerySet[WebhookReceipt]:
        rows = WebhookReceipt.objects.using(receipts_alias()).defer("body").order_by("received_at", "pk")
        if named:
            if source or held:
                raise CommandError("Give receipts, or --source and --held, not both.")
            return rows.filter(pk__in=[number for text in named for number in numbers(text)])
        if not source or not held:
            raise CommandError("Give numbers or references of receipts, or both --source and --held.")
        return rows.filter(source=source, status=Status.QUARANTINED, reason=held)


def numbers(text: str) -> list[int]:
    """Return the numbers of the receipts that a text names.

    Raises:
        CommandError: It names none, or several.
    """
    rows = WebhookReceipt.objects.using(receipts_alias())
    if _NUMBER.fullmatch(text) and rows.filter(pk=int(text)).exists():
        return [int(text)]
    if _REFERENCE.fullmatch(text):
        found = list(rows.filter(fingerprint__gte=text, fingerprint__lt=f"{text}g").values_list("pk", flat=True)[:2])
        if len(found) > 1:
            raise CommandError(f"{text!r} names several receipts: give more of it, or a number.")
        if found:
            return found
    raise CommandError(f"No receipt {text!r}: give a number, or 16 to 64 hex of its fingerprint.")


def moment(text: str) -> datetime:
    """Read a time: ISO 8601, in the project's time zone where it names none.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: write 2026-11-30T02:00, or with +00:00 behind it") from None
    return found if timezone.is_aware(found) else timezone.make_aware(found)


def add_filters(parser: CommandParser) -> None:
    """Add the options that choose receipts by what they are."""
    parser.add_argument(
        "receipts", nargs="*", help="Numbers of receipts, or references (16 to 64 hex) from answers and logs."
    )
    parser.add_argument("--source", help="Of this source; its former names are not included.")
    parser.add_argument("--type", dest="event_type", help="Of this event type, exactly.")
    parser.add_argument("--status", choices=Status.values, help="In this state.")
    parser.add_argument("--error", metavar="GROUP", help="Failed in this way: the group in the page's address.")
    parser.add_argument("--since", type=moment, help="Received at this time or later (ISO 8601).")
    parser.add_argument("--until", type=moment, help="Received before this time.")


def filtered(
    *,
    receipts: Iterable[str],
    source: str | None,
    event_type: str | None,
    status: str | None,
    error: str | None,
    since: datetime | None,
    until: datetime | None,
) -> ReceiptQuerySet:
    """Return the receipts that the options of ``add_filters`` choose.

    Raises:
        CommandError: A receipt is not there, or nothing is said at all.
    """
    rows: Any = WebhookReceipt.objects.using(receipts_alias())
    wanted = {
        "source": source, "event_type": event_type, "status": status, "received_at__gte": since,
        "received_at__lt": until,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if receipts:
        given["pk__in"] = [number for text in receipts for number in numbers(text)]
    if not given and error is None:
        raise CommandError("Say which receipts: numbers, references, or --source, --status, --error, --since, --until.")
    rows = rows.filter(**given)
    return groups.failing(rows, error) if error is not None else rows


def user() -> str:
    """Return who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command"

"""What the commands that act on receipts have in common: whom they mean, and what they print."""

import getpass
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet

from django_webhook_guard import operations
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Reason, Status

NUMBER = re.compile(r"[0-9]{1,18}")
REFERENCE = re.compile(r"[0-9a-f]{16,64}")
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
            return rows.filter(pk__in=[number for text in named for number in numbers_of(text)])
        if not source or not held:
            raise CommandError("Give numbers or references of receipts, or both --source and --held.")
        return rows.filter(source=source, status=Status.QUARANTINED, reason=held)


def numbers_of(text: str) -> list[int]:
    """Return the numbers of the receipts that a text names.

    Args:
        text: A number, or a reference.

    Raises:
        CommandError: It names none, or several.
    """
    rows = WebhookReceipt.objects.using(receipts_alias())
    if NUMBER.fullmatch(text) and rows.filter(pk=int(text)).exists():
        return [int(text)]
    if REFERENCE.fullmatch(text):
        found = list(of_reference(rows, text).values_list("pk", flat=True)[:2])
        if len(found) > 1:
            raise CommandError(f"{text!r} names several receipts: give more of it, or a number.")
        if found:
            return found
    raise CommandError(f"No receipt {text!r}: give a number, or 16 to 64 hex of its fingerprint.")


def of_reference(rows: QuerySet[WebhookReceipt], text: str) -> QuerySet[WebhookReceipt]:
    """Return those of some receipts whose fingerprint begins with a text, by its index."""
    return rows.filter(fingerprint__gte=text, fingerprint__lt=f"{text}g")


def user() -> str:
    """Return the name of the operating system's user, for the log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command"

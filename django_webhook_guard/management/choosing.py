"""What the commands that act on receipts have in common: whom they mean, and what they print."""

import getpass
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet

from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Reason, Status

_NUMBER = re.compile(r"[0-9]{1,18}")
_REFERENCE = re.compile(r"[0-9a-f]{16,64}")
LIMIT = 1000


def positive(text: str) -> int:
    """Read a positive whole number.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no positive whole number")
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
        parser.add_argument("--source", help="Of this source: all, or those that --held names.")
        parser.add_argument("--held", choices=[each for each in Reason.values if each], help="Held for this reason.")
        parser.add_argument("--reason", default="", help="Why, for the log.")
        parser.add_argument("--actor", default="", help="Who (default: the user of the operating system).")
        parser.add_argument("--limit", type=positive, default=LIMIT, help="At most so many (default: %(default)s).")
        parser.add_argument("--dry-run", action="store_true", help="Print what would be done, and do nothing.")

    def handle(self, *, receipts: list[str], limit: int, dry_run: bool, **options: Any) -> None:
        chosen = list(self._chosen(receipts, options["source"], options["held"])[:limit])
        if not chosen:
            raise CommandError("No such receipt. The admin's list shows numbers and references.")
        actor = options["actor"] or _user()
        failed = 0
        for receipt in chosen:
            told = self._told(receipt, actor, options["reason"], dry_run)
            failed += told != self.done
            self.stdout.write(f"receipt {receipt.pk}: {told}")
        if failed and not dry_run:
            raise CommandError(f"{failed} of {len(chosen)} receipts were left alone.")
        if self.afterwards and not dry_run:
            self.stdout.write(self.afterwards)

    def _told(self, receipt: WebhookReceipt, actor: str, reason: str, dry_run: bool) -> str:
        if not type(self).possible(receipt):
            return f"left alone, it is {receipt.status}"
        if dry_run:
            return f"would be {self.done}"
        return self.done if type(self).operation(receipt, actor=actor, reason=reason) else "left alone, it moved on"

    def _chosen(self, named: Iterable[str], source: str | None, held: str | None) -> QuerySet[WebhookReceipt]:
        rows = WebhookReceipt.objects.using(receipts_alias()).defer("body").order_by("pk")
        if named:
            if source or held:
                raise CommandError("Give receipts, or --source and --held, not both.")
            return rows.filter(pk__in=[number for text in named for number in self._numbers(text)])
        if not source or not held:
            raise CommandError("Give numbers or references of receipts, or both --source and --held.")
        return rows.filter(source=source, status=Status.QUARANTINED, reason=held)

    def _numbers(self, text: str) -> list[int]:
        """Return the numbers of the receipts that a text names."""
        rows = WebhookReceipt.objects.using(receipts_alias())
        if _NUMBER.fullmatch(text) and rows.filter(pk=int(text)).exists():
            return [int(text)]
        if _REFERENCE.fullmatch(text):
            found = list(
                rows.filter(fingerprint__gte=text, fingerprint__lt=f"{text}g").values_list("pk", flat=True)[:2]
            )
            if found:
                return found
        raise CommandError(f"No receipt {text!r}: give a number, or 16 to 64 hex of its fingerprint.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command"

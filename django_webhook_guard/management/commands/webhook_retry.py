"""``manage.py webhook_retry``."""

from argparse import ArgumentTypeError
from collections import Counter
from dataclasses import dataclass
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_webhook_guard import bulk, operations
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.management.choosing import LIMIT, add_filters, filtered, positive, user
from django_webhook_guard.management.progress import Progress
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.bulk import Wish
from django_webhook_guard.models.receipts import ReceiptQuerySet

_FILTERS = ("receipts", "source", "event_type", "status", "error", "since", "until")


def rate(text: str) -> float:
    """Read receipts a second.

    Raises:
        ArgumentTypeError: It is no number, or out of bounds.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not bulk.SLOWEST <= number <= bulk.FASTEST:
        raise ArgumentTypeError(f"{text!r} is no rate of {bulk.SLOWEST:g} to {bulk.FASTEST:g} receipts a second")
    return number


@dataclass(frozen=True, kw_only=True)
class _Again:
    """What runs.

    Args:
        rerun: Whether processed and ignored receipts are meant as well.
        handlers: Names of handlers that run again although they are done; None: all.
    """

    rerun: bool
    handlers: list[str] | None = None


class Command(BaseCommand):
    """Make receipts due again that a person names or describes."""

    help = (
        "Makes failed and dead webhook receipts due, with a new budget of attempts; handlers that are done do not run "
        "again, unless they are named. Says first how many there are. Nothing runs here: webhook_sweep, or a worker, "
        "brings them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_filters(parser)
        again = parser.add_mutually_exclusive_group()
        again.add_argument("--handlers", metavar="NAMES", help="Comma list: these run again, also where they are done.")
        again.add_argument("--all-handlers", action="store_true", help="Every handler runs again, done or not.")
        again.add_argument(
            "--missing", action="store_true", help="Processed and ignored receipts, too: what has not run yet runs."
        )
        parser.add_argument("--order", choices=["oldest", "newest"], default="oldest", help="Who goes first.")
        parser.add_argument("--rate", type=rate, default=bulk.RATE, help="Receipts a second (default: %(default)g).")
        parser.add_argument("--limit", type=positive, default=LIMIT, help="At most so many (default: %(default)s).")
        parser.add_argument("--reason", default="", help="Why, for the log.")
        parser.add_argument("--actor", default="", help="Who (default: the user of the operating system).")
        parser.add_argument("--dry-run", action="store_true", help="Say how many there are, and do nothing.")

    def handle(self, *, order: str, limit: int, dry_run: bool, **options: Any) -> None:
        again = self._again(options)
        wish = Wish.RERUN if again.rerun else Wish.RETRY
        rows = bulk.fit(filtered(**{name: options[name] for name in _FILTERS}), wish)
        count = rows.order_by().values("pk")[: limit + 1].count()
        self.stdout.write(self._counted(count, limit, wish))
        if dry_run or not count:
            return
        if not options["reason"]:
            raise CommandError("Give a --reason: it is kept in the log.")
        counts = self._retry(self._ordered(rows, order)[:limit], again, options)
        self.stdout.write(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
        if counts["made due"]:
            self.stdout.write("webhook_sweep, or a worker, brings them.")
        if counts.total() - counts["made due"]:
            raise CommandError("Some were left alone: look at each, and run it again.")

    def _again(self, options: dict[str, Any]) -> _Again:
        if options["all_handlers"]:
            return _Again(rerun=True)
        if options["handlers"] is not None:
            names = [name.strip() for name in options["handlers"].split(",") if name.strip()]
            if not names:
                raise CommandError("--handlers names none; --missing runs what has not run.")
            return _Again(rerun=True, handlers=names)
        return _Again(rerun=options["missing"], handlers=[])

    def _counted(self, count: int, limit: int, wish: str) -> str:
        words = "failed or dead" if wish == Wish.RETRY else "failed, dead, processed or ignored"
        more = f" or more; the first {limit} are taken, --limit is for more" if count > limit else ""
        return f"{min(count, limit)} {words} receipts{more}"

    def _ordered(self, rows: ReceiptQuerySet, order: str) -> ReceiptQuerySet:
        return rows.order_by(*(["received_at", "pk"] if order == "oldest" else ["-received_at", "-pk"]))

    def _retry(self, rows: ReceiptQuerySet, again: _Again, options: dict[str, Any]) -> Counter[str]:
        actor, counts = options["actor"] or user(), Counter[str]()
        numbers = list(rows.values_list("pk", flat=True))
        progress = Progress(self.stdout, len(numbers), "receipts")
        try:
            for number in numbers:
                counts[self._one(number, again, actor, options["reason"])] += 1
                progress.step()
                if number != numbers[-1]:
                    sleep(1 / options["rate"])
        except KeyboardInterrupt:
            progress.end()
            raise CommandError(f"Stopped: {counts['made due']} of {len(numbers)} were made due.") from None
        progress.end()
        return counts

    def _one(self, number: int, again: _Again, actor: str, reason: str) -> str:
        rows = WebhookReceipt.objects.using(receipts_alias()).defer("body", "headers")
        receipt = rows.filter(pk=number).first()
        if receipt is None:
            return "gone"
        if not operations.runnable(receipt):
            return f"left alone, for this process has no source {receipt.source!r}"
        if again.rerun:
            done = operations.rerun(receipt, again.handlers, actor=actor, reason=reason)
        else:
            done = operations.retry(receipt, actor=actor, reason=reason)
        return "made due" if done else "left alone, for they moved on"

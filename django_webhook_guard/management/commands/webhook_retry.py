"""``manage.py webhook_retry``."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_webhook_guard import operations
from django_webhook_guard.handlers import SIGNAL, registered
from django_webhook_guard.management.choosing import positive, user
from django_webhook_guard.management.filtering import add_filters, batches, chosen
from django_webhook_guard.management.progress import Progress
from django_webhook_guard.management.stopping import Stop, stopped_by_signals
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Status
from django_webhook_guard.text import visible

FAILED = [str(Status.FAILED), str(Status.DEAD)]
RERUNNABLE = [str(Status.PROCESSED), str(Status.IGNORED), *FAILED]
DONE = "made due"
Operation = Callable[[WebhookReceipt], bool]


class Command(BaseCommand):
    """Make receipts due again."""

    help = (
        "Makes webhook receipts due, with a new budget of attempts: failed and dead ones, of which only handlers run "
        "that are not done, or with --handlers, --all-handlers or --missing finished ones, too. Nothing runs here: "
        "webhook_sweep or a worker brings them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_filters(parser, RERUNNABLE)
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--handlers", help="Run these again, also where they are done: names, comma between them.")
        which.add_argument("--all-handlers", action="store_true", help="Run every handler again.")
        which.add_argument(
            "--missing", action="store_true", help="Run only those that have not run, such as one deployed later."
        )
        parser.add_argument("--rate", type=positive, help="At most so many a second.")
        parser.add_argument("--reason", default="", help="Why, for the log.")
        parser.add_argument("--actor", default="", help="Who (default: the user of the operating system).")
        parser.add_argument("--dry-run", action="store_true", help="Count what would be made due, and do nothing.")
        parser.add_argument("--no-input", action="store_true", help="Do not ask before many are made due.")

    def handle(self, *, dry_run: bool, no_input: bool, order: str, rate: int | None, **options: Any) -> None:
        names = self._handlers(options)
        rerun = names is not None or options["all_handlers"]
        if not rerun and set(options["status"] or ()) - set(FAILED):
            raise CommandError("A retry is for failed and dead ones; add --handlers, --all-handlers or --missing.")
        rows = chosen(options, RERUNNABLE if rerun else FAILED)
        total = rows.count()
        if not total:
            raise CommandError("No such receipt.")
        self.stdout.write(f"{total} {'receipt' if total == 1 else 'receipts'} chosen")
        if not dry_run and not no_input and not options["receipts"] and not self._agreed(total):
            raise CommandError("Nothing was done.")
        work = _Work(options["actor"] or user(), options["reason"], rerun, names, dry_run)
        self._do(work, batches(rows, newest=order == "newest"), total, rate)
        self._tell(work.told, total, dry_run, named=bool(options["receipts"]))

    def _handlers(self, options: dict[str, Any]) -> list[str] | None:
        if options["missing"]:
            return []
        if options["handlers"] is None:
            return None
        names = [name.strip() for name in options["handlers"].split(",") if name.strip()]
        known = {name for handler in registered() for name in handler.names} | {SIGNAL}
        if not names or not set(names) <= known:
            raise CommandError(f"--handlers {options['handlers']!r}: known are {', '.join(sorted(known))}.")
        return names

    def _agreed(self, total: int) -> bool:
        try:
            return input(f"Make {total} due? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            raise CommandError("Nobody is there to be asked: say --no-input.") from None
        except KeyboardInterrupt:
            raise CommandError("Nothing was done.", returncode=130) from None

    def _do(self, work: "_Work", found: Iterator[list[WebhookReceipt]], total: int, rate: int | None) -> None:
        progress, began = Progress(self.stdout, total), monotonic()
        with stopped_by_signals() as stop:
            try:
                for receipt in (receipt for batch in found for receipt in batch):
                    _keep_to(rate, began, work.told.total(), stop)
                    if stop.is_set():
                        break
                    work.do(receipt)
                    progress.tell(work.told.total(), work.summary)
            except Error as error:
                progress.end()
                raise CommandError(
                    f"The database failed ({type(error).__name__}). Until then: {work.summary}."
                ) from error
        progress.end()
        if stop.is_set():
            left = max(total - work.told.total(), 0)
            raise CommandError(f"Stopped: {work.summary}; {left} not looked at.", returncode=130)

    def _tell(self, told: Counter[str], total: int, dry_run: bool, *, named: bool) -> None:
        for what, number in sorted(told.items(), key=lambda each: each[0] != DONE):
            self.stdout.write(f"{number} {'would be ' if dry_run and what == DONE else ''}{what}")
        if told[DONE] and not dry_run:
            self.stdout.write("webhook_sweep or a worker brings them.")
        left = told.total() - told[DONE]
        if left and named:
            raise CommandError(f"{left} of {told.total()} receipts were left alone.")


class _Work:
    """Makes receipts due, one transaction each, and counts."""

    def __init__(self, actor: str, reason: str, rerun: bool, names: Collection[str] | None, dry_run: bool) -> None:
        self.told: Counter[str] = Counter()
        self._about = {"actor": actor, "reason": reason}
        self._rerun, self._names, self._dry_run = rerun, names, dry_run

    @property
    def summary(self) -> str:
        done = f"would be {DONE}" if self._dry_run else DONE
        return f"{self.told[DONE]} {done}, {self.told.total() - self.told[DONE]} left alone"

    def do(self, receipt: WebhookReceipt) -> None:
        """Make one due, if it can be."""
        self.told[self._done(receipt)] += 1

    def _done(self, receipt: WebhookReceipt) -> str:
        if not (receipt.rerunnable if self._rerun else receipt.retryable):
            return f"left alone, {receipt.status}"
        if not operations.runnable(receipt):
            return f"left alone, this process has no source {visible(receipt.source)}"
        if self._dry_run:
            return DONE
        if self._rerun:
            done = operations.rerun(receipt, self._names, **self._about)
        else:
            done = operations.retry(receipt, **self._about)
        return DONE if done else "left alone, moved on"


def _keep_to(rate: int | None, began: float, done: int, stop: Stop) -> None:
    """Wait until the next one may go."""
    if rate is not None and (early := began + done / rate - monotonic()) > 0:
        stop.wait(early)

"""``manage.py webhook_prune``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.management.choosing import positive
from django_webhook_guard.retention import MAX_BATCH, Pruned, prune


class Command(BaseCommand):
    """Let go what RETENTION does not keep."""

    help = (
        "Lets bodies and headers of finished webhook receipts expire, and deletes receipts that RETENTION does not "
        "keep any more, with all that hangs on them. Schedule it every night."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Count, and change nothing.")
        parser.add_argument(
            "--batch",
            type=positive,
            default=1000,
            help=f"Receipts of one transaction, at most {MAX_BATCH:,} (default: %(default)s).",
        )

    def handle(self, *, dry_run: bool, batch: int, verbosity: int, **options: Any) -> None:
        if batch > MAX_BATCH:
            raise CommandError(f"--batch is {batch}: give {MAX_BATCH} or less, a batch is one transaction.")

        def report(last: int, done: Pruned) -> None:
            if verbosity:
                self.stdout.write(f"up to receipt {last}: {done.read} read, {_told(done)}")
                self.stdout.flush()

        try:
            done = prune(batch=batch, dry_run=dry_run, report=report)
        except Misconfigured as error:
            raise CommandError(str(error)) from None
        except Error as error:
            raise CommandError(
                f"The database failed ({type(error).__name__}: {error}). The batches above are done; run it again."
            ) from error
        self.stdout.write(f"{'would let go' if dry_run else 'let go'}: {_told(done)}")
        for why, number in sorted(done.kept.items()):
            self.stdout.write(f"kept back: {number}, {why}")


def _told(done: Pruned) -> str:
    return (
        f"{done.bodies} bodies expired, {done.headers} headers expired, {done.rows} rows deleted, "
        f"{done.seen} seen rows deleted, {done.counts} counts deleted, "
        f"{done.samples} samples deleted"
    )

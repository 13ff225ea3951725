"""``manage.py webhook_sweep``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_webhook_guard.conf import runnable_names
from django_webhook_guard.management.choosing import positive
from django_webhook_guard.processing import Run
from django_webhook_guard.sweeper import sweep


class Command(BaseCommand):
    """Run the receipts that are due, once."""

    help = (
        "Runs every webhook receipt that is due: failed ones whose time has come, retried ones, and those whose run "
        "died. One pass; schedule it every minute."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--batch", type=positive, default=100, help="How many receipts at most (default: %(default)s)."
        )
        parser.add_argument("--source", help="Only receipts of this source.")

    def handle(self, *, batch: int, source: str | None, verbosity: int, **options: Any) -> None:
        known = runnable_names()
        if source is not None and source not in known:
            raise CommandError(f"--source {source!r} is not configured; known: {', '.join(known) or 'none'}.")

        def report(receipt_id: int, run: Run) -> None:
            if verbosity > 1:
                self.stdout.write(f"receipt {receipt_id}: {run.status}")

        counts = sweep(batch=batch, source=source, report=report)
        told = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        self.stdout.write(told or "nothing is due")

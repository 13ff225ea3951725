"""``manage.py webhook_sweep``."""

from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_webhook_guard import sweeper
from django_webhook_guard.conf import runnable_names
from django_webhook_guard.management.choosing import positive
from django_webhook_guard.management.stopping import stopped_by_signals
from django_webhook_guard.processing import Run


def seconds(text: str) -> float:
    """Read positive seconds.

    Raises:
        ArgumentTypeError: It is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 3600:
        raise ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to 3600")
    return number


class Command(BaseCommand):
    """Bring the receipts that are due: once, or for ever."""

    help = (
        "Brings every webhook receipt that is due: deferred and failed ones, retried ones, and those whose run died. "
        "What is due now, once, to be scheduled every minute; with --forever a worker, which is all that a project "
        "without a broker needs. Any number may run at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--batch", type=positive, default=100, help="How many receipts a pass looks at (default: %(default)s)."
        )
        parser.add_argument("--source", help="Only receipts of this source.")
        parser.add_argument("--forever", action="store_true", help="Go on until SIGTERM or SIGINT.")
        parser.add_argument(
            "--interval",
            type=seconds,
            default=sweeper.IDLE,
            help="With --forever: seconds to wait while nothing is due (default: %(default)s).",
        )

    def handle(
        self, *, batch: int, source: str | None, forever: bool, interval: float, verbosity: int, **options: Any
    ) -> None:
        known = runnable_names()
        if source is not None and source not in known:
            raise CommandError(f"--source {source!r} is not configured; known: {', '.join(known) or 'none'}.")

        def report(receipt_id: int, run: Run) -> None:
            if verbosity > 1:
                self.stdout.write(f"receipt {receipt_id}: {run.status}")
                self.stdout.flush()

        if not forever:
            self._tell(sweeper.sweep_all(batch=batch, source=source, report=report))
            return
        with stopped_by_signals() as stop:
            self.stdout.write("sweeping until SIGTERM")
            self.stdout.flush()
            self._tell(sweeper.forever(batch=batch, source=source, report=report, stop=stop, idle=interval))

    def _tell(self, counts: Mapping[str, int]) -> None:
        told = ", ".join(f"{number} {status}" for status, number in sorted(Counter(counts).items()))
        self.stdout.write(told or "nothing is due")

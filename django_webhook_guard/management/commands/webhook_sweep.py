"""``manage.py webhook_sweep``."""

import signal
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_webhook_guard import sweeper
from django_webhook_guard.conf import runnable_names
from django_webhook_guard.management.choosing import positive
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
        with _stopped_by_signals() as stop:
            self.stdout.write("sweeping until SIGTERM")
            self.stdout.flush()
            self._tell(sweeper.forever(batch=batch, source=source, report=report, stop=stop, idle=interval))

    def _tell(self, counts: Mapping[str, int]) -> None:
        told = ", ".join(f"{number} {status}" for status, number in sorted(Counter(counts).items()))
        self.stdout.write(told or "nothing is due")


class _Stop:
    """Told by a signal's handler, which may run between any two steps of the waiting: so there is no lock in it."""

    def __init__(self) -> None:
        self._told = False

    def tell(self) -> None:
        self._told = True

    def is_set(self) -> bool:
        return self._told

    def wait(self, timeout: float) -> None:
        end = monotonic() + timeout
        while not self._told and (left := end - monotonic()) > 0:
            sleep(min(left, 0.1))


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    """Turn the first SIGTERM or SIGINT into a stop after what is being run; a second one ends that, too."""
    stop = _Stop()
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def tell(number: int, frame: Any) -> None:
        if stop.is_set():
            raise SystemExit(128 + number)
        stop.tell()

    for number in former:
        signal.signal(number, tell)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

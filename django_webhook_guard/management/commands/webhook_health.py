"""``manage.py webhook_health``."""

import json
import sys
from argparse import ArgumentTypeError
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_webhook_guard import alerts, health

_MOST = 10**9


def seconds(text: str) -> float:
    """Read seconds of zero or more.

    Raises:
        ArgumentTypeError: It is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number <= _MOST:
        raise ArgumentTypeError(f"{text!r} is no number of seconds of zero or more")
    return number


def count(text: str) -> int:
    """Read a whole number of zero or more, below ``COUNTED``, beyond which nobody counts.

    Raises:
        ArgumentTypeError: It is no such number.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) >= health.COUNTED:
        raise ArgumentTypeError(f"{text!r} is no whole number from 0 to {health.COUNTED - 1}")
    return int(text)


class Command(BaseCommand):
    """Say how the package is doing."""

    help = (
        "Looks at clocks, at what is overdue, at sources that are silent or whose keys end, and at what is paused. "
        "Ends with 1 where a person should look at something."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")
        parser.add_argument(
            "--max-overdue", type=seconds, default=health.MAX_OVERDUE, metavar="SECONDS",
            help="How long a due receipt may wait (default: %(default)g).",
        )  # fmt: skip
        parser.add_argument("--max-dead", type=count, metavar="NUMBER", help="How many dead receipts are fine.")

    def handle(self, *, max_overdue: float, max_dead: int | None, **options: Any) -> None:
        try:
            limits = health.Limits(overdue=max_overdue, dead=max_dead)
            found = health.look(limits)
            if limits == health.Limits():  # others look by these, and would take back what is told by other ones
                alerts.tell(found)
        except Error as error:
            raise CommandError(f"The receipts' database cannot be asked ({type(error).__name__}).") from error
        if options["json"]:
            self._print_json(found)
        else:
            self._print(found)
        if not found.ok:
            sys.exit(1)

    def _print_json(self, found: health.Health) -> None:
        self.stdout.write(json.dumps({"ok": found.ok, **asdict(found), "warnings": found.warnings}))

    def _print(self, found: health.Health) -> None:
        self.stdout.write(f"clock: {found.database_skew:+.3f} s from the database's")
        for name, skew in found.source_skew.items():
            self.stdout.write(f"source {name}: signed {skew:+.1f} s from its arrival (median)")
        self.stdout.write(f"overdue: {found.overdue:.0f} s")
        self.stdout.write(f"dead: {found.dead}{' or more' if found.dead == health.COUNTED else ''}")
        self.stdout.write(
            f"quarantined: {found.quarantined}{' or more' if found.quarantined == health.COUNTED else ''}"
        )
        for name, silence in found.silent.items():
            self.stdout.write(
                f"source {name}: " + ("nothing yet" if silence is None else f"silent for {silence:.0f} s")
            )
        for finding in found.findings:
            self.stderr.write(f"{finding.level}: {finding.words}")

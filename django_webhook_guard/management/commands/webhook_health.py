"""``manage.py webhook_health``."""

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_webhook_guard import health


class Command(BaseCommand):
    """Say how the package is doing."""

    help = (
        "Looks at the clocks that leases and windows go by, and at what is overdue. Ends with 1 where a person should "
        "look at something."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, **options: Any) -> None:
        try:
            found = health.look()
        except Error as error:
            raise CommandError(f"The receipts' database cannot be asked ({type(error).__name__}).") from error
        if options["json"]:
            self._print_json(found)
        else:
            self._print(found)
        if not found.ok:
            sys.exit(1)

    def _print_json(self, found: health.Health) -> None:
        self.stdout.write(json.dumps({"ok": found.ok, **asdict(found)}))

    def _print(self, found: health.Health) -> None:
        self.stdout.write(f"clock: {found.database_skew:+.3f} s from the database's")
        for name, skew in found.source_skew.items():
            self.stdout.write(f"source {name}: signed {skew:+.1f} s from its arrival (median)")
        self.stdout.write(f"overdue: {found.overdue:.0f} s")
        self.stdout.write(f"dead: {found.dead}{' or more' if found.dead == health.COUNTED else ''}")
        for warning in found.warnings:
            self.stderr.write(f"warning: {warning}")

"""``manage.py webhook_export``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import Error

from django_webhook_guard.management.exporting import Choice, exported
from django_webhook_guard.management.filtering import add_filters, batches, chosen
from django_webhook_guard.models.receipts import Status

Out = TextIO | OutputWrapper


class Command(BaseCommand):
    """Write receipts as lines of JSON."""

    help = (
        "Writes webhook receipts as lines of JSON, with their bodies, marks, effects and attempts. What a source's "
        "PERSONAL names is masked, and its raw bodies are left out, unless --with-personal is given."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_filters(parser, Status.values)
        parser.add_argument("--output", default="-", help="A new file, readable by its owner (default: print).")
        parser.add_argument("--no-payload", action="store_true", help="Without bodies and data.")
        parser.add_argument("--with-personal", action="store_true", help="With personal values, and raw bodies.")

    def handle(self, *, output: str, order: str, no_payload: bool, with_personal: bool, **options: Any) -> None:
        rows = chosen(options, ())
        choice, written = Choice(payload=not no_payload, personal=with_personal), 0
        try:
            with self._opened(output) as out:
                for batch in batches(rows, newest=order == "newest"):
                    for line in exported(batch, choice):
                        out.write(line + "\n")
                        written += 1
        except Error as error:
            raise CommandError(f"The database failed ({type(error).__name__}) after {written} lines.") from error
        if output != "-":
            self.stdout.write(f"{written} receipts written to {output}")
        elif not written:
            raise CommandError("No such receipt.")

    @contextmanager
    def _opened(self, output: str) -> Iterator[Out]:
        if output == "-":
            yield self.stdout
            return
        try:
            file = os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii")
        except FileExistsError:
            raise CommandError(f"{output} is there already: name a new file, or remove it.") from None
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}.") from None
        with file:
            yield file

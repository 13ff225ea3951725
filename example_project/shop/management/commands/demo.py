"""``manage.py demo``."""

import secrets
import signal
import subprocess
import textwrap
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from example_project import server
from example_project.drill import TOLERANCE, Drill, Step

PORT = 8000
ADMIN = "admin"
COLUMNS = (("", 2), ("sent", 34), ("answered", 31), ("receipt", 24), ("effects", 7))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise ArgumentTypeError(f"{text!r} is no port")
    return int(text)


class Command(BaseCommand):
    """Play the drill against a server of this project."""

    help = (
        "Migrates, makes an admin user, starts a server on 127.0.0.1, sends it signed webhooks as a sender, an "
        "attacker and a bad day would, compares what came of it with what should, and leaves the server up."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="End after the drill instead of leaving the server up.")
        parser.add_argument("--port", type=_port, help=f"Port of 127.0.0.1 (default: {PORT}, or a free one).")

    def handle(self, *, once: bool, port: int | None, **options: Any) -> None:
        try:
            with _sigterm_as_interrupt():
                self._play(_chosen(port), once=once)
        except server.DemoFailed as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def _play(self, port: int, *, once: bool) -> None:
        self.stdout.write("Migrating the database.")
        call_command("migrate", verbosity=0)
        password = _make_admin()
        stripe_secret, partner_secret = secrets.token_hex(24), secrets.token_hex(24)
        environment = {
            "WEBHOOK_SOURCES": "stripe,partner",
            "WEBHOOK_STRIPE_PROVIDER": "stripe",
            "WEBHOOK_STRIPE_SECRETS": stripe_secret,
            "WEBHOOK_PARTNER_PROVIDER": "signed-nonce",
            "WEBHOOK_PARTNER_SECRETS": partner_secret,
            "WEBHOOK_TOLERANCE": str(TOLERANCE),
            "ALLOWED_HOSTS": "127.0.0.1",
        }
        with server.running(port, environment) as process:
            self.stdout.write(f"Sending signed webhooks to http://127.0.0.1:{port}/webhooks/ (about 15 seconds).\n\n")
            drill = Drill(
                port=port,
                stripe_secret=stripe_secret,
                partner_secret=partner_secret,
                sweep=lambda: server.manage("webhook_sweep", environment=environment),
            )
            self._report(drill)
            if not once:
                self._stay(process, port, password)

    def _report(self, drill: Drill) -> None:
        """Print the table row by row, and fail where a step differs."""
        self.stdout.write(_row(*(name for name, _ in COLUMNS)))
        self.stdout.write("  ".join("-" * width for _, width in COLUMNS))
        steps = []
        for step in drill.steps():
            steps.append(step)
            self.stdout.write(self._told(len(steps), step))
            self.stdout.flush()
        different = sum(bool(step.difference) for step in steps)
        if different:
            raise server.DemoFailed(f"{different} of {len(steps)} steps differ from what is expected, see above.")
        self.stdout.write(self.style.SUCCESS(f"\nAll {len(steps)} steps went as expected."))

    def _told(self, number: int, step: Step) -> str:
        seen = step.seen
        lines = [_row(str(number), step.sent, seen.answered, seen.stored, str(seen.effects))]
        if step.note:
            lines.append(f"    ({step.note})")
        if step.difference:
            lines.append(self.style.ERROR(f"    DIFFERS: {step.difference}"))
        return "\n".join(lines)

    def _stay(self, process: "subprocess.Popen[bytes]", port: int, password: str) -> None:
        receipts = reverse("admin:django_webhook_guard_webhookreceipt_changelist")
        self.stdout.write(
            f"\nThe server stays up until Ctrl-C:\n"
            f"  admin     http://127.0.0.1:{port}{reverse('admin:index')}\n"
            f"  receipts  http://127.0.0.1:{port}{receipts}\n"
            f"  user      {ADMIN}\n"
            f"  password  {password}\n"
        )
        self.stdout.flush()
        if process.wait():
            raise server.DemoFailed("The server ended by itself.")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let ``kill`` end the command as Ctrl-C does, so that the server never outlives it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _chosen(port: int | None) -> int:
    """Return the port that was asked for, or one that is free.

    Raises:
        CommandError: It was asked for, and somebody else has it.
    """
    if port is None:
        return PORT if server.is_free(PORT) else server.free_port()
    if not server.is_free(port):
        raise CommandError(f"Port {port} of 127.0.0.1 is in use: give another --port, or none to have a free one.")
    return port


def _make_admin() -> str:
    """Make the admin user, or give it a new password, which is returned."""
    password = secrets.token_urlsafe(12)
    users = get_user_model().objects
    user, _ = users.update_or_create(username=ADMIN, defaults={"is_staff": True, "is_superuser": True})
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def _row(*cells: str) -> str:
    """Lay out cells in their columns, over as many lines as the longest needs."""
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, (_, width) in zip(cells, COLUMNS, strict=True)]
    lines = []
    for number in range(max(map(len, wrapped))):
        pieces = [lines_[number] if number < len(lines_) else "" for lines_ in wrapped]
        lines.append("  ".join(f"{piece:<{width}}" for piece, (_, width) in zip(pieces, COLUMNS, strict=True)).rstrip())
    return "\n".join(lines)

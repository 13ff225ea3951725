"""``manage.py webhook_send``."""

import base64
import binascii
import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from django_webhook_guard.conf import source_of
from django_webhook_guard.handlers import DRILL
from django_webhook_guard.management.choosing import positive
from django_webhook_guard.management.composing import Message, composed, signed, source_named
from django_webhook_guard.management.sending import check_url, send
from django_webhook_guard.sources import URL_TENANT
from django_webhook_guard.text import visible

#: The longest line of an export that is read, in characters.
LONGEST = 64 * 1024 * 1024


class Command(BaseCommand):
    """Send a signed event to a URL."""

    help = (
        "Sends a webhook event to a URL, signed with a source's first live secret: a made-up one of type "
        f"{DRILL}, or one that webhook_export wrote. Ends with 1 unless the answer is a 2xx."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", help="Where to; no redirect is followed.")
        parser.add_argument("--source", help="Whose scheme and secret (default: the exported event's source).")
        parser.add_argument("--event", help="A file whose first line webhook_export wrote; - is what comes in.")
        parser.add_argument(
            "--type", dest="event_type", default=DRILL, help="Of a made-up event (default: %(default)s)."
        )
        parser.add_argument("--tenant", help="The tenant, where the source has some.")
        parser.add_argument("--timeout", type=positive, default=10, help="In seconds (default: %(default)s).")

    def handle(self, *, url: str, source: str | None, event: str | None, timeout: int, **options: Any) -> None:
        check_url(url)
        if event is not None:
            message = self._kept(url, source, _line(event), options["tenant"])
        elif source is not None:
            tenant, now = options["tenant"], timezone.now()
            message = composed(source_named(source), url, options["event_type"], tenant=tenant, now=now)
        else:
            raise CommandError("Give --source, or with --event a line of webhook_export.")
        answer = send(message, timeout=timeout)
        self.stdout.write(f"{answer.status} {answer.reason}".rstrip())
        if answer.body:
            self.stdout.write(answer.text)
        if not answer.good:
            raise CommandError(f"The answer is {answer.status}, no 2xx.")

    def _kept(self, url: str, name: str | None, line: dict[str, Any], tenant: str | None) -> Message:
        body, headers, stored = line.get("body"), line.get("headers"), line.get("source")
        if not isinstance(body, str):
            raise CommandError("The event was exported without its body: export it --with-personal, if that may be.")
        if not isinstance(headers, dict) or not isinstance(stored, str):
            raise CommandError("That is no line of webhook_export.")
        known = source_of(stored)
        source = source_named(name or (known.name if known is not None else stored))
        if tenant is None and source.tenant == URL_TENANT:
            tenant = line.get("tenant")
        try:
            raw = base64.b64decode(body, validate=True)
        except (ValueError, binascii.Error):
            raise CommandError("That is no line of webhook_export: its body is not base64.") from None
        kept = {key.lower(): value for key, value in headers.items() if isinstance(value, str)}
        return signed(source, url, kept, raw, tenant=tenant, now=timezone.now())


def _line(file: str) -> dict[str, Any]:
    """Return the first line of a file, read.

    Raises:
        CommandError: It cannot be read, or is no JSON object.
    """
    try:
        if file == "-":
            text = sys.stdin.readline(LONGEST)
        else:
            with Path(file).open(encoding="utf-8") as lines:
                text = lines.readline(LONGEST)
        found = json.loads(text)
    except OSError as error:
        raise CommandError(f"{visible(file)} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CommandError("That is no line of webhook_export.")
    return found

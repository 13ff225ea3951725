"""``manage.py webhook_export``."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from django_webhook_guard.conf import source_of
from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.management.choosing import add_filters, filtered
from django_webhook_guard.masking import MASK, masked
from django_webhook_guard.models import WebhookReceipt

FORMAT = 1
#: How many receipts are read at once; each may hold a body of ``MAX_BODY``.
CHUNK = 50
_FILTERS = ("receipts", "source", "event_type", "status", "error", "since", "until")
_FIELDS = (
    "fingerprint", "source", "tenant", "event_id", "event_type", "object_key", "idempotency_key", "key_origin",
    "key_id", "request_id", "status", "reason", "result", "handlers", "attempts", "deliveries", "signed_at",
    "occurred_at", "received_at", "last_delivered_at", "processed_at", "headers", "body_digest", "body_size", "item",
)  # fmt: skip


class Command(BaseCommand):
    """Write receipts as JSON lines."""

    help = (
        "Writes webhook receipts as JSON lines, the oldest first: what is known of each, its headers, its body as "
        "base64 and as parsed content. What its source names as personal is masked, and then the body left out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_filters(parser)
        parser.add_argument("--output", help="A file, which must not be there yet (default: standard output).")
        parser.add_argument("--no-payload", action="store_true", help="Without bodies and parsed content.")
        parser.add_argument("--with-personal", action="store_true", help="With what sources name as personal.")

    def handle(self, *, output: str | None, no_payload: bool, with_personal: bool, **options: Any) -> None:
        rows = filtered(**{name: options[name] for name in _FILTERS}).select_related("batch")
        count = 0
        with self._file(output) as file:
            for receipt in rows.order_by("received_at", "pk").iterator(CHUNK):
                line = _line(receipt, payload=not no_payload, personal=with_personal)
                file.write(json.dumps(line, cls=DjangoJSONEncoder) + "\n")
                count += 1
        self.stderr.write(f"{count} receipts")

    @contextmanager
    def _file(self, output: str | None) -> Iterator[Any]:
        if output is None:
            yield self.stdout
            return
        try:
            file = Path(output).open("x", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise CommandError(f"--output {output}: {error.strerror}.") from error
        with file:
            yield file


def _line(receipt: WebhookReceipt, *, payload: bool, personal: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"format": FORMAT, "id": receipt.pk}
    line |= {name: getattr(receipt, name) for name in _FIELDS}
    return line | (_payload(receipt, personal=personal) if payload else {})


def _payload(receipt: WebhookReceipt, *, personal: bool) -> dict[str, Any]:
    """Return body and content; of a source that is not known here, what is personal cannot be known either."""
    body, source = receipt.raw_body, source_of(receipt.source)
    if body is None:
        return {"body": None}
    raw = base64.b64encode(body).decode()
    if source is None:
        return {"body": raw} if personal else {"data": MASK}
    hidden = () if personal else source.personal
    whole = {} if hidden else {"body": raw}
    try:
        data = WebhookEvent.stored(receipt, source, receipt.attempts).data
    except (MalformedContent, LookupError):
        return whole
    return {**whole, "data": masked(data, hidden)}

"""``manage.py webhook_show``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet
from django.utils import timezone

from django_webhook_guard.conf import names_of, receipts_alias, runnable_names
from django_webhook_guard.identity import is_name
from django_webhook_guard.management import telling
from django_webhook_guard.management.choosing import NUMBER, REFERENCE, of_reference
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.text import shortened

#: How many receipts a list shows.
LISTED = 50


class Command(BaseCommand):
    """Say what became of an event."""

    help = (
        "Says what became of a webhook event: when it came, what its handlers did, what went wrong, and what a retry "
        "would do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "what", help="An event id, an object, a reference (16 to 64 hex from an answer), or a receipt's number."
        )
        parser.add_argument("--source", help="Only of this source; an object of a source that is not configured.")

    def handle(self, *, what: str, source: str | None, **options: Any) -> None:
        found, now = self._found(what, source), timezone.now()
        if not found:
            where = f"source {source!r}" if source else "all sources"
            raise CommandError(
                f"Nothing found for {shortened(what, 300)!r} in {where}: it is no event id, no object, no reference "
                "(16 to 64 hex) and no receipt's number there. It may be pruned, or was never accepted."
            )
        if len(found) == 1:
            for line in telling.all_about(found[0], now):
                self.stdout.write(line)
            return
        self.stdout.write(f"{len(found[:LISTED])} receipts, the oldest first{self._more(found)}:")
        for receipt in found[:LISTED]:
            self.stdout.write(telling.line(receipt, now))

    def _more(self, found: list[WebhookReceipt]) -> str:
        return " (there are more: name one by its number or reference)" if len(found) > LISTED else ""

    def _found(self, what: str, source: str | None) -> list[WebhookReceipt]:
        rows = WebhookReceipt.objects.using(receipts_alias()).defer("body").order_by("received_at", "pk")
        if source is not None:
            rows = rows.filter(source__in=names_of(source) or [source])
        kinds: list[QuerySet[WebhookReceipt]] = []
        if NUMBER.fullmatch(what):
            kinds.append(rows.filter(pk=int(what)))
        if REFERENCE.fullmatch(what):
            kinds.append(of_reference(rows, what))
        found = {receipt.pk: receipt for kind in kinds for receipt in kind[: LISTED + 1]}
        if is_name(what):
            about = rows if source is not None else rows.filter(source__in=runnable_names())
            for kind in (rows.filter(event_id=what), about.filter(object_key=what)):
                for receipt in kind[: LISTED + 1]:
                    if what in (receipt.event_id, receipt.object_key):  # not what a collation takes for the same
                        found[receipt.pk] = receipt
        return sorted(found.values(), key=lambda receipt: (receipt.received_at, receipt.pk))

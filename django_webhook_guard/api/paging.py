"""Pages of the list, newest first, found by where the last one ended."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db.models import BigIntegerField, Q
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet

#: Receipts of a page, and how many a client may ask for.
PAGE, LONGEST_PAGE = 50, 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"([np])([0-9]{1,17})-([0-9]{1,19})")


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place between two receipts.

    Args:
        way: ``n``: what came before it, older; ``p``: what came after it, newer.
        at: When the receipt beside it came.
        number: Its number.
    """

    way: Literal["n", "p"]
    at: datetime
    number: int

    def __str__(self) -> str:
        return f"{self.way}{(self.at - _EPOCH) // timedelta(microseconds=1)}-{self.number}"

    def rows(self, receipts: ReceiptQuerySet) -> ReceiptQuerySet:
        """Return what lies beyond, the nearest first; one range of an index, whatever comes at the same moment."""
        if self.way == "n":
            beyond = Q(received_at__lt=self.at) | Q(pk__lt=self.number)
            return receipts.filter(beyond, received_at__lte=self.at).order_by("-received_at", "-pk")
        beyond = Q(received_at__gt=self.at) | Q(pk__gt=self.number)
        return receipts.filter(beyond, received_at__gte=self.at).order_by("received_at", "pk")


def read_cursor(text: str) -> Cursor | None:
    """Read a cursor; None where it is none."""
    found = _CURSOR.fullmatch(text)
    if found is None or int(found[3]) > BigIntegerField.MAX_BIGINT:
        return None
    at = _EPOCH + timedelta(microseconds=int(found[2]))
    return Cursor(way="n" if found[1] == "n" else "p", at=at, number=int(found[3]))


@dataclass(frozen=True, kw_only=True)
class Page:
    """Receipts, the newest first, and the places before and behind them; None where there is nothing more."""

    rows: Sequence[WebhookReceipt]
    next: Cursor | None
    previous: Cursor | None

    def linked(self, request: Request, results: Any) -> dict[str, Any]:
        """Return the answer, with the addresses of the pages around."""
        here = request.build_absolute_uri()
        links = {"next": self.next, "previous": self.previous}
        found = {
            name: None if cursor is None else replace_query_param(here, "cursor", str(cursor))
            for name, cursor in links.items()
        }
        return {**found, "results": results}


def page_of(receipts: ReceiptQuerySet, cursor: Cursor | None, limit: int, columns: Sequence[str]) -> Page:
    """Read a page: its numbers first, which the index alone answers, then those rows.

    In one query MariaDB prefers to sort the whole table from some hundred rows on.

    Args:
        receipts: Those that may be seen and are asked for.
        cursor: Where to begin; None: with the newest.
        limit: How many.
        columns: What is read of each.
    """
    ordered = receipts.order_by("-received_at", "-pk") if cursor is None else cursor.rows(receipts)
    numbers = list(ordered.values_list("pk", flat=True)[: limit + 1])
    chosen = receipts.filter(pk__in=numbers[:limit]).only(*columns)
    rows = sorted(chosen, key=lambda row: (row.received_at, row.pk), reverse=True)
    more, backwards = len(numbers) > limit, cursor is not None and cursor.way == "p"
    older, newer = (True, more) if backwards else (more, cursor is not None)
    return Page(
        rows=rows,
        next=_beside("n", rows[-1]) if rows and older else None,
        previous=_beside("p", rows[0]) if rows and newer else None,
    )


def _beside(way: Literal["n", "p"], receipt: WebhookReceipt) -> Cursor:
    return Cursor(way=way, at=receipt.received_at, number=receipt.pk)

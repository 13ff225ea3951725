"""How many receipts there are, counted as far as an index is read at the same cost whatever the size of the table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet, Status

#: Where counting ends: so many, or more.
REACH = 10_000
#: What is counted, the shortest first.
WINDOWS: Mapping[str, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """How many receipts of a source, or in a status, came within the last hour, day and week.

    Args:
        name: The stored source name, or the status.
        hour: How many in the last hour.
        day: How many in the last 24 hours.
        week: How many in the last seven days.
    """

    name: str
    hour: int
    day: int
    week: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What is in the table.

    Args:
        at: When it was counted.
        reach: Where each count ends.
        sources: By source.
        statuses: By status.
        due: How many are due.
        oldest_due: The receipt that is due for longest, with ``due_at``; None where nothing is due.
        dead: How many are dead.
        quarantined: How many are quarantined.
    """

    at: datetime
    reach: int
    sources: list[Row]
    statuses: list[Row]
    due: int
    oldest_due: WebhookReceipt | None
    dead: int
    quarantined: int


def counted(receipts: ReceiptQuerySet, sources: Iterable[str]) -> Counts:
    """Count receipts.

    Args:
        receipts: Those that may be seen.
        sources: The stored source names to look for.
    """
    now = timezone.now()
    return Counts(
        at=now,
        reach=REACH,
        sources=[_row(name, receipts.filter(source=name), now) for name in sources],
        statuses=[_row(str(status), receipts.filter(status=status), now) for status in Status],
        due=_number(receipts.due()),
        oldest_due=receipts.due().only("due_at").first(),
        dead=_number(receipts.dead()),
        quarantined=_number(receipts.filter(status=Status.QUARANTINED)),
    )


def _row(name: str, receipts: ReceiptQuerySet, now: datetime) -> Row:
    """Count each window by itself: with an order, MariaDB reads all of a status instead of its newest."""
    found: dict[str, int] = {}
    for window, length in WINDOWS.items():
        full = REACH in found.values()  # then so are the longer ones
        found[window] = REACH if full else _number(receipts.filter(received_at__gte=now - length))
    return Row(name=name, **found)


def _number(receipts: ReceiptQuerySet) -> int:
    return receipts.order_by().values("pk")[:REACH].count()

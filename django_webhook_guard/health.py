"""How the package is doing: the clocks that leases and windows go by, and what is overdue.

Nothing here writes. ``manage.py webhook_health`` prints it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from django_webhook_guard import statements
from django_webhook_guard.conf import configuration, receipts_alias
from django_webhook_guard.models import WebhookReceipt

#: Seconds of difference between two clocks above which there is a warning.
MAX_SKEW = 5.0
#: How many of a source's newest receipts its clock is judged by.
SAMPLE = 100
#: How many dead receipts are counted.
COUNTED = 1_000
#: Seconds that something may be overdue before there is a warning: nobody seems to sweep.
MAX_OVERDUE = 300.0


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found.

    Args:
        database_skew: This process's clock minus the database's, in seconds.
        source_skew: Source → median of the sender's signed stamp minus the time of arrival, in seconds: negative by
            the way that a delivery takes. Only sources that sign a stamp and have receipts.
        overdue: For how long the oldest due receipt has waited, in seconds; 0 where none is due.
        dead: How many receipts wait for a person because they are dead, at most ``COUNTED``.
        warnings: What a person should look at, in words.
    """

    database_skew: float
    source_skew: Mapping[str, float]
    overdue: float
    dead: int
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no warning."""
        return not self.warnings


def look() -> Health:
    """Look at clocks and backlog.

    Raises:
        django.db.Error: The database is away.
    """
    using = receipts_alias()
    rows = WebhookReceipt.objects.using(using)
    before = time.time()
    database = statements.clock(using)
    here = (before + time.time()) / 2  # the question took a moment: its middle is compared
    oldest = rows.due().values_list("due_at", flat=True).first()
    found = Health(
        database_skew=here - database,
        source_skew={name: found for name in configuration().sources if (found := _skew_of(using, name)) is not None},
        overdue=max(0.0, database - oldest.timestamp()) if oldest is not None else 0.0,
        dead=rows.dead()[:COUNTED].count(),
    )
    return replace(found, warnings=tuple(_warnings(found)))


def _skew_of(using: str, source: str) -> float | None:
    """Return how far a sender's clock is from ours, by the deliveries that made its newest receipts."""
    rows = WebhookReceipt.objects.using(using).newest(source, SAMPLE).values_list("signed_at", "received_at", "reason")
    return skew(rows)


def skew(rows: Iterable[tuple[datetime | None, datetime, str]]) -> float | None:
    """Return the median of stamp minus arrival, in seconds, of (signed, received, reason) of receipts; None without."""
    # What is held as late was signed long before it came, which says nothing of the clock.
    known = [
        (signed - came).total_seconds() for signed, came, reason in rows if signed is not None and reason != "late"
    ]
    return median(known) if known else None


def _warnings(found: Health) -> Iterator[str]:
    if abs(found.database_skew) > MAX_SKEW:
        yield (
            f"this machine's clock is {found.database_skew:+.1f} s from the database's: windows go by the one, "
            "leases by the other; set up NTP on both"
        )
    for name, skew in found.source_skew.items():
        if abs(skew) > MAX_SKEW:
            yield f"source {name}: its stamps are {skew:+.1f} s from this machine's clock; TOLERANCE is used up by that"
    if found.overdue > MAX_OVERDUE:
        yield f"a receipt has been due for {found.overdue:.0f} s: does 'manage.py webhook_sweep' run?"

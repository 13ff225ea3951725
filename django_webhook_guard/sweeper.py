"""Run whatever is due, of every source that this process knows."""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from django.db import Error

from django_webhook_guard import processing, statements
from django_webhook_guard.conf import receipts_alias, runnable_names, source_of
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.transactions import committed

logger = logging.getLogger("django_webhook_guard")

#: Seconds until a receipt is tried again that could not even be leased.
POSTPONED = 60


def sweep(
    *,
    batch: int = 100,
    source: str | None = None,
    report: Callable[[int, processing.Run], None] | None = None,
) -> Counter[str]:
    """Make one pass over the receipts that are due: received, failed, or left behind by a run that died.

    Several passes may run at once: the lease decides who runs what.

    Args:
        batch: How many receipts at most.
        source: Only this source's, those under its former names included.
        report: Called with number and end of each run.

    Returns:
        How many runs ended in which status.
    """
    using = receipts_alias()
    names = runnable_names() if source is None else _names_of(source)
    due = WebhookReceipt.objects.using(using).due().filter(source__in=names)
    counts: Counter[str] = Counter()
    for receipt_id in list(due.values_list("pk", flat=True)[:batch]):
        try:
            run = processing.run(receipt_id, "sweeper")
        except Exception as error:
            logger.error("webhook receipt %s could not be run: %s", receipt_id, type(error).__name__)
            counts["postponed"] += 1
            _postpone(using, receipt_id)
            continue
        if run is not None:
            counts[run.status] += 1
            if report is not None:
                report(receipt_id, run)
    return counts


def _postpone(using: str, receipt_id: int) -> None:
    """Let others go first at the next pass: what fails before its lease would be the oldest for ever."""
    with suppress(Error), committed(using):
        statements.postpone(using, receipt_id, POSTPONED)


def _names_of(name: str) -> list[str]:
    source = source_of(name)
    if source is None:
        return []
    return [name] if name != source.name else [name, *source.formerly]

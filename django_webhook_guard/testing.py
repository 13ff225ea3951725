"""For the tests of a project: run what deferred sources have stored.

In Django's ``TestCase`` and with pytest's ``db`` nothing is ever committed, so no worker of another process would
see a receipt, and what is left for after the commit is not done. ``run_due`` runs it here and now.
"""

from collections import Counter

from django_webhook_guard import processing
from django_webhook_guard.conf import names_of, receipts_alias, runnable_names
from django_webhook_guard.models import WebhookReceipt

__all__ = ["run_due"]

#: What is still received after so many runs is brought back by its own handler.
MAX_RUNS = 1_000


def run_due(*, source: str | None = None, retries: bool = False) -> Counter[str]:
    """Run every receipt that is waiting for a worker, in the order in which they came, as a worker would.

    Receipts that a handler causes to arrive are run as well.

    Args:
        source: Only this source's, those under its former names included.
        retries: Whether failed receipts run again now, once each, however long their backoff is.

    Returns:
        How many runs ended in which status: ``{"processed": 2, "failed": 1}``; ``left``: another process was faster.

    Raises:
        RuntimeError: There is no end to it.
    """
    using = receipts_alias()
    names = runnable_names() if source is None else names_of(source)
    rows = WebhookReceipt.objects.using(using).filter(source__in=names).order_by("received_at", "pk")
    counts: Counter[str] = Counter()
    if retries:
        rows.failed().make_overdue()
        for receipt_id in list(rows.failed().values_list("pk", flat=True)):
            counts[_run(receipt_id)] += 1
    for _ in range(MAX_RUNS):
        waiting = rows.received().values_list("pk", flat=True).first()
        if waiting is None:
            return counts
        ended = _run(waiting)
        counts[ended] += 1
        if ended == "left":
            return counts
    raise RuntimeError(f"run_due() has run {MAX_RUNS} receipts, and there are more: a handler makes new ones.")


def _run(receipt_id: int) -> str:
    run = processing.run(receipt_id, "worker")
    return run.status if run is not None else "left"

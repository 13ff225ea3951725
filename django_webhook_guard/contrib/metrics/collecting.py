"""What is counted in this process, and what is asked of the database when somebody scrapes.

Labels are configured sources, registered handlers and words of ours: no stranger's text becomes one.
"""

from collections.abc import Iterator

from django.db import Error
from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from django_webhook_guard import health
from django_webhook_guard.conf import configuration, receipts_alias
from django_webhook_guard.handlers import SIGNAL, registered
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Status

#: What stands for a source or a handler that this process does not know.
OTHER = "other"
#: How many receipts of a state are counted.
COUNTED = 10_000
_WAITING = (Status.RECEIVED, Status.PROCESSING, Status.FAILED, Status.DEAD, Status.QUARANTINED)

deliveries = Counter("webhook_deliveries", "Deliveries by source and decision.", ["source", "decision"])
delivery_seconds = Histogram("webhook_delivery_seconds", "How long deliveries took to be answered.", ["source"])
runs = Counter("webhook_handler_runs", "Runs of handlers by how they ended.", ["source", "handler", "outcome"])
run_seconds = Histogram("webhook_handler_seconds", "How long handlers ran.", ["source", "handler"])


def counted_delivery(source: str, decision: str, seconds: float) -> None:
    """Count a delivery."""
    known = _source(source)
    deliveries.labels(known, decision).inc()
    delivery_seconds.labels(known).observe(seconds)


def counted_run(source: str, handler: str, outcome: str, seconds: float) -> None:
    """Count a run of a handler."""
    known = _source(source)
    name = handler if handler == SIGNAL or any(handler == each.name for each in registered()) else OTHER
    runs.labels(known, name, outcome).inc()
    run_seconds.labels(known, name).observe(seconds)


def _source(name: str) -> str:
    return name if name in configuration().sources else OTHER


class Backlog(Collector):
    """What waits, as it is in the database when somebody scrapes; every question reads an index and is bounded."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Name the metrics without asking the database, which is not there yet when the process starts."""
        return [_receipts(), _overdue()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Ask the database; where it is away, nothing is reported."""
        receipts, overdue = _receipts(), _overdue()
        rows = WebhookReceipt.objects.using(receipts_alias())
        try:
            for status in _WAITING:
                receipts.add_metric([str(status)], rows.filter(status=status)[:COUNTED].count())
            overdue.add_metric([], health.overdue(receipts_alias()))
        except Error:
            return
        yield receipts
        yield overdue


def _receipts() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "webhook_receipts", f"Receipts that are not over, by status, at most {COUNTED}.", labels=["status"]
    )


def _overdue() -> GaugeMetricFamily:
    return GaugeMetricFamily("webhook_overdue_seconds", "For how long the oldest due receipt has waited.", labels=[])

"""Metrics for Prometheus, scraped with the real library."""

import pytest
from django.db import OperationalError

from django_webhook_guard import watching
from django_webhook_guard.exceptions import GiveUp, Skip
from tests.test_admin import EVIL, make

pytest.importorskip("prometheus_client")
from prometheus_client import REGISTRY, generate_latest

from django_webhook_guard.contrib import metrics
from django_webhook_guard.contrib.metrics import collecting
from django_webhook_guard.contrib.metrics.apps import MetricsConfig

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _connected():
    for _ in range(2):  # twice connects once
        MetricsConfig("django_webhook_guard.contrib.metrics", metrics).ready()
    yield
    watching.deliveries.clear()
    watching.runs.clear()
    for collector in list(REGISTRY._collector_to_names):
        if isinstance(collector, collecting.Backlog):
            REGISTRY.unregister(collector)


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "done"), (ValueError(), "failed"), (Skip(), "skipped"), (GiveUp(), "gave_up")]
)
def test_deliveries_and_runs_are_counted(handler, post, error, outcome):
    def work(event):
        if error is not None:
            raise error

    handler("stripe", "*", name="pay")(work)
    labels = {"source": "stripe", "handler": "pay", "outcome": outcome}
    both = {"source": "stripe", "handler": "pay"}
    runs, seconds = value("webhook_handler_runs_total", **labels), value("webhook_handler_seconds_count", **both)
    decision = post("stripe", {"id": "evt_1", "type": "x"}).json()["status"]
    assert value("webhook_handler_runs_total", **labels) == runs + 1
    assert value("webhook_handler_seconds_count", **both) == seconds + 1
    assert value("webhook_deliveries_total", source="stripe", decision=decision) >= 1


def test_refusals_are_counted_and_strangers_make_no_labels(client, post):
    rejected = value("webhook_deliveries_total", source="stripe", decision="rejected")
    for _ in range(5):
        post("stripe", {"id": "evt_1"}, headers={"Stripe-Signature": "t=1,v1=" + "0" * 64})
    assert value("webhook_deliveries_total", source="stripe", decision="rejected") == rejected + 5
    client.post("/webhooks/nobody-knows-this/", b"{}", content_type="application/json")
    collecting.counted_run("gone", EVIL, "done", 0.1)
    text = generate_latest(REGISTRY).decode()
    assert "nobody-knows-this" not in text and "gone" not in text and "alert" not in text
    assert 'source="other"' in text


def test_what_waits_is_asked_of_the_database():
    make(status="dead"), make(status="dead"), make(status="quarantined"), make(status="processed")
    assert value("webhook_receipts", status="dead") == 2
    assert value("webhook_receipts", status="quarantined") == 1
    assert value("webhook_receipts", status="failed") == 0
    assert value("webhook_overdue_seconds") == 0


def test_a_database_that_is_away_reports_nothing(monkeypatch):
    def away(using, now=None):
        raise OperationalError("away")

    monkeypatch.setattr(collecting.health, "overdue", away)
    assert "webhook_overdue_seconds " not in generate_latest(REGISTRY).decode()


def test_a_watcher_that_fails_changes_nothing(handler, post, caplog):
    handler("stripe", "*", name="pay")(lambda event: None)
    watching.deliveries.append(lambda *about: 1 / 0)
    watching.runs.append(lambda *about: 1 / 0)
    assert post("stripe", {"id": "evt_1", "type": "x"}).json()["status"] == "processed"
    assert caplog.messages.count("a watcher of webhooks failed") == 2


def test_connecting_twice_counts_once():
    assert (len(watching.deliveries), len(watching.runs)) == (1, 1)

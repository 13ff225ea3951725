"""Spans for OpenTelemetry, with the real SDK."""

import pytest

from django_webhook_guard import processing, watching
from django_webhook_guard.models import WebhookReceipt

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_webhook_guard.contrib import tracing
from django_webhook_guard.contrib.tracing.apps import TracingConfig

pytestmark = pytest.mark.django_db
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def exporter():
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)
    return found


@pytest.fixture
def spans(exporter):
    exporter.clear()
    for _ in range(2):  # twice connects once
        TracingConfig("django_webhook_guard.contrib.tracing", tracing).ready()
    yield exporter.get_finished_spans
    watching.around.clear()
    watching.trace = None


def linked(span):
    return [(format(link.context.trace_id, "032x"), format(link.context.span_id, "016x")) for link in span.links]


def test_a_run_links_to_the_span_of_its_delivery(spans, sources, handler, post):
    sources(stripe={"PROCESSING": "deferred"})
    handler("stripe", "*", name="h")(lambda event: None)
    with trace.get_tracer("the project").start_as_current_span("POST /webhooks/") as delivery:
        post("stripe", {"id": "evt_1", "type": "x"}, extra={"traceparent": PARENT})
    context = delivery.get_span_context()
    processing.run(WebhookReceipt.objects.get().pk, "worker")
    (span,) = [each for each in spans() if each.name == "webhook stripe x"]
    assert linked(span) == [(format(context.trace_id, "032x"), format(context.span_id, "016x"))]
    assert span.parent is None
    assert span.attributes["webhook.source"] == "stripe"
    assert span.attributes["webhook.attempt"] == 1


def test_without_a_span_of_ones_own_the_header_counts(spans, handler, post):
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", {"id": "evt_1", "type": "x"}, extra={"traceparent": PARENT})
    (span,) = spans()
    assert linked(span) == [("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")]


def test_without_any_there_is_no_link(spans, handler, post):
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", {"id": "evt_1", "type": "x"})
    (span,) = spans()
    assert span.links == ()


def test_what_a_handler_does_is_inside_the_span(spans, handler, post):
    def work(event):
        with trace.get_tracer("the project").start_as_current_span("charge"):
            pass

    handler("stripe", "*", name="h")(work)
    post("stripe", {"id": "evt_1", "type": "x"})
    inner, outer = spans()
    assert inner.parent.span_id == outer.context.span_id


@pytest.mark.parametrize(
    "given",
    [
        "", "x", PARENT.upper(), PARENT + "-more", PARENT + "\n", f"ff{PARENT[2:]}", "00-" + "0" * 32 + PARENT[35:],
        PARENT[:36] + "0" * 16 + "-01", "a" * 10_000, "\0",
    ],
)  # fmt: skip
def test_what_is_no_trace_context_is_not_kept(post, handler, given):
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", {"id": "evt_1", "type": "x"}, extra={"traceparent": given})
    assert "traceparent" not in WebhookReceipt.objects.get().headers


def test_a_watcher_that_fails_changes_nothing(post, handler, caplog):
    handler("stripe", "*", name="h")(lambda event: None)
    watching.around.append(lambda event: 1 / 0)
    watching.trace = lambda: 1 / 0
    try:
        assert post("stripe", {"id": "evt_1", "type": "x"}).json()["status"] == "processed"
    finally:
        watching.around.clear()
        watching.trace = None
    assert "a watcher of webhooks failed" in caplog.messages

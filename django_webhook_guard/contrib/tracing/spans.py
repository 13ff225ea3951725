"""The span of an attempt. It links to the delivery's span and is not its child: it may begin days later."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def current() -> str:
    """Return the ``traceparent`` of the span that this code runs in, or an empty string."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def span_of(event: Any) -> Iterator[None]:
    """Run an attempt in a span of its own.

    Args:
        event: The ``WebhookEvent``.
    """
    parent = event.headers.get("traceparent")
    context = _PROPAGATOR.extract({"traceparent": parent}) if parent else None
    delivery = trace.get_current_span(context).get_span_context() if context is not None else None
    links = [trace.Link(delivery)] if delivery is not None and delivery.is_valid else []
    tracer = trace.get_tracer("django_webhook_guard")
    name = f"webhook {event.source} {event.event_type}".rstrip()
    about = {"webhook.source": event.source, "webhook.receipt": event.receipt_id, "webhook.attempt": event.attempt}
    with tracer.start_as_current_span(name, links=links, attributes=about):
        yield

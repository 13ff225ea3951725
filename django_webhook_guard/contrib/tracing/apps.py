"""The app that connects the spans."""

from django.apps import AppConfig

from django_webhook_guard import watching


class TracingConfig(AppConfig):
    """Put each attempt into a span that links to the span of the delivery."""

    name = "django_webhook_guard.contrib.tracing"
    label = "django_webhook_guard_tracing"

    def ready(self) -> None:
        from django_webhook_guard.contrib.tracing.spans import current, span_of

        if span_of not in watching.around:
            watching.around.append(span_of)
        watching.trace = current

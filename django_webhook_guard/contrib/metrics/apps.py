"""The app that connects the metrics."""

from django.apps import AppConfig

from django_webhook_guard import watching


class MetricsConfig(AppConfig):
    """Count deliveries and runs from the start of the process on."""

    name = "django_webhook_guard.contrib.metrics"
    label = "django_webhook_guard_metrics"

    def ready(self) -> None:
        from prometheus_client import REGISTRY

        from django_webhook_guard.contrib.metrics.collecting import Backlog, counted_delivery, counted_run

        if counted_delivery not in watching.deliveries:
            watching.deliveries.append(counted_delivery)
            watching.runs.append(counted_run)
            REGISTRY.register(Backlog())

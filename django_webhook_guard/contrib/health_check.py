"""A check for django-health-check, which the extra ``health`` installs.

``HealthCheckView.as_view(checks=["django_webhook_guard.contrib.health_check.Webhooks"])``
"""

import dataclasses

from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable, ServiceWarning

from django_webhook_guard import health
from django_webhook_guard.health import Level


@dataclasses.dataclass
class Webhooks(HealthCheck):
    """Clocks, backlog, silence, keys and pauses, as ``webhook_health`` looks at them.

    Args:
        max_overdue: Seconds that a due receipt may have waited.
        max_dead: How many dead receipts are fine; None: any number.
    """

    max_overdue: float = health.MAX_OVERDUE
    max_dead: int | None = None

    def run(self) -> None:
        """Look.

        Raises:
            ServiceUnavailable: Something is an error.
            ServiceWarning: Something is a warning.
            django.db.Error: The database is away.
        """
        found = health.look(health.Limits(overdue=self.max_overdue, dead=self.max_dead))
        if not found.findings:
            return
        words = "; ".join(found.warnings)
        if any(finding.level is Level.ERROR for finding in found.findings):
            raise ServiceUnavailable(words)
        raise ServiceWarning(words)

"""Tell onlookers when something begins that a person should look at, and when it is over; once, whoever looks."""

import logging

from django_webhook_guard import health
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.events import announce
from django_webhook_guard.health import Health, Level
from django_webhook_guard.models import WebhookAlert
from django_webhook_guard.signals import webhook_alert

logger = logging.getLogger("django_webhook_guard")

_LOG = {Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


def look_and_tell() -> Health:
    """Look at how the package is doing, and tell what is new.

    Raises:
        django.db.Error: The database is away.
    """
    found = health.look()
    tell(found)
    return found


def tell(found: Health) -> None:
    """Send ``webhook_alert`` and write one log record for each finding that began, or is over.

    Of several processes that see it at once, one does so.

    Args:
        found: What was found now.

    Raises:
        django.db.Error: The database is away.
    """
    alerts = WebhookAlert.objects.using(receipts_alias())
    findings = {(finding.code, finding.source): finding for finding in found.findings}
    told = {(alert.code, alert.source): alert for alert in alerts.all()}
    for key, finding in findings.items():
        if key not in told and alerts.begin(finding.code, finding.source, finding.words):
            logger.log(_LOG[finding.level], "webhook alert (%s): %s", finding.code, finding.words)
            _announce(finding.code, finding.source, finding.words, finding.level, began=True)
    for key, alert in told.items():
        if key not in findings and alerts.end(alert.code, alert.source):
            logger.info("webhook alert (%s) is over: %s", alert.code, alert.words)
            _announce(alert.code, alert.source, alert.words, "", began=False)


def _announce(code: str, source: str, words: str, level: str, *, began: bool) -> None:
    announce(webhook_alert, code=code, source=source, words=words, level=level, began=began)

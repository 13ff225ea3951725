"""What a person may do to receipts: one audited layer for every door."""

import logging

from django.db import transaction

from django_webhook_guard.conf import receipts_alias, source_of
from django_webhook_guard.events import named
from django_webhook_guard.models import WebhookCheckpoint, WebhookReceipt

logger = logging.getLogger("django_webhook_guard")


def retry(receipt: WebhookReceipt, *, actor: str, reason: str = "") -> bool:
    """Make a failed or dead receipt due, with a new budget of attempts.

    Marks of handlers that gave up go, so that those run again. Nothing runs here; the caller runs it once this is
    committed, or the sweeper does.

    Args:
        receipt: The receipt as it was shown to the person: a receipt that moved on since is left alone.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was made due by this call.
    """
    using, source = receipts_alias(), source_of(receipt.source)
    known = named(source.name, receipt.handlers).values() if source is not None else ()
    databases = {using, *(handler.using for handler in known if handler.using)}
    with transaction.atomic(using=using):
        done = receipt.make_due()
        if done:
            for alias in databases:
                WebhookCheckpoint.objects.using(alias).gave_up(receipt.fingerprint).delete()
    if done:
        logger.info("webhook receipt %s made due by %s: %s", receipt.pk, actor, reason or "-")
    return done


def runnable(receipt: WebhookReceipt) -> bool:
    """Tell whether this process has the source that runs the receipt."""
    return source_of(receipt.source) is not None

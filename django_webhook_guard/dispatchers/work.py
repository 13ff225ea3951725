"""What a woken worker does, whatever engine it belongs to."""

import logging

from django_webhook_guard import processing
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookReceipt

logger = logging.getLogger("django_webhook_guard")


def run(receipt_id: int) -> str:
    """Run a receipt for which this worker was woken.

    A message may come late or twice, or after the receipt was deleted: then nothing is done, and nothing is retried.

    Args:
        receipt_id: The receipt.

    Returns:
        The receipt's status after the run, or an empty string where there was nothing to do.
    """
    ended = processing.run(receipt_id, "worker")
    if ended is not None:
        return ended.status
    if not WebhookReceipt.objects.using(receipts_alias()).filter(pk=receipt_id).exists():
        logger.warning("webhook receipt %s is gone: a worker was woken for it", receipt_id)
    return ""

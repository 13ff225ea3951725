"""The rows: receipts, what hangs on them, seen messages, versions of objects, and counts."""

from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.counts import WebhookCount
from django_webhook_guard.models.effects import WebhookEffect, WebhookVersion
from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen
from django_webhook_guard.models.rejected import WebhookRejected

__all__ = [
    "WebhookAttempt", "WebhookBatch", "WebhookCheckpoint", "WebhookCount", "WebhookEffect", "WebhookReceipt",
    "WebhookRejected", "WebhookSeen", "WebhookVersion",
]  # fmt: skip

"""The rows: receipts, what hangs on them, seen messages, versions of objects, counts, and what people wish."""

from django_webhook_guard.models.alerts import WebhookAlert
from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.bulk import WebhookBulkAction, WebhookBulkItem
from django_webhook_guard.models.counts import WebhookCount
from django_webhook_guard.models.effects import WebhookEffect, WebhookVersion
from django_webhook_guard.models.pauses import WebhookPause
from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen
from django_webhook_guard.models.rejected import WebhookRejected

__all__ = [
    "WebhookAlert", "WebhookAttempt", "WebhookBatch", "WebhookBulkAction", "WebhookBulkItem", "WebhookCheckpoint",
    "WebhookCount", "WebhookEffect", "WebhookPause", "WebhookReceipt", "WebhookRejected", "WebhookSeen",
    "WebhookVersion",
]  # fmt: skip

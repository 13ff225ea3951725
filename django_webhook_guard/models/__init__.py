"""The rows: receipts, their batches, attempts, checkpoints and effects, seen messages, versions, and bulk actions."""

from django_webhook_guard.models.alerts import WebhookAlert
from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.bulk import WebhookBulkAction, WebhookBulkItem
from django_webhook_guard.models.effects import WebhookEffect, WebhookVersion
from django_webhook_guard.models.pauses import WebhookPause
from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen

__all__ = [
    "WebhookAlert", "WebhookAttempt", "WebhookBatch", "WebhookBulkAction", "WebhookBulkItem", "WebhookCheckpoint",
    "WebhookEffect", "WebhookPause", "WebhookReceipt", "WebhookSeen", "WebhookVersion",
]  # fmt: skip

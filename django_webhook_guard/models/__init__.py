"""The rows: receipts, their batches, attempts and checkpoints, and the memory of seen messages."""

from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen

__all__ = ["WebhookAttempt", "WebhookBatch", "WebhookCheckpoint", "WebhookReceipt", "WebhookSeen"]

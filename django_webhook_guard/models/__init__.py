"""The rows: receipts, their attempts and checkpoints, and the memory of seen messages."""

from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen

__all__ = ["WebhookAttempt", "WebhookCheckpoint", "WebhookReceipt", "WebhookSeen"]

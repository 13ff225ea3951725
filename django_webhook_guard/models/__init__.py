"""The rows: receipts, their batches, attempts, checkpoints and effects, seen messages, and versions of objects."""

from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.effects import WebhookEffect, WebhookVersion
from django_webhook_guard.models.receipts import WebhookReceipt
from django_webhook_guard.models.records import WebhookAttempt, WebhookCheckpoint, WebhookSeen

__all__ = [
    "WebhookAttempt", "WebhookBatch", "WebhookCheckpoint", "WebhookEffect", "WebhookReceipt", "WebhookSeen",
    "WebhookVersion",
]  # fmt: skip

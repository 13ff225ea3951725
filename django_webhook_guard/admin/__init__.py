"""The operators' screens in Django's admin."""

from django_webhook_guard.admin.bulk import WebhookBulkActionAdmin
from django_webhook_guard.admin.receipts import WebhookReceiptAdmin
from django_webhook_guard.admin.rejected import WebhookRejectedAdmin

__all__ = ["WebhookBulkActionAdmin", "WebhookReceiptAdmin", "WebhookRejectedAdmin"]

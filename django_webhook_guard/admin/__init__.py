"""The operators' screens in Django's admin."""

from django_webhook_guard.admin.bulk import WebhookBulkActionAdmin
from django_webhook_guard.admin.receipts import WebhookReceiptAdmin

__all__ = ["WebhookBulkActionAdmin", "WebhookReceiptAdmin"]

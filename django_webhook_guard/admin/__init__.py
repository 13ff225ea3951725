"""The operators' screens in Django's admin."""

from django_webhook_guard.admin.receipts import WebhookReceiptAdmin

__all__ = ["WebhookReceiptAdmin"]

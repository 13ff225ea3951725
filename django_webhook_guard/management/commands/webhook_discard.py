"""``manage.py webhook_discard``."""

from django_webhook_guard import operations
from django_webhook_guard.management.choosing import ActOnReceipts
from django_webhook_guard.models import WebhookReceipt


class Command(ActOnReceipts):
    """Discard receipts that a person names."""

    help = (
        "Ends quarantined, failed, dead or received webhook receipts without their work being done. Their events, "
        "delivered again, are duplicates."
    )
    operation = operations.discard
    done = "discarded"

    @staticmethod
    def possible(receipt: WebhookReceipt) -> bool:
        """Tell whether it can be done to a receipt."""
        return receipt.discardable

"""``manage.py webhook_release``."""

from django_webhook_guard import operations
from django_webhook_guard.management.choosing import ActOnReceipts
from django_webhook_guard.models import WebhookReceipt


class Command(ActOnReceipts):
    """Release receipts that a person names."""

    help = (
        "Lets quarantined webhook receipts run: they become due, with a new budget of attempts. Nothing runs here: "
        "webhook_sweep brings them."
    )
    operation = operations.release
    done = "released"
    afterwards = "webhook_sweep brings them."

    @staticmethod
    def possible(receipt: WebhookReceipt) -> bool:
        """Tell whether it can be done to a receipt."""
        return receipt.releasable

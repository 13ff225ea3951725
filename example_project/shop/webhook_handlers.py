"""The shop's work for webhooks. The app finds this module in every installed app, as Django finds ``admin.py``."""

from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.handlers import webhook_handler
from example_project.shop.models import Invoice, Shipment, Warehouse


class WarehouseClosed(Exception):
    """The warehouse ships nothing now; a later attempt may find it open."""


@webhook_handler("stripe", "invoice.payment_succeeded")
def create_invoice(event: WebhookEvent) -> str:
    """Turn a payment into an invoice."""
    paid = event.data["data"]["object"]
    invoice = Invoice.objects.create(
        stripe_id=paid["id"],
        customer=paid.get("customer") or "",
        amount=paid["amount_paid"],
        currency=paid["currency"],
        paid_at=event.occurred_at,
    )
    return f"created invoice {invoice.pk}"


@webhook_handler("partner", "order.paid")
def ship_order(event: WebhookEvent) -> str:
    """Ship a paid order from its warehouse, once that is open.

    Raises:
        GiveUp: The event names no order: no attempt can ever work.
        WarehouseClosed: This attempt failed; there will be another.
    """
    order = event.data.get("order")
    if not order:
        raise GiveUp("the event names no order")
    warehouse, _ = Warehouse.objects.get_or_create(name=event.data.get("warehouse", "main"))
    if warehouse.closed:
        raise WarehouseClosed(f"warehouse {warehouse} is closed")
    shipment = Shipment.objects.create(order=order, warehouse=warehouse)
    return f"created shipment {shipment.pk}"

"""What the shop's webhooks lead to.

Nothing is unique here beyond the primary keys, on purpose: an event that took effect twice would show.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Invoice(models.Model):
    """A paid invoice, made from Stripe's ``invoice.payment_succeeded``."""

    stripe_id = models.CharField(_("Stripe's id"), max_length=255)
    customer = models.CharField(_("customer"), max_length=255, blank=True)
    amount = models.PositiveIntegerField(_("amount in the smallest unit"))
    currency = models.CharField(_("currency"), max_length=3)
    paid_at = models.DateTimeField(_("paid at"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        verbose_name = _("invoice")
        verbose_name_plural = _("invoices")

    def __str__(self) -> str:
        return f"{self.pk}: {self.amount} {self.currency}"


class Warehouse(models.Model):
    """A place that ships orders, unless it is closed: close one to see a handler fail."""

    name = models.CharField(_("name"), max_length=100, primary_key=True)
    closed = models.BooleanField(_("closed"), default=False)

    class Meta:
        verbose_name = _("warehouse")
        verbose_name_plural = _("warehouses")

    def __str__(self) -> str:
        return self.name


class Shipment(models.Model):
    """An order on its way, made from the partner's ``order.paid``."""

    order = models.CharField(_("order"), max_length=100)
    warehouse = models.ForeignKey(Warehouse, on_delete=models.PROTECT, verbose_name=_("warehouse"))
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        verbose_name = _("shipment")
        verbose_name_plural = _("shipments")

    def __str__(self) -> str:
        return f"{self.pk}: {self.order}"

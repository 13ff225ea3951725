"""The shop's own pages in the admin."""

from django.contrib import admin

from example_project.shop.models import Invoice, Shipment, Warehouse


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["id", "stripe_id", "customer", "amount", "currency", "paid_at"]


@admin.register(Warehouse)
class WarehouseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "closed"]
    list_editable = ["closed"]


@admin.register(Shipment)
class ShipmentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["id", "order", "warehouse", "created_at"]

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stripe_id", models.CharField(max_length=255, verbose_name="Stripe's id")),
                ("customer", models.CharField(blank=True, max_length=255, verbose_name="customer")),
                ("amount", models.PositiveIntegerField(verbose_name="amount in the smallest unit")),
                ("currency", models.CharField(max_length=3, verbose_name="currency")),
                ("paid_at", models.DateTimeField(blank=True, null=True, verbose_name="paid at")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
            ],
            options={
                "verbose_name": "invoice",
                "verbose_name_plural": "invoices",
            },
        ),
        migrations.CreateModel(
            name="Warehouse",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False, verbose_name="name")),
                ("closed", models.BooleanField(default=False, verbose_name="closed")),
            ],
            options={
                "verbose_name": "warehouse",
                "verbose_name_plural": "warehouses",
            },
        ),
        migrations.CreateModel(
            name="Shipment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("order", models.CharField(max_length=100, verbose_name="order")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
                (
                    "warehouse",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="shop.warehouse", verbose_name="warehouse"
                    ),
                ),
            ],
            options={
                "verbose_name": "shipment",
                "verbose_name_plural": "shipments",
            },
        ),
    ]

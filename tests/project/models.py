"""What handlers change, so that tests can count effects."""

from django.db import models


class Effect(models.Model):
    """One effect of one handler; nothing is unique here, so that doubles show."""

    name = models.CharField(max_length=255)
    handler = models.CharField(max_length=255, default="")

    class Meta:
        app_label = "project"

    def __str__(self):
        return self.name


class Note(models.Model):
    """A row of the project that refers to a receipt, and outlives it."""

    # Without a constraint, because the tables of an app without migrations are made first.
    receipt = models.ForeignKey(
        "django_webhook_guard.WebhookReceipt", null=True, on_delete=models.SET_NULL, db_constraint=False
    )

    class Meta:
        app_label = "project"

    def __str__(self):
        return str(self.receipt_id)


class Standing(models.Model):
    """How an object stands, by the newest event about it."""

    name = models.CharField(max_length=255, unique=True)
    version = models.BigIntegerField()

    class Meta:
        app_label = "project"

    def __str__(self):
        return self.name


class Unique(models.Model):
    """A row that a handler may insert only once."""

    name = models.CharField(max_length=255, unique=True)

    class Meta:
        app_label = "project"

    def __str__(self):
        return self.name

"""The delivery that reported several events."""

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _


class BatchQuerySet(models.QuerySet["WebhookBatch"]):
    def expire_bodies(self) -> int:
        """Let bodies go; digest and size stay.

        Returns:
            How many had one.
        """
        return self.filter(body__isnull=False).update(body=None)

    def remove(self) -> int:
        """Delete in one conditional statement; Django's ``delete`` would look for receipts without an index.

        Returns:
            How many were deleted.
        """
        return self._raw_delete(self.db)


class WebhookBatch(models.Model):
    """The body that several receipts share: it is stored once, as it came."""

    source = models.CharField(_("source"), max_length=100)
    request_id = models.CharField(_("request id"), max_length=128, blank=True)
    received_at = models.DateTimeField(_("received at"))
    items = models.PositiveIntegerField(_("items"))
    body = models.BinaryField(_("body"), null=True)
    body_digest = models.CharField(_("SHA-256 of the body"), max_length=64)
    body_size = models.PositiveIntegerField(_("size of the body"))

    objects = BatchQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook batch")
        verbose_name_plural = _("webhook batches")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.source} #{self.pk}"

    def own_receipts(self) -> models.QuerySet[Any]:
        """Return the receipts of this batch, in its order, by the index on source and time."""
        return self.receipts.filter(source=self.source, received_at=self.received_at).order_by("item")

"""A few raw samples of deliveries that were refused."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.text import visible

#: For how many days a sample is kept.
SAMPLES_KEPT = 7


class WebhookRejected(models.Model):
    """What a stranger sent, as far as it is kept: nothing in it is verified."""

    source = models.CharField(_("source"), max_length=100)
    slot = models.PositiveIntegerField(_("place in the ring"))
    received_at = models.DateTimeField(_("received at"))
    decision = models.CharField(_("decision"), max_length=16)
    reason = models.CharField(_("reason"), max_length=255, blank=True)
    method = models.CharField(_("method"), max_length=16)
    path = models.CharField(_("path"), max_length=1000)
    headers = models.JSONField(_("headers"), default=dict)
    body = models.BinaryField(_("body"))
    body_size = models.PositiveIntegerField(_("size of the body that was read"))

    class Meta:
        verbose_name = _("sample of a rejected delivery")
        verbose_name_plural = _("samples of rejected deliveries")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["source", "slot"], name="webhook_rejected_slot")]
        indexes = [models.Index(fields=["received_at"], name="webhook_rejected_received")]

    def __str__(self) -> str:
        return f"{self.source} {self.decision} {visible(self.reason)}".strip()

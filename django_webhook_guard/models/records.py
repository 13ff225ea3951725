"""What hangs on a receipt.

None of these tables has a database constraint on the receipt: with one, inserting a checkpoint takes a shared lock
on the receipt's row, and two runs that then both want to write it deadlock on MariaDB.
"""

from collections.abc import Iterable
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.identity import digest
from django_webhook_guard.models.receipts import Status, WebhookReceipt


class Trigger(models.TextChoices):
    """What began an attempt."""

    DELIVERY = "delivery", _("delivery")
    SWEEPER = "sweeper", _("sweeper")
    WORKER = "worker", _("worker")
    ADMIN = "admin", _("admin")


class WebhookAttempt(models.Model):
    """A run that failed, or that was not the first."""

    receipt = models.ForeignKey(
        WebhookReceipt,
        on_delete=models.CASCADE,
        related_name="attempt_rows",
        db_constraint=False,
        verbose_name=_("receipt"),
    )
    number = models.PositiveIntegerField(_("number"))
    trigger = models.CharField(_("trigger"), max_length=16, choices=Trigger)
    actor = models.CharField(_("actor"), max_length=255, blank=True)
    outcome = models.CharField(_("outcome"), max_length=16, choices=[*Status.choices, ("fenced", _("fenced out"))])
    handler = models.CharField(_("handler"), max_length=255, blank=True)
    error_class = models.CharField(_("error class"), max_length=255, blank=True)
    place = models.CharField(_("place of the error"), max_length=255, blank=True)
    error_group = models.CharField(_("error group"), max_length=16, blank=True)
    message = models.TextField(_("message"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)
    release = models.CharField(_("release"), max_length=100, blank=True)
    started_at = models.DateTimeField(_("started at"))
    duration_ms = models.PositiveIntegerField(_("duration in ms"))

    class Meta:
        verbose_name = _("webhook attempt")
        verbose_name_plural = _("webhook attempts")
        default_permissions = ("view",)
        ordering = ["receipt_id", "number", "pk"]
        indexes = [models.Index(fields=["error_group", "started_at"], name="webhook_attempt_group")]

    def __str__(self) -> str:
        return f"{self.receipt_id} #{self.number} {self.outcome}"


class Mark(models.TextChoices):
    """How a handler of a receipt ended."""

    DONE = "done", _("done")
    SKIPPED = "skipped", _("skipped")
    SUPERSEDED = "superseded", _("superseded")
    GAVE_UP = "gave_up", _("gave up")


class CheckpointQuerySet(models.QuerySet["WebhookCheckpoint"]):
    def gave_up(self, fingerprint: str) -> Self:
        """The marks of a receipt's handlers that gave up."""
        return self.filter(fingerprint=fingerprint, mark=Mark.GAVE_UP)

    def of(self, fingerprint: str, handlers: Iterable[str]) -> Self:
        """The marks of some of a receipt's handlers, told apart as exactly as Python does."""
        return self.filter(digest__in=[digest((fingerprint, handler)) for handler in handlers])

    def set_result(self, fingerprint: str, handler: str, result: str) -> None:
        """Keep what a handler returned after its checkpoint was written."""
        self.of(fingerprint, [handler]).update(result=result)


class WebhookCheckpoint(models.Model):
    """How a handler of a receipt ended. On a handler's own database its unique key is the fence there."""

    digest = models.CharField(_("digest of receipt and handler"), max_length=64, editable=False)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    handler = models.CharField(_("handler"), max_length=255)
    mark = models.CharField(_("mark"), max_length=16, choices=Mark)
    result = models.TextField(_("result"), blank=True)
    attempt = models.PositiveIntegerField(_("attempt"))
    created_at = models.DateTimeField(_("created at"))

    objects = CheckpointQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook checkpoint")
        verbose_name_plural = _("webhook checkpoints")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_checkpoint_digest")]
        indexes = [models.Index(fields=["fingerprint"], name="webhook_checkpoint_receipt")]

    def __str__(self) -> str:
        return f"{self.handler}: {self.mark}"


class WebhookSeen(models.Model):
    """A signed message that was accepted, so that it is known again under any other key."""

    digest = models.CharField(_("digest"), max_length=64, editable=False)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)

    class Meta:
        verbose_name = _("seen webhook message")
        verbose_name_plural = _("seen webhook messages")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_seen_digest")]
        indexes = [
            models.Index(fields=["fingerprint"], name="webhook_seen_receipt"),
            models.Index(fields=["expires_at"], name="webhook_seen_expires"),
        ]

    def __str__(self) -> str:
        return self.digest[:16]

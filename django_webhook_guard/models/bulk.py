"""What a person wants done to many receipts: written down at once, done by the sweeper at a rate."""

from datetime import timedelta
from typing import Any, Self

from django.db import models
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Wish(models.TextChoices):
    """What is to be done to each receipt."""

    RETRY = "retry", _("retry")
    MISSING = "missing", _("run handlers that have not run")
    RERUN = "rerun", _("run all handlers again")
    RELEASE = "release", _("release")
    DISCARD = "discard", _("discard")


class BulkState(models.TextChoices):
    """How far a bulk action has come."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")
    STOPPED = "stopped", _("stopped")


class BulkQuerySet(models.QuerySet["WebhookBulkAction"]):
    def running(self) -> Self:
        return self.filter(state=BulkState.RUNNING)

    def due(self) -> Self:
        """Those whose next receipts may be touched now."""
        return self.running().filter(next_at__lte=timezone.now()).order_by("next_at", "pk")

    def begin(self, **values: Any) -> "WebhookBulkAction":
        """Insert an action that begins now."""
        now = timezone.now()
        return self.create(created_at=now, next_at=now, **values)


class WebhookBulkAction(models.Model):
    """One wish of one person for many receipts: who, when, why, how many."""

    wish = models.CharField(_("action"), max_length=16, choices=Wish)
    rate = models.FloatField(_("receipts a second"))
    about = models.TextField(_("receipts"), blank=True)
    actor = models.CharField(_("by"), max_length=255)
    reason = models.CharField(_("reason"), max_length=255, blank=True)
    state = models.CharField(_("state"), max_length=16, choices=BulkState, default=BulkState.RUNNING)
    total = models.PositiveIntegerField(_("receipts chosen"), default=0)
    done = models.PositiveIntegerField(_("done"), default=0)
    left_alone = models.PositiveIntegerField(_("left alone"), default=0)
    created_at = models.DateTimeField(_("begun at"))
    next_at = models.DateTimeField(_("goes on at"))
    finished_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = BulkQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook bulk action")
        verbose_name_plural = _("webhook bulk actions")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["state", "next_at"], name="webhook_bulk_due")]

    def __str__(self) -> str:
        return f"{self.get_wish_display()} #{self.pk}"

    @property
    def waiting(self) -> int:
        """How many receipts have not been touched yet."""
        return max(0, self.total - self.done - self.left_alone)

    def take(self, seconds: float) -> bool:
        """Get the right to do the next step; of several sweepers one gets it.

        Args:
            seconds: How long nobody else may do it.
        """
        rows = self._rows().filter(next_at=self.next_at)
        return bool(rows.update(next_at=timezone.now() + timedelta(seconds=seconds)))

    def count(self, *, done: bool) -> None:
        """Count a receipt that was touched, or left alone because it had moved on."""
        column = "done" if done else "left_alone"
        type(self)._base_manager.using(self._state.db).filter(pk=self.pk).update(**{column: F(column) + 1})

    def chosen(self, total: int) -> None:
        """Keep how many receipts were chosen."""
        self.total = total
        self.save(update_fields=["total"])

    def go_on(self, seconds: float) -> bool:
        """Say when the next step is, in seconds from now."""
        return bool(self._rows().update(next_at=timezone.now() + timedelta(seconds=seconds)))

    def end(self) -> bool:
        """Say that nothing is left to do."""
        return bool(self._rows().update(state=BulkState.DONE, finished_at=timezone.now()))

    def stop(self) -> bool:
        """Touch no further receipt.

        Returns:
            Whether it was running until now.
        """
        stopped = bool(self._rows().update(state=BulkState.STOPPED, finished_at=timezone.now()))
        if stopped:
            WebhookBulkItem.objects.using(self._state.db).filter(bulk=self)._raw_delete(self._state.db)
        return stopped

    def _rows(self) -> models.QuerySet[Any]:
        return type(self)._base_manager.using(self._state.db).filter(pk=self.pk, state=BulkState.RUNNING)


class WebhookBulkItem(models.Model):
    """A receipt that a bulk action has not touched yet, as it was when the person chose it."""

    bulk = models.ForeignKey(
        WebhookBulkAction, on_delete=models.CASCADE, related_name="items", db_constraint=False, db_index=False,
        verbose_name=_("bulk action"),
    )  # fmt: skip
    receipt_id = models.BigIntegerField(_("receipt"))
    status = models.CharField(_("status"), max_length=16)
    attempts = models.PositiveIntegerField(_("attempts"))

    class Meta:
        verbose_name = _("webhook bulk item")
        verbose_name_plural = _("webhook bulk items")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["bulk", "receipt_id"], name="webhook_bulk_item")]

    def __str__(self) -> str:
        return f"{self.bulk_id}: {self.receipt_id}"

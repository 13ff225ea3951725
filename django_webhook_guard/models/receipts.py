"""The row of an event."""

import re
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models, router
from django.db.models import F, OuterRef, Q
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.models.batches import WebhookBatch
from django_webhook_guard.models.clock import DatabaseNow
from django_webhook_guard.text import visible

#: The result of a receipt that is held because of another one.
_ORIGINAL = re.compile(r"first came as ([0-9a-f]{64})")


class Status(models.TextChoices):
    """Where a receipt is in its life."""

    RECEIVED = "received", _("received")
    PROCESSING = "processing", _("processing")
    PROCESSED = "processed", _("processed")
    FAILED = "failed", _("failed")
    DEAD = "dead", _("dead")
    QUARANTINED = "quarantined", _("quarantined")
    IGNORED = "ignored", _("ignored")
    DISCARDED = "discarded", _("discarded")


#: States of receipts that nobody owes anything.
FINISHED = (Status.PROCESSED, Status.IGNORED, Status.DISCARDED)
#: States in which a person may have a receipt run again, have handlers run again that are done, release or discard it.
RETRYABLE = (Status.FAILED, Status.DEAD)
RERUNNABLE = (Status.PROCESSED, Status.IGNORED, *RETRYABLE)
RELEASABLE = (Status.QUARANTINED,)
DISCARDABLE = (Status.QUARANTINED, *RETRYABLE, Status.RECEIVED)


class Reason(models.TextChoices):
    """Why a receipt is in its state."""

    NONE = "", ""
    LATE = "late", _("signed before the window of acceptance")
    SCHEMA = "schema", _("its content does not fit the schema")
    NO_KEY = "no_key", _("an item of a batch that nothing identifies")
    REPLAYED = "replayed", _("signed content used before, under another key")
    KEY_REUSED = "key_reused", _("nonce used before, with another body")
    EXHAUSTED = "exhausted", _("attempts ran out")
    GAVE_UP = "gave_up", _("a handler gave up")
    RETRY_LATER = "retry_later", _("a handler asked to be run later")
    WOKEN = "woken", _("it was due, and a worker was woken for it")
    EFFECT_UNKNOWN = "effect_unknown", _("nobody knows whether an effect happened")
    UNHANDLED = "unhandled", _("no handler wants this type")
    SKIPPED = "skipped", _("every handler skipped it")
    SUPERSEDED = "superseded", _("a newer version of its object had come before")


class ReceiptQuerySet(models.QuerySet["WebhookReceipt"]):
    """The states by name.

    On MariaDB text is compared by the column's collation, which may take other cases or trailing blanks for the same.
    """

    def open(self) -> Self:
        """Receipts that somebody still owes a run."""
        return self.filter(status__in=[Status.RECEIVED, Status.PROCESSING, Status.FAILED])

    def received(self) -> Self:
        return self.filter(status=Status.RECEIVED)

    def make_overdue(self) -> int:
        """Let the next moment of open receipts that nobody runs be now.

        Returns:
            How many there were.
        """
        return self.filter(status__in=[Status.RECEIVED, Status.FAILED]).update(due_at=DatabaseNow())

    def failed(self) -> Self:
        return self.filter(status=Status.FAILED)

    def dead(self) -> Self:
        return self.filter(status=Status.DEAD)

    def quarantined(self) -> Self:
        return self.filter(status=Status.QUARANTINED)

    def due(self) -> Self:
        """Open receipts whose next moment has come, by the database's clock, the oldest first."""
        return self.open().filter(due_at__lte=DatabaseNow()).order_by("due_at")

    def held_up(self, seconds: float) -> Self:
        """Open receipts that a pause may have held up, and not those that wait for their next attempt.

        Args:
            seconds: For how long one is put off that is found paused.
        """
        soon = Q(due_at__lte=timezone.now() + timedelta(seconds=seconds))
        return self.open().filter(Q(status=Status.RECEIVED) | soon)

    def spread(self, rate: float) -> int:
        """Let open receipts become due one after another from now on, the oldest first.

        Args:
            rate: Receipts a second.

        Returns:
            How many there were.
        """
        numbers = list(self.open().order_by("received_at", "pk").values_list("pk", flat=True))
        size, now = max(1, round(rate)), timezone.now()
        for start in range(0, len(numbers), size):
            chosen = type(self)(self.model, using=self.db).open().filter(pk__in=numbers[start : start + size])
            chosen.exclude(status=Status.PROCESSING).update(due_at=now + timedelta(seconds=start / rate))
        return len(numbers)

    def newest(self, source: str, number: int) -> Self:
        """The receipts of a source that came last, by the index on source and time."""
        return self.filter(source=source).order_by("-received_at")[:number]

    def siblings(self) -> Self:
        """Receipts of the batch that an outer query is about, by the index on source and time."""
        return self.filter(batch=OuterRef("pk"), source=OuterRef("source"), received_at=OuterRef("received_at"))

    def of_batch(self, batch: WebhookBatch) -> Self:
        """The receipts of a batch, by the index on source and time."""
        return self.filter(batch=batch, source=batch.source, received_at=batch.received_at)

    def needing_body(self, since: datetime) -> Self:
        """Receipts that are not finished, or were only lately.

        Args:
            since: From when on.
        """
        lately = Q(ended_at__gt=since)
        return self.alias(ended_at=Coalesce("processed_at", "received_at")).filter(~Q(status__in=FINISHED) | lately)

    def unchanged(self, numbers: Collection[int], status: str, attempts: int) -> Self:
        """Those of some receipts that have not moved on since they were read.

        Args:
            numbers: Their primary keys.
            status: The status that all of them had.
            attempts: The attempt number that all of them had.
        """
        return self.filter(pk__in=numbers, status=status, attempts=attempts)

    def expire_bodies(self) -> int:
        """Let bodies go; digest and size stay.

        Returns:
            How many had one.
        """
        return self.filter(body__isnull=False).update(body=None)

    def expire_headers(self) -> int:
        """Let the kept headers go.

        Returns:
            Of how many receipts.
        """
        return self.update(headers={})

    def remove(self) -> int:
        """Delete in one conditional statement; Django's ``delete`` reads first and deletes by number alone.

        Where a project's own rows refer to receipts, Django's ``delete`` does to them what their ``on_delete`` says,
        once no other transaction can change the receipts any more.

        Returns:
            How many were deleted.
        """
        if not any(relation.related_model._meta.app_label != self.model._meta.app_label for relation in _referring()):
            return self._raw_delete(self.db)
        self.update(attempts=F("attempts"))  # changes nothing, and holds the rows
        held = type(self)(self.model, using=self.db).filter(pk__in=list(self.values_list("pk", flat=True)))
        return held.delete()[1].get(self.model._meta.label, 0)

    def for_event(self, source: str, event_id: str) -> Self:
        """Receipts of a source with an event id."""
        return self.filter(source=source, event_id=event_id)

    def for_object(self, source: str, object_key: str) -> Self:
        """Receipts of a source about an object, in the order in which they came."""
        return self.filter(source=source, object_key=object_key).order_by("received_at", "pk")


def _referring() -> Iterable[Any]:
    """Return the relations of rows that refer to a receipt."""
    return WebhookReceipt._meta.related_objects


class WebhookReceipt(models.Model):
    """One event: its evidence as it came, and what became of it."""

    fingerprint = models.CharField(_("fingerprint"), max_length=64, editable=False)
    source = models.CharField(_("source"), max_length=100)
    tenant = models.CharField(_("tenant"), max_length=255, null=True, blank=True)  # noqa: DJ001 - none is not ""
    event_id = models.CharField(_("event id"), max_length=255, blank=True)
    event_type = models.CharField(_("event type"), max_length=255, blank=True)
    object_key = models.CharField(_("object"), max_length=255, blank=True)
    idempotency_key = models.CharField(_("idempotency key"), max_length=1000, blank=True)
    key_origin = models.CharField(_("origin of the key"), max_length=16)
    key_id = models.CharField(_("signing key"), max_length=64, blank=True)
    request_id = models.CharField(_("request id"), max_length=128, blank=True)

    status = models.CharField(_("status"), max_length=16, choices=Status)
    reason = models.CharField(_("reason"), max_length=32, choices=Reason, blank=True)
    result = models.TextField(_("result"), blank=True)
    handlers = models.JSONField(_("handlers"), default=list)
    last_handler = models.CharField(_("last handler"), max_length=255, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    excused = models.PositiveIntegerField(_("attempts that do not count"), default=0)
    deliveries = models.PositiveIntegerField(_("deliveries counted"), default=1)

    signed_at = models.DateTimeField(_("signed at"), null=True, blank=True)
    occurred_at = models.DateTimeField(_("occurred at"), null=True, blank=True)
    received_at = models.DateTimeField(_("received at"))
    last_delivered_at = models.DateTimeField(_("last delivered at"))
    processed_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    budget_from = models.DateTimeField(_("budget of attempts since"))
    due_at = models.DateTimeField(_("due at"), null=True, blank=True)
    lease_until = models.DateTimeField(_("leased until"), null=True, blank=True)

    batch = models.ForeignKey(
        WebhookBatch,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="receipts",
        db_constraint=False,
        # Its receipts are found by their source and time, which they share; an index of its own would slow every claim.
        db_index=False,
        verbose_name=_("batch"),
    )
    item = models.PositiveIntegerField(_("number in the batch"), null=True, blank=True)
    reply = models.TextField(_("answer of a handler"), blank=True)
    headers = models.JSONField(_("headers"), default=dict)
    body = models.BinaryField(_("body"), null=True)
    body_digest = models.CharField(_("SHA-256 of the body"), max_length=64)
    body_size = models.PositiveIntegerField(_("size of the body"))

    objects = ReceiptQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook receipt")
        verbose_name_plural = _("webhook receipts")
        default_permissions = ("view",)
        permissions = [
            ("retry_webhookreceipt", _("Can retry failed and dead webhook receipts")),
            ("release_webhookreceipt", _("Can release quarantined webhook receipts")),
            ("discard_webhookreceipt", _("Can discard open, dead and quarantined webhook receipts")),
            ("rerun_webhookreceipt", _("Can run handlers of webhook receipts again that are done")),
            ("settle_webhookreceipt", _("Can settle effects of unknown outcome of webhook receipts")),
            ("pause_webhookreceipt", _("Can pause and resume sources and handlers of webhooks")),
            ("view_webhookreceipt_payload", _("Can view personal data in payloads of webhook receipts")),
        ]
        constraints = [models.UniqueConstraint(fields=["fingerprint"], name="webhook_receipt_fingerprint")]
        indexes = [
            models.Index(fields=["received_at"], name="webhook_receipt_received"),
            models.Index(fields=["source", "received_at"], name="webhook_receipt_source"),
            models.Index(fields=["status", "received_at"], name="webhook_receipt_status"),
            models.Index(fields=["event_id"], name="webhook_receipt_event"),
            models.Index(fields=["due_at"], name="webhook_receipt_due"),
            models.Index(fields=["source", "object_key"], name="webhook_receipt_object"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {visible(self.event_type) or '-'} {self.reference}"

    @property
    def reference(self) -> str:
        """What the sender was told: the first 16 hex of the fingerprint."""
        return self.fingerprint[:16]

    @property
    def outcome(self) -> str:
        """The result, without the fingerprint of another receipt, which not everybody may see, in one that is held."""
        return "" if _ORIGINAL.fullmatch(self.result) else self.result

    @property
    def original(self) -> str | None:
        """The fingerprint of the receipt that had the message, or the nonce, first; None where none is known."""
        found = _ORIGINAL.fullmatch(self.result)
        return found[1] if found else None

    @property
    def raw_body(self) -> bytes | None:
        """The body as it came, whatever type the driver gives; of an item, its batch's."""
        body = self.body if self.batch is None else self.batch.body
        return None if body is None else bytes(body)

    @property
    def retryable(self) -> bool:
        """Whether a person may have it run again."""
        return self.status in RETRYABLE

    @property
    def rerunnable(self) -> bool:
        """Whether a person may have handlers run again that are done."""
        return self.status in RERUNNABLE

    @property
    def releasable(self) -> bool:
        """Whether it is held, and a person may let it run."""
        return self.status in RELEASABLE

    @property
    def discardable(self) -> bool:
        """Whether a person may end it without its work being done."""
        return self.status in DISCARDABLE

    def make_due(self) -> bool:
        """Give a failed or dead receipt a new budget of attempts and make it due now.

        Returns:
            Whether it was this call that did it.
        """
        return self.retryable and self._move_on(**self._due_now())

    def make_due_again(self, *, unmark: bool) -> bool:
        """Make a finished, failed or dead receipt due now, with a new budget of attempts.

        Args:
            unmark: Whether the handler whose mark is on the receipt itself is to run again.

        Returns:
            Whether it was this call that did it.
        """
        changes = self._due_now()
        if unmark:
            changes |= {"last_handler": "", "result": ""}
        return self.rerunnable and self._move_on(**changes)

    def release(self) -> bool:
        """Let a quarantined receipt run: due now, with a budget of attempts that begins now.

        Returns:
            Whether it was this call that did it.
        """
        return self.releasable and self._move_on(**self._due_now())

    def discard(self) -> bool:
        """End a receipt that nobody runs at the moment; its event, delivered again, is a duplicate.

        Returns:
            Whether it was this call that did it.
        """
        return self.discardable and self._move_on(
            status=Status.DISCARDED, processed_at=DatabaseNow(), due_at=None, lease_until=None
        )

    def _due_now(self) -> dict[str, Any]:
        return {
            "status": Status.RECEIVED,
            "reason": Reason.NONE,
            "excused": F("attempts"),
            "budget_from": DatabaseNow(),
            "due_at": DatabaseNow(),
            "lease_until": None,
            "processed_at": None,
        }

    def _move_on(self, **changes: Any) -> bool:
        """Change the row, unless it moved on since this object read it.

        Conditional on status and attempt number, so of two people, or of a person and a running attempt, one wins.
        """
        rows = type(self)._base_manager.using(router.db_for_write(type(self)))
        unchanged = rows.filter(pk=self.pk, status=self.status, attempts=self.attempts)
        return bool(unchanged.update(**changes))


def receipts_alias() -> str:
    """Return the database alias that receipts are written to."""
    return router.db_for_write(WebhookReceipt)

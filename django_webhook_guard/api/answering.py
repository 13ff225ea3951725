"""What is shown of receipts and of what hangs on them."""

from typing import Any

from rest_framework import serializers

from django_webhook_guard import plans, scope
from django_webhook_guard.api.describing import described_as
from django_webhook_guard.api.permissions import ACTS
from django_webhook_guard.conf import source_of
from django_webhook_guard.contents import content, personal_columns
from django_webhook_guard.masking import MASK
from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookEffect, WebhookReceipt

#: The longest body that is parsed for an answer, in bytes; of a longer one the raw bytes can be had.
LONGEST = 262_144
#: How much of the end of a traceback is shown, in characters.
TRACEBACK = 8_192
_POSSIBLE = {
    "retry": "retryable",
    "rerun": "rerunnable",
    "release": "releasable",
    "discard": "discardable",
    "settle": "retryable",
}


def possible(act: str, receipt: WebhookReceipt) -> bool:
    """Tell whether a receipt is in a state for an act."""
    return bool(getattr(receipt, _POSSIBLE[act]))


class ReceiptSerializer(serializers.ModelSerializer[WebhookReceipt]):
    """A receipt as the list shows it."""

    reference = serializers.CharField()

    class Meta:
        model = WebhookReceipt
        fields: tuple[str, ...] = (
            "id", "reference", "fingerprint", "source", "tenant", "event_id", "event_type", "object_key", "status",
            "reason", "attempts", "deliveries", "received_at", "last_delivered_at", "processed_at", "due_at",
            "lease_until", "batch", "item",
        )  # fmt: skip
        read_only_fields = fields

    def to_representation(self, instance: WebhookReceipt) -> dict[str, Any]:
        """Mask what was read from a personal place of the body."""
        shown: dict[str, Any] = super().to_representation(instance)
        source = source_of(instance.source)
        if source is not None and source.personal and not scope.may_read_payload(self.context["asking"]):
            shown |= {name: MASK for name in personal_columns(source) if shown.get(name)}
        return shown


#: The columns that the list reads.
COLUMNS = tuple(name for name in ReceiptSerializer.Meta.fields if name != "reference")


class PageSerializer(serializers.Serializer[Any]):
    """A page of the list."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = ReceiptSerializer(many=True)


class ContentSerializer(serializers.Serializer[Any]):
    """The parsed body, or why it is not shown."""

    state = serializers.ChoiceField(["shown", "masked", "expired", "too_large", "unreadable", "unknown_source"])
    data = serializers.JSONField(allow_null=True)  # type: ignore[assignment]


class MarkSerializer(serializers.ModelSerializer[WebhookCheckpoint]):
    """How a handler ended."""

    class Meta:
        model = WebhookCheckpoint
        fields = ("handler", "mark", "result", "attempt", "created_at")
        read_only_fields = fields


class EffectSerializer(serializers.ModelSerializer[WebhookEffect]):
    """An effect outside of the database; its result is JSON, as text."""

    class Meta:
        model = WebhookEffect
        fields = ("handler", "name", "state", "key", "keys", "calls", "result", "attempt", "started_at", "finished_at")
        read_only_fields = fields


class PlanSerializer(serializers.Serializer[Any]):
    """What a retry would do, as far as this process knows."""

    runs = serializers.ListField(child=serializers.CharField())
    stays = serializers.ListField(child=serializers.CharField())
    unknown = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField(allow_blank=True)


class DetailSerializer(ReceiptSerializer):
    """A receipt with what hangs on it."""

    result = serializers.CharField(source="outcome")
    original = serializers.SerializerMethodField()
    handlers = serializers.ListField(child=serializers.CharField())
    headers = serializers.DictField(child=serializers.CharField())
    payload = serializers.SerializerMethodField()
    raw_body = serializers.SerializerMethodField()
    marks = serializers.SerializerMethodField()
    unread_databases = serializers.SerializerMethodField()
    effects = serializers.SerializerMethodField()
    retry = serializers.SerializerMethodField()
    acts = serializers.SerializerMethodField()

    class Meta(ReceiptSerializer.Meta):
        fields = (
            *ReceiptSerializer.Meta.fields, "idempotency_key", "key_origin", "key_id", "request_id", "signed_at",
            "occurred_at", "excused", "budget_from", "result", "original", "handlers", "last_handler", "headers",
            "body_digest", "body_size", "payload", "raw_body", "marks", "unread_databases", "effects", "retry", "acts",
        )  # fmt: skip
        read_only_fields = fields

    def get_original(self, receipt: WebhookReceipt) -> int | None:
        """Return the receipt that had the message, or the nonce, first, where the user may see it."""
        if receipt.original is None:
            return None
        found = scope.receipts_of(self.context["asking"]).filter(fingerprint=receipt.original)
        return found.values_list("pk", flat=True).first()

    @described_as(ContentSerializer)
    def get_payload(self, receipt: WebhookReceipt) -> Any:
        """Return the parsed body, without what the user may not see."""
        hidden = scope.hidden(self.context["asking"], receipt)
        return ContentSerializer(content(receipt, hidden, longest=LONGEST)).data

    def get_raw_body(self, receipt: WebhookReceipt) -> bool:
        """Return whether the user may have the raw bytes."""
        return scope.may_read_body(self.context["asking"], receipt)

    @described_as(MarkSerializer(many=True))
    def get_marks(self, receipt: WebhookReceipt) -> Any:
        """Return how handlers ended; the mark of ``last_handler`` is on the receipt itself."""
        return MarkSerializer(self.context["marks"].rows, many=True).data

    def get_unread_databases(self, receipt: WebhookReceipt) -> list[str]:
        """Return the databases of handlers that were out of reach."""
        unread: list[str] = self.context["marks"].unread
        return unread

    @described_as(EffectSerializer(many=True))
    def get_effects(self, receipt: WebhookReceipt) -> Any:
        """Return the effects outside of the database."""
        rows = WebhookEffect.objects.using(receipt._state.db).of_receipt(receipt.fingerprint)
        return EffectSerializer(rows, many=True).data

    @described_as(PlanSerializer)
    def get_retry(self, receipt: WebhookReceipt) -> Any:
        """Return what a retry would do."""
        return PlanSerializer(plans.plan(receipt, self.context["marks"])).data

    def get_acts(self, receipt: WebhookReceipt) -> list[str]:
        """Return what the user may do to the receipt as it is."""
        user: Any = self.context["asking"].user
        return [
            act
            for act in ACTS
            if possible(act, receipt) and user.has_perm(f"django_webhook_guard.{act}_webhookreceipt")
        ]


class AttemptSerializer(serializers.ModelSerializer[WebhookAttempt]):
    """A recorded run, with the end of its traceback."""

    traceback = serializers.SerializerMethodField()

    class Meta:
        model = WebhookAttempt
        fields = (
            "number", "trigger", "actor", "outcome", "handler", "error_class", "message", "traceback", "release",
            "started_at", "duration_ms",
        )  # fmt: skip
        read_only_fields = fields

    def get_traceback(self, attempt: WebhookAttempt) -> str:
        """Return the end of the traceback."""
        return attempt.traceback[-TRACEBACK:]


class AttemptsSerializer(serializers.Serializer[Any]):
    """The newest attempts, the oldest of them first, and whether there are earlier ones."""

    earlier = serializers.BooleanField()
    results = AttemptSerializer(many=True)


class WindowsSerializer(serializers.Serializer[Any]):
    """How many came within the last hour, 24 hours and seven days."""

    name = serializers.CharField()
    hour = serializers.IntegerField()
    day = serializers.IntegerField()
    week = serializers.IntegerField()


class OldestSerializer(serializers.Serializer[Any]):
    """The receipt that is due for longest."""

    id = serializers.IntegerField(source="pk")
    due_at = serializers.DateTimeField()


class CountsSerializer(serializers.Serializer[Any]):
    """What is in the table; a count that is ``reach`` means so many, or more."""

    at = serializers.DateTimeField()
    reach = serializers.IntegerField()
    sources = WindowsSerializer(many=True)
    statuses = WindowsSerializer(many=True)
    due = serializers.IntegerField()
    oldest_due = OldestSerializer(allow_null=True)
    dead = serializers.IntegerField()
    quarantined = serializers.IntegerField()


class ProblemSerializer(serializers.Serializer[Any]):
    """Why something was not done."""

    detail = serializers.CharField()
    code = serializers.CharField(required=False)

"""What may be asked for, and how: what is not known here, or cannot be read, is refused."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.request import Request

from django_webhook_guard.api.paging import LONGEST_PAGE, PAGE, Cursor, read_cursor
from django_webhook_guard.conf import names_of
from django_webhook_guard.models.receipts import ReceiptQuerySet, Status

MAX_REASON = 200
MAX_TEXT = 255
MAX_ATTEMPTS = 2_147_483_647
MAX_HANDLERS = 100


class Moment(serializers.DateTimeField):
    """A time with its offset from UTC, of a year that every database can compare with."""

    def to_internal_value(self, value: Any) -> datetime:
        try:
            moment = parse_datetime(value) if isinstance(value, str) and len(value) < 40 else None
        except ValueError:
            moment = None
        if moment is None or timezone.is_naive(moment) or not 1970 < moment.year < 9000:
            raise ValidationError(_("Give a time with its offset, such as 2026-12-01T12:00:00Z."))
        return moment.astimezone(UTC)  # PostgreSQL refuses offsets of more than some sixteen hours


class Exact(serializers.CharField):
    """Text that is taken as it is, blanks at its ends included."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)


class CursorField(serializers.CharField):
    """A place in the list, as an answer names it."""

    def to_internal_value(self, data: Any) -> Cursor:  # type: ignore[override]
        cursor = read_cursor(super().to_internal_value(data))
        if cursor is None:
            raise ValidationError(_("This is no cursor of an answer."))
        return cursor


class Nothing(serializers.Serializer[Any]):
    """No query parameter at all."""


class ListQuery(serializers.Serializer[Any]):
    """The query parameters of the list."""

    source = Exact(required=False, max_length=100)  # type: ignore[assignment]
    status = serializers.ChoiceField(
        required=False,
        choices=Status.choices,
        error_messages={"invalid_choice": _("One of: %(statuses)s.") % {"statuses": ", ".join(Status.values)}},
    )
    type = Exact(required=False, max_length=MAX_TEXT)
    event_id = Exact(required=False, max_length=MAX_TEXT)
    object = Exact(required=False, max_length=MAX_TEXT)
    tenant = Exact(required=False, max_length=MAX_TEXT)
    since = Moment(required=False)
    until = Moment(required=False)
    reference = serializers.RegexField(
        r"^[0-9a-f]{16,64}\Z",
        required=False,
        trim_whitespace=False,
        error_messages={"invalid": _("Give 16 to 64 hex digits.")},
    )
    cursor = CursorField(required=False)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=LONGEST_PAGE, default=PAGE)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what no index serves."""
        if "object" in attrs and "source" not in attrs:
            raise ValidationError({"object": _("Give the source, too.")})
        found_by = {"event_id", "object", "reference", "since"}
        for name in ("type", "tenant"):
            if name in attrs and found_by.isdisjoint(attrs):
                raise ValidationError({name: _("No index finds it alone: give since, too.")})
        return attrs


def asked(request: Request, known: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """Return the query parameters of a request.

    Raises:
        ValidationError: One cannot be read.
        ParseError: One is not known, or given twice.
    """
    given = request.query_params
    names = set(known().fields)
    if not set(given) <= names:
        words = _("Unknown query parameter; known are: %(names)s.") % {"names": ", ".join(sorted(names)) or "-"}
        raise ParseError(words)
    if any(len(values) > 1 for _name, values in given.lists()):
        raise ParseError(_("A query parameter is given more than once."))
    reading = known(data=given.dict())
    reading.is_valid(raise_exception=True)
    return dict(reading.validated_data)


def narrowed(receipts: ReceiptQuerySet, wanted: Mapping[str, Any]) -> ReceiptQuerySet:
    """Return the receipts that the query parameters of the list name."""
    columns = {
        "status": "status",
        "type": "event_type",
        "event_id": "event_id",
        "object": "object_key",
        "tenant": "tenant",
        "since": "received_at__gte",
        "until": "received_at__lt",
    }
    receipts = receipts.filter(**{column: wanted[name] for name, column in columns.items() if name in wanted})
    if "source" in wanted:
        names = names_of(wanted["source"])
        receipts = receipts.filter(source__in=names) if len(names) > 1 else receipts.filter(source=wanted["source"])
    if "reference" in wanted:
        # A range instead of LIKE, which needs an index of its own on PostgreSQL; "g" follows every hex digit.
        start = wanted["reference"]
        receipts = receipts.filter(fingerprint__gte=start, fingerprint__lt=f"{start}g")
    return receipts


class Seen(serializers.Serializer[Any]):
    """The receipt as the client saw it, and why something is to be done to it."""

    status = serializers.ChoiceField(
        choices=Status.choices,
        error_messages={"invalid_choice": _("One of: %(statuses)s.") % {"statuses": ", ".join(Status.values)}},
    )
    attempts = serializers.IntegerField(min_value=0, max_value=MAX_ATTEMPTS)
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_REASON)


class SeenAndHandlers(Seen):
    """Which handlers run again: none: only those that have not run; null: all."""

    handlers = serializers.ListField(
        child=Exact(max_length=MAX_TEXT),
        allow_null=True,
        max_length=MAX_HANDLERS,
    )


class SeenAndEffect(Seen):
    """What a person found out about an effect of unknown outcome."""

    handler = Exact(max_length=MAX_TEXT)
    name = Exact(max_length=MAX_TEXT)
    happened = serializers.BooleanField()
    result = serializers.JSONField(required=False, allow_null=True, default=None)

"""The list: pages, filters and search that read an index, however many receipts there are."""

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import BigIntegerField, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_webhook_guard import groups
from django_webhook_guard.conf import configuration, runnable_names
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.clock import DatabaseNow
from django_webhook_guard.models.receipts import Status
from django_webhook_guard.text import visible

Receipts = QuerySet[WebhookReceipt]

#: How many receipts are counted, paged through and found at most.
REACH = 1_000
LONGEST_TERM = 255
_HEX = re.compile(r"[0-9a-f]{16,64}")
_GROUP = re.compile(r"[0-9a-f]{16}")
_NUMBER = re.compile(r"[0-9]{1,19}")
COLUMNS = (
    "fingerprint", "source", "tenant", "event_id", "event_type", "object_key", "idempotency_key", "status", "reason",
    "attempts", "deliveries", "received_at", "due_at",
)  # fmt: skip


if TYPE_CHECKING:
    _Paginator = Paginator[WebhookReceipt]
else:
    _Paginator = Paginator


class BoundedPaginator(_Paginator):
    """Counts at most ``REACH`` rows, so that a page costs the same at any size of the table."""

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: REACH + 1].count())

    @cached_property
    def count(self) -> int:
        return min(self._counted, REACH)

    @property
    def more(self) -> bool:
        """Whether there are rows that no page reaches."""
        return self._counted > REACH


def numbers(receipts: QuerySet[Any]) -> list[int]:
    """Read the primary keys of a slice, in one query of their own."""
    return list(receipts.values_list("pk", flat=True))


def is_number(term: str) -> bool:
    """Tell whether a receipt could have the number, so that every database takes it as a parameter."""
    return _NUMBER.fullmatch(term) is not None and int(term) <= BigIntegerField.MAX_BIGINT


class ReceiptChangeList(ChangeList):
    """The list in its one order, newest first, without bodies and headers."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Return the order that the indexes serve, whatever the address asks for."""
        return ["-received_at", "-pk"]

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        rows: Any = super().get_queryset(request, *args, **kwargs)
        if request.GET.get(SEARCH_VAR, "").strip() and not self.query.strip():
            rows = rows.none()  # the search form refused it, a NUL for example
        shown: QuerySet[Any] = rows.only(*COLUMNS).annotate(shown_at=DatabaseNow())
        return shown

    def get_results(self, request: HttpRequest) -> None:
        """Find the page's numbers first, which the index alone answers, then read those rows.

        In one query MariaDB prefers to sort the whole table from some hundred rows on. And where all rows fit on
        a page by the count of a moment ago, Django asks without a limit.
        """
        super().get_results(request)
        page = self.result_list if self.multi_page else self.queryset[: self.list_per_page]
        self.result_list = self.queryset.filter(pk__in=numbers(page))


# -- filters -----------------------------------------------------------------------------------------------------------


class _FixedFilter(admin.SimpleListFilter):
    """A filter of known choices; any other value finds nothing."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        known = {str(choice) for choice, _label in self.lookup_choices}
        return self.narrowed(queryset, value) if value in known else queryset.none()

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the rows of a known value."""
        raise NotImplementedError


class StatusFilter(_FixedFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(Status.choices)

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(status=value)


class SourceFilter(_FixedFilter):
    title = _("source")
    parameter_name = "source"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the configured names, and each former one under the name that runs it today."""
        found: dict[str, str] = {}
        for source in configuration().sources.values():
            found[source.name] = source.name
            words = gettext("%(former)s (now %(name)s)")
            found |= {former: words % {"former": former, "name": source.name} for former in source.formerly}
        return list(found.items())

    def has_output(self) -> bool:
        """Show the filter for one source too: receipts of others may be in the table."""
        return bool(self.lookup_choices)

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(source=value)


class ReceivedFilter(_FixedFilter):
    title = _("received")
    parameter_name = "received"
    ranges = {
        "hour": (_("in the last hour"), timedelta(hours=1)),
        "day": (_("in the last 24 hours"), timedelta(days=1)),
        "week": (_("in the last 7 days"), timedelta(days=7)),
        "month": (_("in the last 30 days"), timedelta(days=30)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (label, _length) in self.ranges.items()]

    def narrowed(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(received_at__gte=timezone.now() - self.ranges[value][1])


class ErrorFilter(admin.SimpleListFilter):
    """Receipts of one kind of failure; its page links here, and the list offers no choice of its own."""

    title = _("failure")
    parameter_name = "error"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        chosen = request.GET.get(self.parameter_name, "")
        return [(chosen, visible(chosen))] if chosen else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value != groups.NO_ERROR and not _GROUP.fullmatch(value):
            return queryset.none()
        narrowed: Any = queryset
        return groups.failing(narrowed, value)


FILTERS = (StatusFilter, SourceFilter, ReceivedFilter, ErrorFilter)


# -- search ------------------------------------------------------------------------------------------------------------


def search(receipts: Receipts, term: str) -> set[int]:
    """Return the numbers of the receipts that a term names, exactly.

    Each kind of id is looked up by a query of its own on its own index: one query for all would leave it to the
    planner whether it uses any. At most ``REACH`` are found of each kind.

    Args:
        receipts: The receipts that may be found.
        term: An event id, a reference or a fingerprint, an object of a configured source, or a number.
    """
    term = term.strip()
    if not _may_be_stored(term):
        return set()
    return {number for rows in _lookups(receipts, term) for number in numbers(rows[:REACH])}


def _lookups(receipts: Receipts, term: str) -> Iterable[Receipts]:
    yield receipts.filter(event_id=term)
    yield receipts.filter(source__in=runnable_names(), object_key=term)
    prefix = term.lower()
    if _HEX.fullmatch(prefix):
        # A range instead of LIKE, which needs an index of its own on PostgreSQL; "g" follows every hex digit.
        yield receipts.filter(fingerprint__gte=prefix, fingerprint__lt=f"{prefix}g")
    if is_number(term):
        yield receipts.filter(pk=int(term))


def _may_be_stored(term: str) -> bool:
    """Tell whether a column could hold the term, so that every database takes it as a parameter."""
    if not term or len(term) > LONGEST_TERM or "\0" in term:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in term)

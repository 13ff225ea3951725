"""Failed and dead receipts by what went wrong: source, type, handler, error and its place."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db.models import Count, F, Max, Min

from django_webhook_guard.models import WebhookAttempt
from django_webhook_guard.models.receipts import ReceiptQuerySet, Status

#: How many failed and how many dead receipts are looked at, the newest of each.
REACH = 10_000
#: The group of receipts whose last run left no error behind: its process was killed.
NO_ERROR = "none"
FAILING = (Status.FAILED, Status.DEAD)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Receipts that wait because of one kind of failure.

    Args:
        key: The group's digest, or ``NO_ERROR``.
        failed: How many of them run again by themselves.
        dead: How many wait for a person.
        since: When the first of them came; None where it is not known.
        last_seen: When the failure was seen last.
        last: The last attempt that failed so, with its receipt; None where no error was left behind.
    """

    key: str
    failed: int = 0
    dead: int = 0
    since: datetime | None = None
    last_seen: datetime | None = None
    last: WebhookAttempt | None = field(default=None, repr=False)

    @property
    def total(self) -> int:
        return self.failed + self.dead


@dataclass(frozen=True, kw_only=True)
class Groups:
    """All groups, the largest first.

    Args:
        groups: The groups.
        more: Whether there are older receipts that were not looked at.
    """

    groups: tuple[Group, ...]
    more: bool


def failing(receipts: ReceiptQuerySet, key: str) -> ReceiptQuerySet:
    """Narrow receipts to the failed and dead ones of a group.

    Args:
        receipts: Those that may be seen.
        key: The group's digest, or ``NO_ERROR``.
    """
    waiting = receipts.filter(status__in=FAILING)
    last = WebhookAttempt.objects.using(receipts.db).filter(number=F("receipt__attempts"))
    if key == NO_ERROR:
        with_error = last.filter(receipt__status__in=FAILING).exclude(error_group="")
        return waiting.exclude(pk__in=with_error.values("receipt_id"))
    return waiting.filter(pk__in=last.filter(error_group=key).values("receipt_id"))


def found(receipts: ReceiptQuerySet) -> Groups:
    """Group the failed and dead receipts, the newest ``REACH`` of each.

    Args:
        receipts: Those that may be seen.
    """
    groups: dict[str, Group] = {}
    more = False
    for status in FAILING:
        waiting = receipts.filter(status=status).order_by()
        since = _since(waiting)
        if since is not None:
            more = True
            waiting = waiting.filter(received_at__gte=since)
        left = waiting.count()
        for key, count, first, last in _counted(waiting):
            left -= count
            groups[key] = _with(groups.get(key, Group(key=key)), status, count, first, last)
        if left > 0:
            groups[NO_ERROR] = _with(groups.get(NO_ERROR, Group(key=NO_ERROR)), status, left, None, None)
    described = (_described(receipts, group) for group in groups.values())
    return Groups(groups=tuple(sorted(described, key=lambda group: (-group.total, group.key))), more=more)


def _since(waiting: ReceiptQuerySet) -> datetime | None:
    """Return since when receipts are looked at; None: all of them."""
    moments = waiting.order_by("-received_at").values_list("received_at", flat=True)
    return next(iter(moments[REACH : REACH + 1]), None)


def _counted(waiting: ReceiptQuerySet) -> Iterable[tuple[str, int, datetime, datetime]]:
    """Yield group, number of receipts, when the first of them came, and when the last attempt began."""
    rows = waiting.filter(attempt_rows__number=F("attempts")).exclude(attempt_rows__error_group="")
    return rows.values_list("attempt_rows__error_group").annotate(
        Count("pk", distinct=True), Min("received_at"), Max("attempt_rows__started_at")
    )


def _with(group: Group, status: str, count: int, first: datetime | None, last: datetime | None) -> Group:
    group = replace(
        group,
        since=min(filter(None, (group.since, first)), default=None),
        last_seen=max(filter(None, (group.last_seen, last)), default=None),
    )
    if status == Status.FAILED:
        return replace(group, failed=group.failed + count)
    return replace(group, dead=group.dead + count)


def _described(receipts: ReceiptQuerySet, group: Group) -> Group:
    if group.key == NO_ERROR:
        return group
    attempts = WebhookAttempt.objects.using(receipts.db).filter(error_group=group.key, receipt__in=receipts.order_by())
    newest = attempts.select_related("receipt").defer("receipt__body", "receipt__headers", "traceback")
    return replace(group, last=newest.order_by("-started_at").first())

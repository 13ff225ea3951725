"""The overview: what became of each source's deliveries, drawn without a script.

Every question is one that an index answers, and bounded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet, Sum
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_webhook_guard import health
from django_webhook_guard.admin.changelist import REACH
from django_webhook_guard.conf import configuration, receipts_alias, source_of
from django_webhook_guard.models import WebhookCount, WebhookReceipt
from django_webhook_guard.models.clock import DatabaseNow
from django_webhook_guard.models.receipts import Status

Receipts = QuerySet[WebhookReceipt]

#: How many signing keys are named of a source.
MAX_KEYS = 5
#: Units of the drawing: how wide a bar with its gap is, and how high the highest one.
STEP, GAP, HEIGHT = 20, 4, 100


@dataclass(frozen=True, kw_only=True)
class Period:
    """A span of time that ends now.

    Args:
        name: In the address.
        label: For people.
        minutes: How long it is.
        step: Minutes of one bar.
        format: How the beginning of a bar is written.
    """

    name: str
    label: Any
    minutes: int
    step: int
    format: str

    def starts(self, now: datetime) -> list[int]:
        """Return where its bars begin, in minutes since 1970; the last one holds the present moment."""
        last = int(now.timestamp()) // 60 // self.step * self.step
        return list(range(last - self.minutes + self.step, last + 1, self.step))


PERIODS = {
    each.name: each
    for each in (
        Period(name="hour", label=_("last hour"), minutes=60, step=5, format="H:i"),
        Period(name="day", label=_("last 24 hours"), minutes=1_440, step=60, format="H:i"),
        Period(name="week", label=_("last 7 days"), minutes=10_080, step=360, format="Y-m-d H:i"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Series:
    """Decisions that are drawn as one part of a bar.

    Args:
        name: Of its class in the stylesheet, and of its pattern.
        label: For people.
        decisions: What deliveries were answered with.
        statuses: Of receipts, where only these are counted.
    """

    name: str
    label: Any
    decisions: frozenset[str]
    statuses: frozenset[str] = frozenset()


def _series(name: str, label: Any, decisions: Iterable[str], statuses: Iterable[str] = ()) -> Series:
    return Series(name=name, label=label, decisions=frozenset(decisions), statuses=frozenset(statuses))


SERIES = (
    _series("processed", _("processed"), ["processed", "handshake"], [Status.PROCESSED]),
    _series("accepted", _("accepted for later"), ["accepted"], [Status.RECEIVED, Status.PROCESSING]),
    _series("duplicate", _("duplicate"), ["duplicate"]),
    _series("declined", _("declined or unwanted"), ["declined", "ignored"], [Status.IGNORED, Status.DISCARDED]),
    _series("quarantined", _("quarantined"), ["quarantined"], [Status.QUARANTINED]),
    _series("failed", _("failed, or to come again"), ["failed", "retry_later", "busy", "unavailable"], [Status.FAILED]),
    _series("dead", _("dead"), ["gave_up"], [Status.DEAD]),
    _series(
        "rejected", _("rejected"), ["rejected", "late", "malformed", "too_large", "not_found", "wrong_method"],
    ),
)  # fmt: skip
_BY_DECISION = {decision: each.name for each in SERIES for decision in each.decisions}
_BY_STATUS = {status: each.name for each in SERIES for status in each.statuses}

#: Source → beginning of a bar → series → number.
Numbers = Mapping[str, Mapping[int, Mapping[str, int]]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A rectangle of a bar, in the drawing's units, as text that no language writes otherwise."""

    series: str
    x: str
    y: str
    height: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What became of deliveries over time.

    Args:
        parts: The rectangles.
        rows: For each bar: when it begins, and the numbers in the order of the series.
        totals: The series that occur, and how often.
        peak: The highest bar's number.
        width: Of the drawing.
    """

    parts: Sequence[Part]
    rows: Sequence[tuple[str, Sequence[int]]]
    totals: Sequence[tuple[Series, int]]
    peak: int
    width: int


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One source.

    Args:
        name: Its name; empty for what reached none.
        chart: What became of its deliveries.
        last: When its newest event came.
        due: Since when its oldest due receipt waits.
        dead: How many dead receipts of the period wait for a person.
        held: How many quarantined ones do.
        keys: Ids of the keys that signed its newest receipts in the period.
        more_keys: Whether there are more.
        skew: Seconds that its stamps are from our clock, with their sign, or an empty string.
    """

    name: str
    chart: Chart
    last: datetime | None = None
    due: datetime | None = None
    dead: int = 0
    held: int = 0
    keys: Sequence[str] = ()
    more_keys: bool = False
    skew: str = ""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The page.

    Args:
        period: What it is about.
        panels: The sources.
        limited: Whether the person sees some receipts only, so that numbers are those of these receipts.
        cut: Whether more is dead or quarantined than is counted.
    """

    period: Period
    panels: Sequence[Panel]
    limited: bool
    cut: bool
    series: Sequence[Series] = field(default=SERIES)


def look(receipts: Receipts, period: Period, *, limited: bool) -> Overview:
    """Look at every source.

    Args:
        receipts: The receipts that the person may see.
        period: The span of time.
        limited: Whether they are not all: then nothing else is counted.
    """
    now = timezone.now()
    starts = period.starts(now)
    since = now - timedelta(minutes=period.minutes)
    names = list(configuration().sources)
    numbers = _from_receipts(receipts, names, period, starts) if limited else _from_counts(period, starts)
    waiting = {status: _waiting(receipts, status, since) for status in (Status.DEAD, Status.QUARANTINED)}
    due = _oldest_due(receipts)
    panels = [
        _panel(
            receipts, name, since,
            chart=_chart(numbers.get(name, {}), period, starts),
            due=due.get(name), dead=waiting[Status.DEAD][name], held=waiting[Status.QUARANTINED][name],
        )
        for name in names
    ]  # fmt: skip
    if not limited:
        panels.append(Panel(name="", chart=_chart(numbers.get("", {}), period, starts)))
    cut = any(sum(each.values()) >= REACH for each in waiting.values())
    return Overview(period=period, panels=panels, limited=limited, cut=cut)


def _panel(receipts: Receipts, name: str, since: datetime, **known: Any) -> Panel:
    rows = _newest(receipts, name)
    keys = list(dict.fromkeys(key for came, _signed, _reason, key in rows if key and came >= since))
    skew = health.skew((signed, came, reason) for came, signed, reason, _key in rows)
    return Panel(
        name=name,
        last=rows[0][0] if rows else None,
        keys=keys[:MAX_KEYS],
        more_keys=len(keys) > MAX_KEYS,
        skew="" if skew is None else f"{skew:+.1f}",
        **known,
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _running_name(stored: str) -> str:
    """Return the name of the source that a stored name stands for today, or an empty string."""
    source = source_of(stored) if stored else None
    return "" if source is None else source.name


def _from_counts(period: Period, starts: Sequence[int]) -> Numbers:
    """Add up the counts; the database makes one row of each source, decision and bar."""
    found: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    rows = (
        WebhookCount.objects.using(receipts_alias())
        .filter(minute__gte=starts[0])
        .annotate(start=F("minute") - F("minute") % period.step)
        .values_list("source", "decision", "start")
        .annotate(number=Sum("count"))
        .order_by()
    )
    for source, decision, start, number in rows:
        found[_running_name(source)][start][_BY_DECISION.get(decision, "failed")] += int(number)
    return found


def _from_receipts(receipts: Receipts, names: Iterable[str], period: Period, starts: Sequence[int]) -> Numbers:
    """Count the newest receipts of each source, by the state that they are in now."""
    found: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    since = datetime.fromtimestamp(starts[0] * 60, tz=timezone.get_current_timezone())
    for name in names:
        rows = receipts.filter(source=name, received_at__gte=since).order_by("-received_at")
        for status, came in rows.values_list("status", "received_at")[:REACH]:
            start = int(came.timestamp()) // 60 // period.step * period.step
            found[name][start][_BY_STATUS[status]] += 1
    return found


def _waiting(receipts: Receipts, status: str, since: datetime) -> Counter[str]:
    """Count the newest receipts of the period that wait for a person, by source."""
    rows = receipts.filter(status=status, received_at__gte=since).order_by("-received_at")
    return Counter(map(_running_name, rows.values_list("source", flat=True)[:REACH]))


def _oldest_due(receipts: Receipts) -> Mapping[str, datetime]:
    """Return source → since when its oldest due receipt waits, of those that are due the longest."""
    open_ones = receipts.filter(status__in=[Status.RECEIVED, Status.PROCESSING, Status.FAILED])
    rows = open_ones.filter(due_at__lte=DatabaseNow()).order_by("due_at").values_list("source", "due_at")[:REACH]
    found: dict[str, datetime] = {}
    for source, due_at in rows:
        if due_at is not None:
            found.setdefault(_running_name(source), due_at)
    return found


def _newest(receipts: Receipts, name: str) -> list[tuple[Any, ...]]:
    """Return (received, signed, reason, key) of a source's newest receipts, of its former names' where it has none."""
    source = configuration().sources[name]
    for each in (name, *source.formerly):
        rows = receipts.filter(source=each).order_by("-received_at")
        found = list(rows.values_list("received_at", "signed_at", "reason", "key_id")[: health.SAMPLE])
        if found:
            return found
    return []


# -- the drawing -------------------------------------------------------------------------------------------------------


def _chart(numbers: Mapping[int, Mapping[str, int]], period: Period, starts: Sequence[int]) -> Chart:
    bars = [numbers.get(start, {}) for start in starts]
    peak = max(sum(bar.values()) for bar in bars)
    totals: Counter[str] = Counter()
    for bar in bars:
        totals.update(bar)
    return Chart(
        parts=[part for number, bar in enumerate(bars) for part in _parts(number, bar, peak)],
        rows=[
            (_label(start, period), [bar.get(each.name, 0) for each in SERIES])
            for start, bar in zip(starts, bars, strict=True)
        ],
        totals=[(each, totals[each.name]) for each in SERIES if totals[each.name]],
        peak=peak,
        width=len(starts) * STEP,
    )


def _parts(number: int, bar: Mapping[str, int], peak: int) -> Iterator[Part]:
    """Yield the rectangles of a bar from the ground up."""
    below = 0
    for each in SERIES:
        part = bar.get(each.name, 0)
        if not part:
            continue
        below += part
        yield Part(
            series=each.name,
            x=str(number * STEP + GAP // 2),
            y=f"{HEIGHT - below * HEIGHT / peak:.2f}",
            height=f"{part * HEIGHT / peak:.2f}",
        )


def _label(start: int, period: Period) -> str:
    moment = datetime.fromtimestamp(start * 60, tz=timezone.get_current_timezone())
    return date_format(moment, period.format)


def described(panel: Panel, period: Period) -> str:
    """Return a chart in words, for those who do not see it."""
    if not panel.chart.totals:
        return gettext("no deliveries")
    parts = [f"{each.label} {number}" for each, number in panel.chart.totals]
    return f"{period.label}: {', '.join(parts)}"

"""How the package is doing: clocks, backlog, silence, keys, and what is paused.

Nothing here writes. ``manage.py webhook_health`` prints it, and ``alerts`` tells whoever listens.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from django.utils import timezone

from django_webhook_guard import statements
from django_webhook_guard.conf import configuration, receipts_alias
from django_webhook_guard.models import WebhookPause, WebhookReceipt
from django_webhook_guard.sources import Source
from django_webhook_guard.text import visible

#: Seconds of difference between two clocks above which there is a warning.
MAX_SKEW = 5.0
#: How many of a source's newest receipts its clock is judged by.
SAMPLE = 100
#: How many dead receipts are counted.
COUNTED = 1_000
#: Seconds that something may be overdue before there is a warning: nobody seems to sweep.
MAX_OVERDUE = 300.0
#: How long before a source's last key ends there is a warning.
KEYS_END = timedelta(days=7)


class Level(StrEnum):
    """How bad a finding is."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that a person should look at.

    Args:
        code: Its kind: ``clock``, ``source_clock``, ``overdue``, ``dead``, ``silent``, ``keys`` or ``paused``.
        level: How bad it is.
        source: The source, or an empty string where it is about no single one.
        words: What it is, and what to do.
    """

    code: str
    level: Level
    words: str
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From when on something is worth a finding.

    Args:
        overdue: Seconds that a due receipt has waited.
        dead: Dead receipts; None: any number is fine, for they wait for a person anyway.
    """

    overdue: float = MAX_OVERDUE
    dead: int | None = None


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found.

    Args:
        database_skew: This process's clock minus the database's, in seconds.
        source_skew: Source → median of the sender's signed stamp minus the time of arrival, in seconds: negative by
            the way that a delivery takes. Only sources that sign a stamp and have receipts.
        overdue: For how long the oldest due receipt has waited, in seconds; 0 where none is due.
        dead: How many receipts wait for a person because they are dead, at most ``COUNTED``.
        quarantined: How many are held, at most ``COUNTED``.
        silent: Source with ``EXPECT_EVERY`` → seconds since its newest receipt came; None where it has none.
        paused: What a person has paused.
        findings: What a person should look at.
    """

    database_skew: float
    source_skew: Mapping[str, float]
    overdue: float
    dead: int
    quarantined: int = 0
    silent: Mapping[str, float | None] = field(default_factory=dict)
    paused: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should look at, in words."""
        return tuple(finding.words for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to look at."""
        return not self.findings


def look(limits: Limits | None = None) -> Health:
    """Look at clocks, backlog, silence, keys and pauses.

    Args:
        limits: From when on something is worth a finding.

    Raises:
        django.db.Error: The database is away.
    """
    using = receipts_alias()
    rows = WebhookReceipt.objects.using(using)
    before = time.time()
    database = statements.clock(using)
    here = (before + time.time()) / 2  # the question took a moment: its middle is compared
    found = Health(
        database_skew=here - database,
        source_skew={name: found for name in configuration().sources if (found := _skew_of(using, name)) is not None},
        overdue=overdue(using, database),
        dead=rows.dead()[:COUNTED].count(),
        quarantined=rows.quarantined()[:COUNTED].count(),
        silent={
            name: _silence(using, name, database)
            for name, source in configuration().sources.items()
            if source.expect_every is not None
        },
        paused=tuple(map(str, WebhookPause.objects.using(using).order_by("source", "handler"))),
    )
    return replace(found, findings=tuple(_findings(found, limits or Limits())))


def overdue(using: str, now: float | None = None) -> float:
    """Return for how many seconds the oldest due receipt has waited; 0 where none is due.

    Args:
        using: The receipts' database alias.
        now: What the database's clock says, in seconds since 1970, where it is known.

    Raises:
        django.db.Error: The database is away.
    """
    oldest = WebhookReceipt.objects.using(using).due().values_list("due_at", flat=True).first()
    if oldest is None:
        return 0.0
    return max(0.0, (statements.clock(using) if now is None else now) - oldest.timestamp())


def _silence(using: str, source: str, now: float) -> float | None:
    """Return for how many seconds nothing new has come; None where nothing ever has."""
    newest = WebhookReceipt.objects.using(using).newest(source, 1).values_list("received_at", flat=True)
    at = next(iter(newest), None)
    return None if at is None else max(0.0, now - at.timestamp())


def _skew_of(using: str, source: str) -> float | None:
    """Return how far a sender's clock is from ours, by the deliveries that made its newest receipts."""
    rows = WebhookReceipt.objects.using(using).newest(source, SAMPLE).values_list("signed_at", "received_at", "reason")
    return skew(rows)


def skew(rows: Iterable[tuple[datetime | None, datetime, str]]) -> float | None:
    """Return the median of stamp minus arrival, in seconds, of (signed, received, reason) of receipts; None without."""
    # What is held as late was signed long before it came, which says nothing of the clock.
    known = [
        (signed - came).total_seconds() for signed, came, reason in rows if signed is not None and reason != "late"
    ]
    return median(known) if known else None


def _findings(found: Health, limits: Limits) -> Iterator[Finding]:
    yield from _clocks(found)
    if found.overdue > limits.overdue:
        words = f"a receipt has been due for {found.overdue:.0f} s: does 'manage.py webhook_sweep' run?"
        yield Finding(code="overdue", level=Level.ERROR, words=words)
    if limits.dead is not None and found.dead > limits.dead:
        words = f"{found.dead}{' or more' if found.dead == COUNTED else ''} receipts are dead: look at what fails"
        yield Finding(code="dead", level=Level.ERROR, words=words)
    for name, source in configuration().sources.items():
        yield from _silent(found, source)
        yield from _keys(name, source, timezone.now())
    for paused in found.paused:
        words = f"{visible(paused)} is paused: its deliveries are stored and wait"
        yield Finding(code="paused", level=Level.WARNING, source=paused, words=words)


def _clocks(found: Health) -> Iterator[Finding]:
    if abs(found.database_skew) > MAX_SKEW:
        words = (
            f"this machine's clock is {found.database_skew:+.1f} s from the database's: windows go by the one, "
            "leases by the other; set up NTP on both"
        )
        yield Finding(code="clock", level=Level.ERROR, words=words)
    for name, skew in found.source_skew.items():
        if abs(skew) > MAX_SKEW:
            off = f"{skew:+.1f} s from this machine's clock"
            words = f"source {name}: its stamps are {off}; TOLERANCE is used up by that"
            yield Finding(code="source_clock", level=Level.WARNING, source=name, words=words)


def _silent(found: Health, source: Source) -> Iterator[Finding]:
    if source.expect_every is None:
        return
    silence = found.silent[source.name]
    if silence is not None and silence <= source.expect_every:
        return
    since = "has sent nothing yet" if silence is None else f"has sent nothing new for {silence:.0f} s"
    words = f"source {source.name} {since}, and EXPECT_EVERY is {source.expect_every:g} s: ask the sender"
    yield Finding(code="silent", level=Level.ERROR, source=source.name, words=words)


def _keys(name: str, source: Source, now: datetime) -> Iterator[Finding]:
    """Report a source whose listed keys end; what a look-up will return nobody can know."""
    if not source.secrets or any(secret.live(now + KEYS_END) for secret in source.secrets):
        return
    if any(secret.live(now) for secret in source.secrets):
        words = f"source {name}: its last key ends within {KEYS_END.days} days; put the next one into SECRETS"
        yield Finding(code="keys", level=Level.WARNING, source=name, words=words)
    else:
        words = f"source {name}: every key has ended (not_after), so that it accepts nothing; give it one in SECRETS"
        yield Finding(code="keys", level=Level.ERROR, source=name, words=words)

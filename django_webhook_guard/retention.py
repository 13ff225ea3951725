"""Let old receipts go, as RETENTION says: first what they hold, later their rows.

Receipts are walked by their number, one batch and one short transaction at a time, so that an error, or an end of the
process, leaves whole batches done. What is written names status and attempts as they were read: a receipt that somebody
runs meanwhile is left alone, and so is everything that hangs on it.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from math import inf
from typing import Any

from django.db import Error, models, transaction
from django.db.models import BooleanField, Exists, ExpressionWrapper, Q
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from django_webhook_guard import statements
from django_webhook_guard.conf import Retention, Source, configuration, receipts_alias, source_of
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.handlers import registered
from django_webhook_guard.models import (
    WebhookAttempt,
    WebhookBatch,
    WebhookCheckpoint,
    WebhookCount,
    WebhookEffect,
    WebhookReceipt,
    WebhookRejected,
    WebhookSeen,
)
from django_webhook_guard.models.batches import BatchQuerySet
from django_webhook_guard.models.counts import COUNTS_KEPT
from django_webhook_guard.models.receipts import FINISHED, ReceiptQuerySet
from django_webhook_guard.models.rejected import SAMPLES_KEPT
from django_webhook_guard.transactions import durable, repeated

logger = logging.getLogger("django_webhook_guard")

DAY = 86_400
#: The most receipts of one batch: SQLite takes 32,766 parameters.
MAX_BATCH = 10_000
#: Tables that hang on a receipt by its fingerprint, on the receipts' database, and on those that handlers write to.
BY_FINGERPRINT: tuple[type[models.Model], ...] = (WebhookCheckpoint, WebhookEffect, WebhookSeen)
ELSEWHERE: tuple[type[models.Model], ...] = (WebhookCheckpoint,)


class Kept(StrEnum):
    """Why a receipt stays whose age is over."""

    UNFINISHED = "not finished"
    COMES_AGAIN = "their sender may send them again"
    KEY_LIVES = "nothing else guards against a replay, and their key is still accepted"
    KEY_UNKNOWN = "nothing else guards against a replay, and nobody can know whether their key is still accepted"
    MOVED_ON = "moved on meanwhile"


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What was let go, or would be.

    Args:
        read: Receipts that were looked at.
        bodies: Bodies that expired, of receipts and of batches.
        headers: Receipts whose kept headers expired.
        rows: Receipts that were deleted.
        seen: Seen messages that were forgotten.
        counts: Rows of counts that were deleted.
        samples: Samples of refused deliveries that were deleted.
        kept: Why → how many receipts stay whose age is over.
    """

    read: int = 0
    bodies: int = 0
    headers: int = 0
    rows: int = 0
    seen: int = 0
    counts: int = 0
    samples: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(
            read=self.read + other.read,
            bodies=self.bodies + other.bodies,
            headers=self.headers + other.headers,
            rows=self.rows + other.rows,
            seen=self.seen + other.seen,
            counts=self.counts + other.counts,
            samples=self.samples + other.samples,
            kept=Counter(self.kept) + Counter(other.kept),
        )


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What holds for the receipts of one stored source name.

    Args:
        retention: In days.
        comes_again: Seconds for which no row is deleted.
        accepts: Whether a source of that name accepts deliveries, replayed ones too.
        stamp_guards: Whether a signed time keeps a replay out.
        keys: Ids of the keys that are still accepted; None: nobody can know.
    """

    retention: Retention
    comes_again: float = 0
    accepts: bool = False
    stamp_guards: bool = True
    keys: frozenset[str] | None = None


@dataclass(frozen=True)
class _Row:
    """A receipt as it was read."""

    pk: int
    fingerprint: str
    source: str
    status: str
    attempts: int
    received_at: datetime
    processed_at: datetime | None
    signed_at: datetime | None
    key_id: str
    headers: Mapping[str, Any]
    batch_id: int | None
    has_body: bool
    in_batch_with_body: bool

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    def age(self, now: datetime) -> float:
        """Seconds since it ended, or came."""
        return (now - (self.processed_at or self.received_at)).total_seconds()


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """One run over the receipts.

    Args:
        using: Their database alias.
        now: The moment from which ages count.
        dry: Whether nothing is changed.
        size: Receipts of one batch.
        rules: Stored source name → rule, as they are met.
        doomed: Of a dry run: number of a webhook batch → its receipts that would be deleted.
        emptied: Of a dry run: numbers of webhook batches whose body would have expired.
    """

    using: str
    now: datetime
    dry: bool
    size: int
    rules: dict[str, _Rule] = field(default_factory=dict)
    doomed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    emptied: set[int] = field(default_factory=set)

    @property
    def receipts(self) -> ReceiptQuerySet:
        return WebhookReceipt.objects.using(self.using)

    def rule(self, row: _Row) -> _Rule:
        if row.source not in self.rules:
            self.rules[row.source] = _rule(source_of(row.source), self.now)
        return self.rules[row.source]

    def over(self, days: float | None, row: _Row) -> bool:
        return days is not None and row.age(self.now) >= days * DAY


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What becomes of the receipts of one batch; a batch's body goes by the days that its source keeps it."""

    rows: list[_Row] = field(default_factory=list)
    bodies: list[_Row] = field(default_factory=list)
    headers: list[_Row] = field(default_factory=list)
    batches: dict[float, set[int]] = field(default_factory=lambda: defaultdict(set))
    kept: Counter[str] = field(default_factory=Counter)


def prune(*, batch: int = 1000, dry_run: bool = False, report: Callable[[int, Pruned], None] | None = None) -> Pruned:
    """Let go what RETENTION does not keep, of every source.

    Several may run at once, and beside deliveries.

    Args:
        batch: How many receipts are read and changed at a time.
        dry_run: Whether to count only.
        report: Called after each batch with the last receipt's number and what was let go so far.

    Returns:
        What was let go, or would be.

    Raises:
        Misconfigured: The setting has an error, so that what it means to keep is not known.
        RuntimeError: There is an outer transaction.
        django.db.DatabaseError: The database failed; the batches before are done.
    """
    _refuse_mistakes()
    job = _Pass(using=receipts_alias(), now=timezone.now(), dry=dry_run, size=min(batch, MAX_BATCH))
    total = Pruned(seen=sum(_forget_expired(job)), counts=sum(_forget_counts(job)), samples=sum(_forget_samples(job)))
    for rows in _batches(job):
        plan = _plan(job, rows)
        done = _count(job, plan) if dry_run else _carry_out(job, plan)
        total += done + Pruned(read=len(rows), kept=plan.kept)
        if report is not None:
            report(rows[-1].pk, total)
    return total


def _refuse_mistakes() -> None:
    """What is wrong with a source may be its key or its RETENTION: nothing is deleted on a guess."""
    for problem in configuration().problems:
        if problem.fatal:
            raise Misconfigured(
                f"{problem.message} {problem.hint} (django_webhook_guard.{problem.id}) Nothing was pruned."
            )


# -- what goes ---------------------------------------------------------------------------------------------------------


def _rule(source: Source | None, now: datetime) -> _Rule:
    known = configuration()
    if source is None:
        return _Rule(retention=known.retention)
    # Sources of one namespace make one receipt of a message, whichever of them it reaches.
    peers = [each for each in known.sources.values() if each.rules.namespace == source.rules.namespace]
    keys = frozenset(secret.key_id for each in peers for secret in each.secrets if secret.live(now))
    return _Rule(
        retention=source.retention,
        comes_again=source.comes_again,
        accepts=True,
        stamp_guards=source.stamp_guards,
        keys=None if any(each.secrets_for for each in peers) else keys,
    )


def _plan(job: _Pass, rows: Iterable[_Row]) -> _Plan:
    plan = _Plan()
    for row in rows:
        rule = job.rule(row)
        days, by_key = _days(row, rule)
        kept = _kept(job, row, rule, by_key) if job.over(days, row) else None
        if kept is None and job.over(days, row):
            plan.rows.append(row)
            continue
        if kept is not None:
            plan.kept[kept] += 1
        if row.finished and row.headers and job.over(rule.retention.headers, row):
            plan.headers.append(row)
        if row.finished and rule.retention.body is not None and job.over(rule.retention.body, row):
            if row.has_body:
                plan.bodies.append(row)
            if row.in_batch_with_body and row.batch_id is not None:
                plan.batches[rule.retention.body].add(row.batch_id)
    return plan


def _days(row: _Row, rule: _Rule) -> tuple[float | None, bool]:
    """Return for how many days the row is kept, and whether it also waits until its key is gone."""
    only_guard = rule.accepts and (row.signed_at is None or not rule.stamp_guards)
    if not only_guard:
        return rule.retention.row, False
    if rule.retention.unstamped_row == "key":
        return rule.retention.row, True
    return rule.retention.unstamped_row, False


def _kept(job: _Pass, row: _Row, rule: _Rule, by_key: bool) -> Kept | None:
    """Return why a row stays whose age is over."""
    if not row.finished:
        return Kept.UNFINISHED
    if row.age(job.now) < rule.comes_again:
        return Kept.COMES_AGAIN
    if by_key and (rule.keys is None or not row.key_id):
        return Kept.KEY_UNKNOWN
    if by_key and row.key_id in (rule.keys or ()):
        return Kept.KEY_LIVES
    return None


# -- the walk ----------------------------------------------------------------------------------------------------------


def _batches(job: _Pass) -> Iterator[list[_Row]]:
    """Yield receipts in order of their number, until all of a batch are younger than anything that may go."""
    youngest, last = _youngest(), 0
    while youngest < inf:
        rows = _read(job, last)
        if not rows or all((job.now - row.received_at).total_seconds() < youngest for row in rows):
            return
        yield rows
        last = rows[-1].pk


def _youngest() -> float:
    """Return the age in seconds below which nothing goes of any receipt."""
    known = configuration()
    every = [known.retention, *(source.retention for source in known.sources.values())]
    days = [age for each in every for age in (each.body, each.headers, each.row, each.unstamped_row)]
    return min((age * DAY for age in days if isinstance(age, int | float)), default=inf)


def _read(job: _Pass, after: int) -> list[_Row]:
    there = ExpressionWrapper(Q(body__isnull=False), output_field=BooleanField())
    in_batch = ExpressionWrapper(Q(batch__body__isnull=False), output_field=BooleanField())
    rows = job.receipts.filter(pk__gt=after).order_by("pk").annotate(has_body=there, in_batch_with_body=in_batch)
    names = list(_Row.__dataclass_fields__)
    return [_Row(*values) for values in rows.values_list(*names)[: job.size]]


def _forget_expired(job: _Pass) -> Iterator[int]:
    """Forget seen messages that no window takes any more, and yield how many."""
    rows = WebhookSeen.objects.using(job.using).filter(expires_at__lt=_expired_before(job))
    return _forget_all(job, rows.order_by("expires_at"))


def _forget_counts(job: _Pass) -> Iterator[int]:
    """Forget old counts, and yield how many."""
    before = int(job.now.timestamp()) // 60 - COUNTS_KEPT * DAY // 60
    return _forget_all(job, WebhookCount.objects.using(job.using).filter(minute__lt=before).order_by("minute"))


def _forget_samples(job: _Pass) -> Iterator[int]:
    """Forget old samples of refused deliveries, and yield how many."""
    before = job.now - timedelta(days=SAMPLES_KEPT)
    rows = WebhookRejected.objects.using(job.using).filter(received_at__lt=before)
    return _forget_all(job, rows.order_by("received_at"))


def _forget_all(job: _Pass, rows: models.QuerySet[Any]) -> Iterator[int]:
    if job.dry:
        yield rows.count()
        return
    while numbers := list(rows.values_list("pk", flat=True)[: job.size]):
        yield repeated(partial(_forget, job.using, rows.model, numbers))


def _forget(using: str, model: type[models.Model], numbers: Collection[int]) -> int:
    with durable(using):
        return _delete(using, model, numbers)


def _expired_before(job: _Pass) -> datetime:
    """A window that was widened since a message was seen may still take it: the widest one counts."""
    widest = max((source.tolerance or 0 for source in configuration().sources.values()), default=0)
    return job.now - timedelta(seconds=widest)


# -- one batch ---------------------------------------------------------------------------------------------------------


def _count(job: _Pass, plan: _Plan) -> Pruned:
    """Return what a run would let go."""
    for row in plan.rows:
        if row.batch_id is not None:
            job.doomed[row.batch_id].add(row.pk)
    before = len(job.emptied)
    for each in _batches_without_need(job, plan):
        job.emptied.update(each.values_list("pk", flat=True))
    fingerprints = [row.fingerprint for row in plan.rows]
    seen = WebhookSeen.objects.using(job.using).filter(fingerprint__in=fingerprints)
    return Pruned(
        bodies=len(plan.bodies) + len(job.emptied) - before,
        headers=len(plan.headers),
        rows=len(plan.rows),
        seen=seen.exclude(expires_at__lt=_expired_before(job)).count(),
    )


def _carry_out(job: _Pass, plan: _Plan) -> Pruned:
    """Let go what the plan says, in one transaction, begun again after a conflict with another one."""
    done, gone = repeated(lambda: _change(job, plan))
    _clean_elsewhere(job, gone)
    return done


def _change(job: _Pass, plan: _Plan) -> tuple[Pruned, list[str]]:
    with durable(job.using):
        rows = sum(each.remove() for each in _unchanged(job, plan.rows))
        # One that moved on is still there; so is one that somebody else deleted, and that came anew.
        there = statements.present(job.using, [row.fingerprint for row in plan.rows])
        gone = [row for row in plan.rows if row.fingerprint not in there]
        fingerprints = [row.fingerprint for row in gone]
        _delete_of(job.using, WebhookAttempt, "receipt_id", [row.pk for row in gone])
        removed = {model: _delete_of(job.using, model, "fingerprint", fingerprints) for model in BY_FINGERPRINT}
        _batches_of(job, {row.batch_id for row in gone if row.batch_id}).filter(
            ~Exists(job.receipts.siblings())
        ).remove()
        bodies = sum(each.expire_bodies() for each in _unchanged(job, plan.bodies))
        bodies += sum(each.expire_bodies() for each in _batches_without_need(job, plan))
        headers = sum(each.expire_headers() for each in _unchanged(job, plan.headers))
    kept: Mapping[str, int] = {Kept.MOVED_ON: len(there)} if there else {}
    return Pruned(bodies=bodies, headers=headers, rows=rows, seen=removed[WebhookSeen], kept=kept), fingerprints


def _unchanged(job: _Pass, rows: Iterable[_Row]) -> Iterator[ReceiptQuerySet]:
    """Yield the rows in groups of one status and attempt number, as far as they are as they were read."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        groups[row.status, row.attempts].append(row.pk)
    for (status, attempts), numbers in groups.items():
        yield job.receipts.unchanged(numbers, status, attempts)


def _batches_of(job: _Pass, numbers: Collection[int]) -> BatchQuerySet:
    return BatchQuerySet(WebhookBatch, using=job.using).filter(pk__in=numbers)


def _batches_without_need(job: _Pass, plan: _Plan) -> Iterator[BatchQuerySet]:
    """Yield the webhook batches of which every receipt is finished and past the age of a body."""
    for days, numbers in plan.batches.items():
        needing = job.receipts.siblings().needing_body(job.now - timedelta(days=days))
        doomed = {receipt for number in numbers for receipt in job.doomed.get(number, ())}
        yield _batches_of(job, numbers).filter(~Exists(needing.exclude(pk__in=doomed)), body__isnull=False)


def _delete_of(using: str, model: type[models.Model], column: str, values: Collection[Any]) -> int:
    """Delete what hangs on receipts, by its own numbers: by the column MariaDB would lock the gaps between them."""
    rows = model._base_manager.using(using).filter(**{f"{column}__in": values})
    numbers = list(rows.values_list("pk", flat=True)) if values else []
    starts = range(0, len(numbers), MAX_BATCH)
    return sum(_delete(using, model, numbers[start : start + MAX_BATCH]) for start in starts)


def _delete(using: str, model: type[models.Model], numbers: Collection[int]) -> int:
    return model._base_manager.using(using).filter(pk__in=numbers).delete()[0]


def _clean_elsewhere(job: _Pass, fingerprints: Collection[str]) -> None:
    """Delete the marks on other databases of handlers, once their receipts are gone for good."""
    aliases = {handler.using for handler in registered() if handler.using} - {job.using}
    for alias in sorted(aliases) if fingerprints else ():
        try:
            with transaction.atomic(using=alias):
                for model in ELSEWHERE:
                    _delete_of(alias, model, "fingerprint", fingerprints)
        except (Error, ConnectionDoesNotExist) as error:
            logger.warning(
                "webhook_prune: what %s deleted receipts left on database %r stays there (%s)",
                len(fingerprints), alias, type(error).__name__,
            )  # fmt: skip

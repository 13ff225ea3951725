"""The hot path's statements. Nothing else in the package speaks SQL.

Each function is one statement, so that it needs no transaction of its own. Leases and due times go by the
database's clock; times that are compared are turned into seconds there as well. The rules that every write keeps:

* a run's writes name its attempt number and ``processing``;
* every other write names attempt number and status as it read them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_webhook_guard.identity import digest
from django_webhook_guard.models import WebhookBatch, WebhookCheckpoint, WebhookCount, WebhookReceipt, WebhookSeen
from django_webhook_guard.transactions import is_unique_violation

#: The shortest and longest wait until another worker is woken for a receipt, in seconds.
REWAKE = 60.0
MAX_REWAKE = 3600.0


@dataclass(frozen=True, kw_only=True)
class NewReceipt:
    """A receipt to be inserted.

    Args:
        body: The raw bytes, None where they are its batch's.
        body_size: Of the body that was delivered, in bytes.
        result: What is shown on it from the start.
        batch_id: The batch that it is an item of.
        item: Its number there, from 0.
        lease: Seconds of the lease that it is born with, or None; then it is born finished, held or due.
        finished: Whether its life ends with the insert.
        due: Seconds until somebody must run it, or None.
    """

    fingerprint: str
    source: str
    tenant: str | None
    event_id: str
    event_type: str
    object_key: str
    idempotency_key: str
    key_origin: str
    key_id: str
    request_id: str
    status: str
    reason: str
    handlers: Sequence[str]
    attempts: int
    signed_at: datetime | None
    occurred_at: datetime | None
    received_at: datetime
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    body_size: int
    body_digest: str
    result: str = ""
    batch_id: int | None = None
    item: int | None = None
    lease: float | None = None
    finished: bool = False
    due: float | None = None


@dataclass(frozen=True, kw_only=True)
class NewBatch:
    """A delivery of several events, to be inserted."""

    source: str
    request_id: str
    received_at: datetime
    items: int
    body: bytes = field(repr=False)
    body_digest: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """A receipt as a statement read it; times are in seconds by the database's clock.

    Args:
        lease_left: Until the lease ends; negative: it is out.
        due_in: Until it is due; negative: it is.
        finished_ago: Since it finished.
        counted_ago: Since a delivery was last counted.
        budget_age: Since its budget of attempts began.
        reply: What a handler answered, as it is kept, or an empty string.
        batch_id: The batch that it is an item of, or None.
    """

    id: int
    fingerprint: str
    source: str
    event_type: str
    status: str
    reason: str
    attempts: int
    excused: int
    handlers: tuple[str, ...]
    last_handler: str
    body_digest: str
    reply: str
    batch_id: int | None
    lease_left: float | None
    due_in: float | None
    finished_ago: float | None
    counted_ago: float
    budget_age: float

    @property
    def used(self) -> int:
        """Attempts that count."""
        return self.attempts - self.excused

    @property
    def at_rest(self) -> bool:
        """Whether nobody owed it a run, so that its budget of attempts begins with the next one."""
        return self.status in ("ignored", "quarantined")

    @property
    def rewake(self) -> float:
        """Seconds until a worker is woken again: twice as long each time, for the message may wait in a long queue."""
        return min(max(REWAKE, self.budget_age), MAX_REWAKE)

    @property
    def overdue(self) -> bool:
        """Whether somebody should have looked at it by now."""
        return self.due_in is not None and self.due_in <= 0

    @property
    def leased(self) -> bool:
        """Whether somebody holds a live lease."""
        return self.status == "processing" and self.lease_left is not None and self.lease_left >= 0


@dataclass(frozen=True)
class Inserted:
    """What an insert found: the new row's id, or the row that was there, or neither: it must be read."""

    id: int | None
    row: Row | None


@dataclass(frozen=True)
class Dialect:
    """What the three databases write differently."""

    now: str
    epoch: str
    later: str
    until: str
    json: str


_DIALECTS = {
    "postgresql": Dialect(
        now="clock_timestamp()",
        epoch="EXTRACT(EPOCH FROM clock_timestamp())",
        later="clock_timestamp() + %s * interval '1 second'",
        until="EXTRACT(EPOCH FROM r.{0} - clock_timestamp())",
        json="%s::jsonb",
    ),
    "mysql": Dialect(
        now="UTC_TIMESTAMP(6)",
        epoch="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000",
        later="UTC_TIMESTAMP(6) + INTERVAL ROUND(%s * 1000000) MICROSECOND",
        until="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), r.{0}) / 1000000",
        json="%s",
    ),
    "sqlite": Dialect(
        now="strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')",
        epoch="(julianday('now') - 2440587.5) * 86400",
        later="strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %s || ' seconds')",
        until="(julianday(r.{0}) - julianday('now')) * 86400",
        json="%s",
    ),
}

_PLAIN = (
    "fingerprint", "source", "tenant", "event_id", "event_type", "object_key", "idempotency_key", "key_origin",
    "key_id", "request_id", "status", "reason", "attempts", "body_digest", "body_size", "result", "batch_id", "item",
)  # fmt: skip
_TIMES = ("signed_at", "occurred_at", "received_at")
_READ = (
    "id", "fingerprint", "source", "event_type", "status", "reason", "attempts", "excused", "handlers",
    "last_handler", "body_digest", "reply", "batch_id",
)  # fmt: skip
_UNTIL = ("lease_until", "due_at", "processed_at", "last_delivered_at", "budget_from")


def _execute(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


def clock(using: str) -> float:
    """Return what the database's clock says, in seconds since 1970."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_DIALECTS[connection.vendor].epoch}")
        return float(cursor.fetchone()[0])


# -- the claim ---------------------------------------------------------------------------------------------------------


def insert(using: str, new: NewReceipt) -> Inserted:
    """Insert a receipt, or find out that its fingerprint has one.

    On PostgreSQL one statement inserts or reads. Elsewhere, and where the winner's row is not visible yet, the
    caller reads in a new statement.

    Args:
        using: The database alias.
        new: The receipt.

    Raises:
        django.db.IntegrityError: Another constraint than the fingerprint's is broken.
    """
    connection = connections[using]
    parameters = _parameters(connection, new)
    sql = _insert_sql(connection.vendor, new.lease is not None, new.finished, new.due is not None)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(sql, [*parameters, new.fingerprint])
            won, held = cursor.fetchone()
            return Inserted(won, _row(json.loads(held)) if held is not None else None)
        try:
            cursor.execute(sql, parameters)
        except IntegrityError as error:
            if not is_unique_violation(error):
                raise
            return Inserted(None, None)
        return Inserted(int(cursor.lastrowid), None)


def read(using: str, fingerprint: str) -> Row | None:
    """Read the receipt of a fingerprint."""
    return _read_where(using, "fingerprint", fingerprint)


def read_by_id(using: str, receipt_id: int) -> Row | None:
    """Read a receipt by its number."""
    return _read_where(using, "id", receipt_id)


def _read_where(using: str, column: str, value: Any) -> Row | None:
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(_read_sql(connection.vendor, column), [value])
        values = cursor.fetchone()
    return _row(values) if values is not None else None


@lru_cache
def _columns(vendor: str) -> str:
    until = _DIALECTS[vendor].until
    return ", ".join([f"r.{name}" for name in _READ] + [until.format(name) for name in _UNTIL])


@lru_cache
def _read_sql(vendor: str, column: str) -> str:
    table = WebhookReceipt._meta.db_table
    return f"SELECT {_columns(vendor)} FROM {table} r WHERE r.{column} = %s"  # noqa: S608 - no value in it


@lru_cache
def _insert_sql(vendor: str, leased: bool, finished: bool, due: bool) -> str:
    names, values = _values_sql(vendor, leased, finished, due)
    table = WebhookReceipt._meta.db_table
    sql = f"INSERT INTO {table} ({names}) VALUES ({values})"  # noqa: S608 - no value in it
    if vendor != "postgresql":
        return sql
    # One column for the row that may be there: a new event should not pay for a wide answer without anything in it.
    return (
        f"WITH new AS ({sql} ON CONFLICT (fingerprint) DO NOTHING RETURNING id) "  # noqa: S608 - no value in it
        f"SELECT (SELECT id FROM new), "
        f"(SELECT json_build_array({_columns(vendor)})::text FROM {table} r WHERE r.fingerprint = %s)"
    )


@lru_cache
def _values_sql(vendor: str, leased: bool, finished: bool, due: bool) -> tuple[str, str]:
    """Return the columns of a new receipt, and what stands for their values."""
    dialect = _DIALECTS[vendor]
    columns = dict.fromkeys((*_PLAIN, *_TIMES, "body"), "%s")
    columns |= {"handlers": dialect.json, "headers": dialect.json}
    columns |= dict.fromkeys(("lease_until", "due_at"), dialect.later if leased else "NULL")
    if due:
        columns["due_at"] = dialect.later
    columns |= {
        "budget_from": dialect.now,
        "last_delivered_at": dialect.now,
        "processed_at": dialect.now if finished else "NULL",
        "last_handler": "''",
        "reply": "''",
        "excused": "0",
        "deliveries": "1",
    }
    return ", ".join(columns), ", ".join(columns.values())


def _parameters(connection: BaseDatabaseWrapper, new: NewReceipt) -> list[Any]:
    adapt = connection.ops.adapt_datetimefield_value
    values: list[Any] = [getattr(new, name) for name in _PLAIN]
    values += [adapt(getattr(new, name)) for name in _TIMES]
    values.append(None if new.body is None else connection.Database.Binary(new.body))  # type: ignore[attr-defined]
    values += [_json_list(tuple(new.handlers)), json.dumps(new.headers)]
    if new.lease is not None:
        values += [new.lease, new.lease]
    elif new.due is not None:
        values.append(new.due)
    return values


@lru_cache(maxsize=1024)
def _json_list(values: tuple[str, ...]) -> str:
    return json.dumps(values)


def _row(values: Sequence[Any]) -> Row:
    (id_, fingerprint, source, event_type, status, reason, attempts, excused, handlers, last, body_digest,
     reply, batch, lease, due, finished, counted, budget) = values  # fmt: skip
    return Row(
        id=id_,
        fingerprint=fingerprint,
        source=source,
        event_type=event_type,
        status=status,
        reason=reason,
        attempts=attempts,
        excused=excused,
        handlers=tuple(json.loads(handlers) if isinstance(handlers, str | bytes) else handlers),
        last_handler=last,
        body_digest=body_digest,
        reply=reply,
        batch_id=batch,
        lease_left=None if lease is None else float(lease),
        due_in=None if due is None else float(due),
        finished_ago=None if finished is None else -float(finished),
        counted_ago=-float(counted),
        budget_age=-float(budget),
    )


# -- batches -----------------------------------------------------------------------------------------------------------

#: How many receipts one statement writes or reads; SQLite takes 32,766 parameters.
ROWS = 500


def insert_batch(using: str, batch: NewBatch) -> int:
    """Insert the delivery that reported several events, and return its number."""
    connection = connections[using]
    sql = (
        f"INSERT INTO {WebhookBatch._meta.db_table} "  # noqa: S608 - no value in it
        "(source, request_id, received_at, items, body, body_digest, body_size) VALUES (%s, %s, %s, %s, %s, %s, %s)"
    )
    params = [
        batch.source, batch.request_id, connection.ops.adapt_datetimefield_value(batch.received_at), batch.items,
        connection.Database.Binary(batch.body), batch.body_digest, len(batch.body),  # type: ignore[attr-defined]
    ]  # fmt: skip
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"{sql} RETURNING id", params)
            return int(cursor.fetchone()[0])
        cursor.execute(sql, params)
        return int(cursor.lastrowid)


def insert_many(using: str, new: Sequence[NewReceipt]) -> bool:
    """Insert the receipts of a batch in few statements, in a transaction of the caller's.

    Args:
        using: The database alias.
        new: The receipts, in an order that every process keeps.

    Returns:
        False where one of the fingerprints has a receipt already; the transaction must be rolled back.

    Raises:
        django.db.IntegrityError: Another constraint is broken.
    """
    connection = connections[using]
    table = WebhookReceipt._meta.db_table
    for start in range(0, len(new), ROWS):
        chunk = new[start : start + ROWS]
        rows, params = [], []
        for each in chunk:
            due = each.due is not None
            names, values = _values_sql(connection.vendor, each.lease is not None, each.finished, due)
            rows.append(f"({values})")
            params += _parameters(connection, each)
        try:
            _execute(connection, f"INSERT INTO {table} ({names}) VALUES {', '.join(rows)}", params)  # noqa: S608
        except IntegrityError as error:
            if not is_unique_violation(error):
                raise
            return False
    return True


def present(using: str, fingerprints: Sequence[str]) -> set[str]:
    """Return those fingerprints that have a receipt."""
    found: set[str] = set()
    for start in range(0, len(fingerprints), ROWS):
        chunk = fingerprints[start : start + ROWS]
        marks = ", ".join(["%s"] * len(chunk))
        sql = f"SELECT fingerprint FROM {WebhookReceipt._meta.db_table} WHERE fingerprint IN ({marks})"  # noqa: S608
        with connections[using].cursor() as cursor:
            cursor.execute(sql, chunk)
            found |= {row[0] for row in cursor.fetchall()}
    return found


# -- seen messages -----------------------------------------------------------------------------------------------------


def insert_seen(using: str, seen_digest: str, fingerprint: str, keep_for: float | None) -> bool:
    """Remember a signed message.

    Args:
        using: The database alias.
        seen_digest: The digest of the authenticated content.
        fingerprint: The event that it reported.
        keep_for: Seconds until the row may go; None: as long as its receipt.

    Returns:
        False where it was remembered already.

    Raises:
        django.db.IntegrityError: Another constraint is broken.
    """
    connection = connections[using]
    dialect, table = _DIALECTS[connection.vendor], WebhookSeen._meta.db_table
    expires = "NULL" if keep_for is None else dialect.later
    sql = f"INSERT INTO {table} (digest, fingerprint, expires_at) VALUES (%s, %s, {expires})"  # noqa: S608
    if connection.vendor == "postgresql":
        sql += " ON CONFLICT (digest) DO NOTHING"
    params = [seen_digest, fingerprint] + ([] if keep_for is None else [keep_for])
    try:
        return _execute(connection, sql, params) == 1
    except IntegrityError as error:
        if not is_unique_violation(error):
            raise
        return False


def read_seen(using: str, seen_digest: str) -> str | None:
    """Return the fingerprint under which a signed message was accepted, or None."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT fingerprint FROM {WebhookSeen._meta.db_table} WHERE digest = %s", [seen_digest])  # noqa: S608
        found = cursor.fetchone()
    return found[0] if found else None


# -- the lease ---------------------------------------------------------------------------------------------------------


def lease(using: str, row: Row, seconds: float, handlers: Sequence[str]) -> bool:
    """Take the right to run a receipt, as it was read, and count the attempt.

    Args:
        using: The database alias.
        row: The receipt as it was read.
        seconds: How long the lease lasts.
        handlers: The names of all handlers that are wanted, now and at earlier times.

    Returns:
        Whether this call got it.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    budget = f"budget_from = {dialect.now}, " if row.at_rest else ""
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET status = 'processing', reason = '', attempts = attempts + 1, "  # noqa: S608
        f"processed_at = NULL, result = '', {budget}"
        f"handlers = {dialect.json}, lease_until = {dialect.later}, due_at = {dialect.later} "
        f"WHERE id = %s AND attempts = %s AND status = %s"
    )
    params = [json.dumps(list(handlers)), seconds, seconds, row.id, row.attempts, row.status]
    return _execute(connection, sql + _lease_is_out(dialect, row), params) == 1


def bury(using: str, row: Row) -> bool:
    """Write a receipt dead whose budget is spent and whose last run never came back.

    Returns:
        Whether this call did it.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET status = 'dead', reason = 'exhausted', "  # noqa: S608
        f"processed_at = {dialect.now}, due_at = NULL, lease_until = NULL "
        f"WHERE id = %s AND attempts = %s AND status = %s"
    )
    return _execute(connection, sql + _lease_is_out(dialect, row), [row.id, row.attempts, row.status]) == 1


def _lease_is_out(dialect: Dialect, row: Row) -> str:
    return f" AND lease_until < {dialect.now}" if row.status == "processing" else ""


def push(using: str, row: Row, seconds: float) -> bool:
    """Say that a worker was woken for a receipt that is due: look at it again later.

    A failed one says so itself, for its worker must not take it for one that is not due yet.

    Args:
        using: The database alias.
        row: The receipt as it was read.
        seconds: Until then.

    Returns:
        Whether it was this call that did it, so that of many callers one wakes.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    woken = "reason = 'woken', " if row.status == "failed" else ""
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET {woken}due_at = {dialect.later} "  # noqa: S608
        f"WHERE id = %s AND attempts = %s AND status = %s AND due_at <= {dialect.now}"
    )
    params = [seconds, row.id, row.attempts, row.status]
    return _execute(connection, sql + _lease_is_out(dialect, row), params) == 1


def revive(using: str, row: Row, seconds: float) -> bool:
    """Make a receipt due that nobody ran any more, because its event was delivered again.

    Args:
        using: The database alias.
        row: The receipt as it was read: ignored, quarantined or dead.
        seconds: Until somebody must look at it.

    Returns:
        Whether it was this call that did it.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    budget = f"budget_from = {dialect.now}, " if row.at_rest else ""
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET status = 'received', reason = '', result = '', "  # noqa: S608
        f"processed_at = NULL, {budget}due_at = {dialect.later} "
        f"WHERE id = %s AND attempts = %s AND status = %s"
    )
    return _execute(connection, sql, [seconds, row.id, row.attempts, row.status]) == 1


def postpone(using: str, receipt_id: int, seconds: float) -> None:
    """Look at a due receipt again later; one that somebody has leased meanwhile is not due, and left alone.

    Args:
        using: The database alias.
        receipt_id: The receipt.
        seconds: Until then.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET due_at = {dialect.later} "  # noqa: S608 - no value in it
        f"WHERE id = %s AND due_at <= {dialect.now} AND status IN ('received', 'processing', 'failed')"
    )
    _execute(connection, sql, [seconds, receipt_id])


def count(using: str, row: Row, every: float) -> None:
    """Count a delivery on a receipt that nobody runs, unless it has moved on since it was read.

    Args:
        using: The database alias.
        row: The receipt as it was read.
        every: Seconds that must have passed since the last count: of many copies at once, one is counted.
    """
    connection = connections[using]
    dialect = _DIALECTS[connection.vendor]
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET deliveries = deliveries + 1, "  # noqa: S608
        f"last_delivered_at = {dialect.now} WHERE id = %s AND attempts = %s AND status = %s "
        f"AND last_delivered_at <= {dialect.later}"
    )
    _execute(connection, sql, [row.id, row.attempts, row.status, -every])


# -- the run -----------------------------------------------------------------------------------------------------------

_MINE = "WHERE id = %s AND attempts = %s AND status = 'processing'"


def fence(using: str, receipt_id: int, attempt: int, seconds: float, reply: str = "") -> bool:
    """Prove that the attempt still holds the receipt, and renew its lease.

    Args:
        using: The database alias.
        receipt_id: The receipt.
        attempt: The number of the run.
        seconds: How long the lease lasts from now.
        reply: What a handler answers, to be kept; an empty string leaves what is there.

    Returns:
        False where another attempt has taken over: everything must be rolled back.
    """
    connection = connections[using]
    later = _DIALECTS[connection.vendor].later
    kept, params = (", reply = %s", [reply]) if reply else ("", [])
    sql = f"UPDATE {WebhookReceipt._meta.db_table} SET lease_until = {later}, due_at = {later}{kept} {_MINE}"  # noqa: S608
    return _execute(connection, sql, [seconds, seconds, *params, receipt_id, attempt]) == 1


def close(
    using: str,
    receipt_id: int,
    attempt: int,
    *,
    status: str,
    reason: str = "",
    result: str | None = None,
    last_handler: str | None = None,
    reply: str | None = None,
) -> bool:
    """Finish a receipt; inside a handler's transaction this is its fence and its mark in one.

    Args:
        using: The database alias.
        receipt_id: The receipt.
        attempt: The number of the run that closes it.
        status: ``processed``, ``ignored`` or ``dead``.
        reason: A code.
        result: What is shown on the receipt; None leaves what is there.
        last_handler: The handler whose mark this is; None leaves what is there.
        reply: What a handler answers; None leaves what is there.

    Returns:
        False where the attempt does not hold the receipt any more.
    """
    connection = connections[using]
    now = _DIALECTS[connection.vendor].now
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET status = %s, reason = %s, processed_at = {now}, "  # noqa: S608
        "due_at = NULL, lease_until = NULL"
    )
    params: list[Any] = [status, reason]
    for column, value in (("result", result), ("last_handler", last_handler), ("reply", reply)):
        if value is not None:
            sql += f", {column} = %s"
            params.append(value)
    return _execute(connection, f"{sql} {_MINE}", [*params, receipt_id, attempt]) == 1


def fail(
    using: str,
    receipt_id: int,
    attempt: int,
    *,
    wait: float,
    reason: str = "",
    excuse: bool = False,
    reply: str | None = None,
) -> bool:
    """Record that an attempt failed and when the next one is due.

    Args:
        using: The database alias.
        receipt_id: The receipt.
        attempt: The number of the run that failed.
        wait: Seconds until the next attempt.
        reason: A code.
        excuse: Whether this attempt does not count.
        reply: What a handler answers; None leaves what is there.

    Returns:
        False where the attempt does not hold the receipt any more.
    """
    connection = connections[using]
    kept, params = ("", []) if reply is None else (", reply = %s", [reply])
    sql = (
        f"UPDATE {WebhookReceipt._meta.db_table} SET status = 'failed', reason = %s, excused = excused + %s, "  # noqa: S608
        f"lease_until = NULL, due_at = {_DIALECTS[connection.vendor].later}{kept} {_MINE}"
    )
    return _execute(connection, sql, [reason, int(excuse), wait, *params, receipt_id, attempt]) == 1


def let_go(using: str, receipt_id: int, attempt: int) -> bool:
    """End the lease now, so that anybody may take over at once.

    Returns:
        False where the attempt does not hold the receipt any more.
    """
    connection = connections[using]
    now = _DIALECTS[connection.vendor].now
    sql = f"UPDATE {WebhookReceipt._meta.db_table} SET lease_until = {now}, due_at = {now} {_MINE}"  # noqa: S608
    return _execute(connection, sql, [receipt_id, attempt]) == 1


# -- checkpoints -------------------------------------------------------------------------------------------------------


def insert_checkpoint(using: str, fingerprint: str, handler: str, mark: str, result: str, attempt: int) -> bool:
    """Write how a handler ended.

    Args:
        using: The database alias of the handler's transaction.
        fingerprint: The receipt's fingerprint, which is the same on every database.
        handler: The handler's name.
        mark: ``done``, ``skipped`` or ``gave_up``.
        result: What it returned.
        attempt: The number of the run.

    Returns:
        False where it has one already; the transaction must be rolled back.

    Raises:
        django.db.IntegrityError: Another constraint is broken.
    """
    connection = connections[using]
    now = _DIALECTS[connection.vendor].now
    sql = (
        f"INSERT INTO {WebhookCheckpoint._meta.db_table} "  # noqa: S608 - no value in it
        f"(digest, fingerprint, handler, mark, result, attempt, created_at) VALUES (%s, %s, %s, %s, %s, %s, {now})"
    )
    try:
        _execute(connection, sql, [digest((fingerprint, handler)), fingerprint, handler, mark, result, attempt])
    except IntegrityError as error:
        if not is_unique_violation(error):
            raise
        return False
    return True


def checkpoints(using: str, fingerprint: str) -> dict[str, str]:
    """Return handler → mark of everything that ended for a receipt on one database."""
    table = WebhookCheckpoint._meta.db_table
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT handler, mark FROM {table} WHERE fingerprint = %s", [fingerprint])  # noqa: S608
        return dict(cursor.fetchall())


# -- counts ------------------------------------------------------------------------------------------------------------


def add_counts(using: str, counts: Mapping[tuple[int, str, str], int]) -> None:
    """Add to the counts, in the order of their keys, so that two that do it wait for each other and never in a circle.

    MariaDB may still find one, between rows that are not there yet: the caller begins again.

    Args:
        using: The database alias.
        counts: (minute since 1970, source, decision) → how many more, not empty.
    """
    connection, table = connections[using], WebhookCount._meta.db_table
    rows = [(*key, number) for key, number in sorted(counts.items())]
    added = "ON DUPLICATE KEY UPDATE count = count + VALUES(count)"
    if connection.vendor != "mysql":
        added = f"ON CONFLICT (minute, source, decision) DO UPDATE SET count = {table}.count + excluded.count"
    values = ", ".join(["(%s, %s, %s, %s)"] * len(rows))
    sql = f"INSERT INTO {table} (minute, source, decision, count) VALUES {values} {added}"  # noqa: S608
    _execute(connection, sql, [value for row in rows for value in row])

"""What a database error means, and how a statement of ours is committed."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import uniform
from time import sleep
from typing import TypeVar

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)

Result = TypeVar("Result")

#: How often a claim, take-over or count begins again after a deadlock, lock time-out or serialization failure.
REPEATS = 5

_PG_UNIQUE = "23505"
_PG_CONFLICTS = frozenset({"40P01", "40001"})
_PG_LOCK_TIMEOUT = "55P03"
_MYSQL_UNIQUE = 1062
_MYSQL_CONFLICTS = frozenset({1213, 1020})
_MYSQL_LOCK_TIMEOUT = 1205
_PG_GOING_AWAY = ("08", "57P")
_MYSQL_GOING_AWAY = frozenset({1053, 1927, 2002, 2003, 2006, 2013, 4031})
_SQLITE_UNIQUE = frozenset({"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"})


def is_unique_violation(error: IntegrityError) -> bool:
    """Tell a unique violation from every other integrity error, by the driver's code."""
    return (
        _sqlstate(error) == _PG_UNIQUE or _mysql_code(error) == _MYSQL_UNIQUE or _sqlite_name(error) in _SQLITE_UNIQUE
    )


class Conflict(OperationalError):
    """A transaction cannot see what another one has written, and must begin again."""


def is_conflict(error: BaseException) -> bool:
    """Tell whether a transaction lost against another (deadlock, serialization failure) and may be repeated."""
    if not isinstance(error, DatabaseError):
        return False
    return isinstance(error, Conflict) or _sqlstate(error) in _PG_CONFLICTS or _mysql_code(error) in _MYSQL_CONFLICTS


def is_lock_timeout(error: BaseException) -> bool:
    """Tell whether PostgreSQL or MariaDB gave up to wait for a lock."""
    return isinstance(error, DatabaseError) and (
        _sqlstate(error) == _PG_LOCK_TIMEOUT or _mysql_code(error) == _MYSQL_LOCK_TIMEOUT
    )


def is_sqlite_lock(error: BaseException) -> bool:
    """Tell whether SQLite's one writer was somebody else."""
    return isinstance(error, OperationalError) and (_sqlite_name(error) or "").startswith(
        ("SQLITE_BUSY", "SQLITE_LOCKED")
    )


def is_connection_lost(error: BaseException) -> bool:
    """Tell whether the database went away: its connection was cut, or it shuts down."""
    if not isinstance(error, OperationalError):
        return isinstance(error, InterfaceError)
    if hasattr(error.__cause__, "sqlstate"):  # none where the driver found out by itself
        return (_sqlstate(error) or "08").startswith(_PG_GOING_AWAY)
    return _mysql_code(error) in _MYSQL_GOING_AWAY


def repeated(work: Callable[[], Result]) -> Result:
    """Run a claim, take-over or count, and begin it again after a conflict or a lock time-out.

    Args:
        work: Runs its statements from the first one on, in transactions of its own.

    Raises:
        django.db.DatabaseError: Still failing after ``REPEATS`` tries, or any other error at once.
    """
    for left in range(REPEATS - 1, -1, -1):
        try:
            return work()
        except DatabaseError as error:
            if not left or not (is_conflict(error) or is_lock_timeout(error)):
                raise
            sleep(uniform(0.005, 0.05))  # noqa: S311 - spreads load, no secret
    raise AssertionError("unreachable")


def durable(using: str) -> AbstractContextManager[None]:
    """Return a transaction that is committed at its end, whoever called.

    Args:
        using: The database alias.

    Raises:
        RuntimeError: There is an outer transaction (Django's ``TestCase`` is none), or autocommit is switched off, so
            that nothing would be committed.
    """
    connection = connections[using]
    if not connection.get_autocommit() and not connection.in_atomic_block:
        raise RuntimeError(f"Autocommit of the database {using!r} is switched off: nothing would be committed.")
    return transaction.atomic(using=using, durable=True)


def committed(using: str) -> AbstractContextManager[None]:
    """Return a block whose one statement is committed at its end.

    A single statement in autocommit needs no transaction. Otherwise a durable block refuses a real outer
    transaction, which could still roll the write back, and passes inside Django's ``TestCase``.

    Args:
        using: The database alias.

    Raises:
        RuntimeError: There is an outer transaction, or autocommit is switched off.
    """
    return nullcontext() if connections[using].get_autocommit() else durable(using)


def _sqlstate(error: BaseException) -> str | None:
    state: str | None = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    return state  # psycopg 3, or psycopg 2


def _mysql_code(error: BaseException) -> int | None:
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


def _sqlite_name(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlite_errorname", None)

"""Counts of every delivery's decision, also of those that leave no row.

A process counts in memory, by source, decision and minute, and adds what it has to ``WebhookCount`` about every ten
seconds, with one statement. It does so when a request of any kind is over and answered, on that request's own
connection. There is no thread: one would have to survive forks, servers without threads and SQLite in memory, and would
hold a connection of its own. The price is that a process that falls silent keeps its last seconds until its next
request, or its end; each count bears its own minute, so that it still lands where it belongs. ``kill -9`` loses them.
"""

import atexit
import logging
import os
from collections.abc import Mapping
from threading import Lock
from time import monotonic, time
from typing import Any

from django.core import mail
from django.core.signals import request_finished
from django.db import connections

from django_webhook_guard import statements
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.transactions import repeated

logger = logging.getLogger("django_webhook_guard")

#: Seconds between two writes of a process.
EVERY = 10.0
#: Seconds until a write is tried again that failed.
PAUSE = 60.0
#: How many counts a process holds at most, for the time in which its database is away; further new ones are dropped.
MAX_HELD = 2_000
#: How many rows one statement writes at most.
MAX_ROWS = 200

Key = tuple[int, str, str]


class _Counts:
    """The counts of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._writing = Lock()
        self._held: dict[Key, int] = {}
        self._next = 0.0
        #: Whether the process serves requests outside of tests, so that what is left is written at its end.
        self.serves = False

    def add(self, key: Key, number: int = 1) -> None:
        """Count, unless too much is held."""
        with self._lock:
            known = self._held.get(key)
            if known is not None:
                self._held[key] = known + number
            elif len(self._held) < MAX_HELD:
                self._held[key] = number

    @property
    def due(self) -> bool:
        """Whether something is held, and the last write is long enough ago."""
        return bool(self._held) and monotonic() >= self._next

    def held(self) -> Mapping[Key, int]:
        """Return a copy of what is held."""
        with self._lock:
            return dict(self._held)

    def write(self) -> int:
        """Add a statement's worth of what is held to the table; what cannot be written stays held.

        Returns:
            How many rows were written; 0 where another thread does it, or a transaction of somebody's is open.

        Raises:
            Exception: Whatever the database says.
        """
        if not self._writing.acquire(blocking=False):
            return 0
        try:
            return self._write(receipts_alias())
        finally:
            self._writing.release()

    def _write(self, using: str) -> int:
        connection = connections[using]
        if connection.in_atomic_block or not connection.get_autocommit():
            return 0
        with self._lock:
            self._next = monotonic() + EVERY
            taken = {key: self._held.pop(key) for key in sorted(self._held)[:MAX_ROWS]}
        if not taken:
            return 0
        try:
            repeated(lambda: statements.add_counts(using, taken))
        except BaseException:
            self._next = monotonic() + PAUSE
            for key, number in taken.items():
                self.add(key, number)
            raise
        return len(taken)


_counts = _Counts()


def count(source: str, decision: str) -> None:
    """Count a delivery.

    Args:
        source: The configured source's name, or an empty string: never a stranger's text.
        decision: What was decided.
    """
    _counts.add((int(time()) // 60, source, decision))


def held() -> Mapping[Key, int]:
    """Return (minute since 1970, source, decision) → number, of what is not written yet."""
    return _counts.held()


def flush() -> int:
    """Write what this process has counted, at once; for tests, and for whoever wants to see it now.

    Returns:
        How many rows were written; 0 inside of a transaction.

    Raises:
        django.db.Error: The database failed; nothing is lost.
    """
    return _counts.write()


def forget() -> None:
    """Drop what is not written: for tests, and for a forked process, whose parent writes it."""
    global _counts
    _counts = _Counts()


def _after_request(**kwargs: Any) -> None:
    """Write what is due, once a request is answered; never from a test, whose database is not the project's."""
    if hasattr(mail, "outbox"):
        return
    _counts.serves = True
    if not _counts.due:
        return
    try:
        _flush_and_close()
    except Exception as error:
        logger.warning("webhook counts were not written, and are kept for later (%s)", type(error).__name__)


def _flush_and_close() -> None:
    """Write, and leave no connection open that was not open before, whatever happens.

    Django has looked at old connections already, because it was connected to this signal first; and on an event loop
    the thread that this runs in may end right afterwards.
    """
    connection = connections[receipts_alias()]
    opened = connection.connection is None
    try:
        flush()
    finally:
        if opened:
            connection.close()


def _at_exit() -> None:
    """Write what is left."""
    if not _counts.serves or not _counts.held():
        return
    try:
        flush()
        connections[receipts_alias()].close()
    except Exception as error:
        logger.warning("the last webhook counts were not written (%s)", type(error).__name__)


request_finished.connect(_after_request, dispatch_uid="django_webhook_guard.counting")
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)

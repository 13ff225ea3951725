"""Waking, and what happens while it cannot be done: it pauses, and the sweeper brings what is due.

A broker may refuse at once, or not answer at all. A sender must not wait for either, so an engine with a broker is
called in a thread of its own, for which nobody waits longer than ``PATIENCE``.
"""

import logging
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any

from django.db import connections, transaction

from django_webhook_guard.dispatchers import engines
from django_webhook_guard.sources import Source

logger = logging.getLogger("django_webhook_guard")

#: Seconds that a delivery waits for a broker.
PATIENCE = 1.0
#: Seconds for which this process wakes nobody after a failure.
PAUSE = 10.0
#: Calls to one dispatcher that may be under way at the same time; no more are begun until one of them ends.
CALLS = 16


@dataclass
class _Line:
    """The connection to one dispatcher, as this process knows it."""

    lock: Lock = field(default_factory=Lock)
    paused_until: float = 0
    calls: list[Thread] = field(default_factory=list)

    def open(self) -> bool:
        return monotonic() >= self.paused_until

    def may_try(self) -> bool:
        """Tell whether to call now; after a pause one caller tries, the others go on without."""
        with self.lock:
            if not self.open():
                return False
            if self.paused_until:
                self.paused_until = monotonic() + PAUSE
            return True

    def begin(self, thread: Thread) -> bool:
        """Start a call, unless too many are under way."""
        with self.lock:
            self.calls = [call for call in self.calls if call.is_alive()]
            if len(self.calls) >= CALLS:
                return False
            self.calls.append(thread)
            thread.start()
        return True

    def worked(self) -> bool:
        """Note a success; returns whether it ends a pause."""
        with self.lock:
            ended, self.paused_until = self.paused_until > 0, 0.0
        return ended

    def failed(self) -> bool:
        """Note a failure; returns whether it begins a pause."""
        with self.lock:
            begun = not self.paused_until
            self.paused_until = monotonic() + PAUSE
        return begun


_lines: dict[str, _Line] = {}


def _line(source: Source) -> _Line:
    return _lines.setdefault(source.dispatcher, _Line())


def ready(source: Source) -> bool:
    """Tell whether a worker can be woken for a source at the moment."""
    return source.wakes and _line(source).open()


def wake_on_commit(source: Source, receipt_id: int, using: str) -> None:
    """Wake a worker as soon as the receipt is committed, which it is already outside of a project's tests.

    Args:
        source: The receipt's source.
        receipt_id: The receipt.
        using: The receipts' database alias.
    """
    transaction.on_commit(partial(wake, source, receipt_id), using=using, robust=True)


def wake(source: Source, receipt_id: int) -> bool:
    """Wake a worker for a receipt.

    Args:
        source: The receipt's source.
        receipt_id: The receipt.

    Returns:
        Whether it was done; where not, the sweeper brings the receipt.
    """
    line = _line(source)
    if not source.wakes or not line.may_try():
        return False
    error = _call(line, source, receipt_id)
    if error is None:
        if line.worked():
            logger.info("webhook dispatcher %s answers again", source.dispatcher)
        return True
    if line.failed():
        logger.warning(
            "webhook dispatcher %s of source %s cannot be reached (%s): no worker is woken for %.0f s, the sweeper "
            "brings what is due",
            source.dispatcher, source.name, type(error).__name__, PAUSE,
        )  # fmt: skip
    return False


def _call(line: _Line, source: Source, receipt_id: int) -> BaseException | None:
    """Call the engine; returns what went wrong."""
    try:
        call = engines.call_for(source)
        if not engines.stays_here(source):
            return _call_in_thread(line, call, receipt_id)
        call(receipt_id)
    except Exception as error:
        return error
    return None


def _call_in_thread(line: _Line, call: Callable[[int], Any], receipt_id: int) -> BaseException | None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            call(receipt_id)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()  # this thread's own

    thread = Thread(target=copy_context().run, args=(work,), name="webhook-wake", daemon=True)
    if not line.begin(thread):
        return TimeoutError(f"{CALLS} calls hang")
    thread.join(PATIENCE)
    if thread.is_alive():
        return TimeoutError()
    return errors[0] if errors else None

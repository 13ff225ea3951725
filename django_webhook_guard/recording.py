"""What is written down about an attempt that failed, or that was not the first."""

import logging
import sysconfig
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from inspect import isfunction, unwrap
from pathlib import Path
from typing import Any

from django.db import Error

from django_webhook_guard.events import Reply
from django_webhook_guard.identity import digest
from django_webhook_guard.leases import Lease
from django_webhook_guard.models import WebhookAttempt
from django_webhook_guard.text import storable
from django_webhook_guard.transactions import committed

logger = logging.getLogger("django_webhook_guard")

#: Folders of Python's own and of installed code, this package included.
_NOT_THE_PROJECTS = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parent),
    "<frozen ",
)

MAX_RESULT = 4_096
MAX_MESSAGE = 4_096
MAX_TRACEBACK = 32_768


@dataclass(frozen=True)
class Failure:
    """A handler's name, and what it raised."""

    handler: str
    error: Exception


def record(lease: Lease, outcome: str, failures: Sequence[Failure], started_at: datetime, clock: float) -> None:
    """Keep a run that changed nothing on the receipt any more; the outcome stands without it."""
    try:
        with committed(lease.using):
            insert_attempt(lease, outcome, failures, started_at, clock)
    except Error as error:
        logger.warning("webhook receipt %s: attempt could not be recorded (%s)", lease.receipt_id, type(error).__name__)


def insert_attempt(lease: Lease, outcome: str, failures: Sequence[Failure], started_at: datetime, clock: float) -> None:
    """Write the row of an attempt.

    Args:
        lease: What it ran under.
        outcome: The receipt's status after it, or ``fenced``.
        failures: What went wrong, the first one named on the row.
        started_at: When it began.
        clock: The same by the monotonic clock, in seconds.
    """
    first = failures[0] if failures else None
    handler = storable(failing_name(first.handler, first.error), 255) if first else ""
    error_class = storable(f"{type(first.error).__module__}.{type(first.error).__qualname__}", 255) if first else ""
    place = storable(place_of(first.error), 255) if first else ""
    shown = "\n".join(f"{each.handler}:\n{''.join(traceback.format_exception(each.error))}" for each in failures)
    WebhookAttempt.objects.using(lease.using).create(
        receipt_id=lease.receipt_id,
        number=lease.attempt,
        trigger=lease.trigger,
        actor=storable(lease.actor, 255),
        outcome=outcome,
        handler=handler,
        error_class=error_class,
        place=place,
        error_group=group_of(lease, handler, error_class, place) if first else "",
        message=storable(lease.source.redacted(message_of(first.error)), MAX_MESSAGE) if first else "",
        traceback=storable(lease.source.redacted(shown), MAX_TRACEBACK),
        release=storable(lease.source.release, 100),
        started_at=started_at,
        duration_ms=min(int((time.monotonic() - clock) * 1000), 2**31 - 1),
    )


def group_of(lease: Lease, handler: str, error_class: str, place: str) -> str:
    """Return the short digest that failures of one kind share, whatever their receipts, messages and releases."""
    # Without the number of the line, which every release moves.
    where = place.rpartition(":")[0]
    return digest((lease.source.name, lease.event_type, handler, error_class, where))[:16]


def place_of(error: BaseException) -> str:
    """Return where an error was raised as ``module:function:line``: the innermost place in the project's own code.

    Where there is none, it is the innermost place of all.
    """
    place = ""
    own = ""
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        place = f"{step.tb_frame.f_globals.get('__name__', '')}:{code.co_qualname}:{step.tb_lineno}"
        if not code.co_filename.startswith(_NOT_THE_PROJECTS):
            own = place
        step = step.tb_next
    return own or place


def failing_name(handler: str, error: BaseException) -> str:
    """Return the handler's name, with the receiver that raised where the handler is the signal's."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        if step.tb_frame.f_globals.get("__name__") == "django.dispatch.dispatcher":
            frame = step.tb_next.tb_frame
            if frame.f_globals.get("__name__") != "django.dispatch.dispatcher":
                # What a tracker puts around a receiver is not what failed.
                receiver = step.tb_frame.f_locals.get("receiver")
                if isfunction(receiver):
                    receiver = unwrap(receiver)
                    return f"{handler} ({receiver.__module__}:{receiver.__qualname__})"
                return f"{handler} ({frame.f_globals.get('__name__')}:{frame.f_code.co_qualname})"
        step = step.tb_next
    return handler


def message_of(error: Exception) -> str:
    """Return an error's text, whatever its class does."""
    try:
        return str(error)
    except Exception:
        return "the error has no readable message"


def kept(lease: Lease, value: Any) -> str:
    """Return what a receipt keeps of a handler's result."""
    if isinstance(value, Reply):
        return f"replied {value.status}"
    return "" if value is None else storable(lease.source.redacted(str(value)), MAX_RESULT)

"""Raw samples of refused deliveries, where ``CAPTURE_REJECTED`` asks for them.

A sample is made in memory and written when the request is answered, at most one in half a second of each source and
process. A source's samples are a ring: a new one takes a free place or the oldest one's, and a unique constraint holds
the number of places. What is kept is bounded, and no secret that is known stands in it.
"""

import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from django.core import mail
from django.core.signals import request_finished
from django.db import IntegrityError, connections
from django.utils import timezone

from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.models import WebhookRejected
from django_webhook_guard.outcomes import Outcome
from django_webhook_guard.sources import Source
from django_webhook_guard.text import storable

logger = logging.getLogger("django_webhook_guard")

#: Seconds between two samples of a source in a process.
EVERY = 0.5
#: How many samples wait in memory at most; an older one gives way.
MAX_HELD = 10
#: What is kept of a sample: bytes of the body; headers, characters of each, of the path and of the reason.
MAX_BODY, MAX_HEADERS, MAX_VALUE, MAX_PATH, MAX_REASON = 65_536, 50, 1_000, 1_000, 255
MASK = "***"
_REFUSED = frozenset({"rejected", "late", "malformed", "too_large"})
_SECRET_NAME = re.compile(r"auth|cookie|token|secret|password|key")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A refused delivery, ready to be kept.

    Args:
        source: The source's name.
        size: How many samples of it are kept.
        received_at: When it was refused.
        values: The other columns.
    """

    source: str
    size: int
    received_at: datetime
    values: Mapping[str, Any]


_held: deque[Sample] = deque(maxlen=MAX_HELD)
_last: dict[str, float] = {}


def offer(source: Source, delivery: Delivery, outcome: Outcome) -> None:
    """Keep a sample of a delivery in memory, if it was refused, the source asks for it and none is just made.

    Args:
        source: The source.
        delivery: What came; without its body where that was not read.
        outcome: What became of it.
    """
    if not source.capture_rejected or outcome.decision not in _REFUSED:
        return
    now = monotonic()
    if now - _last.get(source.name, float("-inf")) < EVERY:
        return
    _last[source.name] = now
    body = delivery.body[: 2 * MAX_BODY]  # so that no secret is cut before it is found
    values = {
        "decision": outcome.decision,
        "reason": storable(outcome.detail or outcome.reason, MAX_REASON),
        "method": storable(delivery.method, 16),
        "path": storable(source.redacted(_without_values(delivery.url)), MAX_PATH),
        "headers": _masked(source, delivery.headers),
        "body": source.redacted(body.decode("latin-1")).encode("latin-1")[:MAX_BODY],
        "body_size": len(delivery.body),
    }
    _held.append(Sample(source=source.name, size=source.capture_rejected, received_at=timezone.now(), values=values))


def _without_values(url: str) -> str:
    """Return a URL whose query says names only: senders that cannot sign put their token there."""
    path, mark, query = url.partition("?")
    names = (item.partition("=")[0] for item in query.split("&"))
    return path + mark + "&".join(f"{name}={MASK}" for name in names if name)


def _masked(source: Source, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the first headers without tokens; a signature stays, which proves its own message alone."""
    verifier = source.provider.verifier
    token = "" if verifier.covers else str(getattr(verifier, "header", "")).lower()
    return {
        storable(name, 100): MASK
        if name == token or _SECRET_NAME.search(name)
        else storable(source.redacted(value), MAX_VALUE)
        for name, value in list(headers.items())[:MAX_HEADERS]
    }


def flush() -> int:
    """Write the samples that wait.

    Returns:
        How many were written; 0 inside of a transaction.

    Raises:
        django.db.Error: The database failed; the sample is lost, which is no harm.
    """
    using, written = receipts_alias(), 0
    connection = connections[using]
    if connection.in_atomic_block or not connection.get_autocommit():
        return 0
    while _held:
        try:
            sample = _held.popleft()
        except IndexError:  # another thread was faster
            break
        written += _write(using, sample)
    return written


def _write(using: str, sample: Sample) -> int:
    """Put a sample into a free place of its ring, or into the oldest one's; of two at once for one place, one wins."""
    rows = WebhookRejected.objects.using(using).filter(source=sample.source)
    taken = dict(rows.values_list("slot", "received_at"))
    free = [slot for slot in range(sample.size) if slot not in taken]
    slot = free[0] if free else min(range(sample.size), key=lambda each: taken[each])
    if any(each >= sample.size for each in taken):
        rows.filter(slot__gte=sample.size).delete()  # the ring was longer
    values = {**sample.values, "received_at": sample.received_at}
    if rows.filter(slot=slot).update(**values):
        return 1
    try:
        rows.create(source=sample.source, slot=slot, **values)
    except IntegrityError:
        return 0
    return 1


def forget() -> None:
    """Drop what waits, for tests."""
    _held.clear()
    _last.clear()


def _after_request(**kwargs: Any) -> None:
    """Write what waits, once a request is answered; never from a test, whose database is not the project's."""
    if not _held or hasattr(mail, "outbox"):
        return
    try:
        flush()
        connections[receipts_alias()].close_if_unusable_or_obsolete()
    except Exception as error:
        logger.warning("a sample of a refused delivery was not kept (%s)", type(error).__name__)


request_finished.connect(_after_request, dispatch_uid="django_webhook_guard.capturing")

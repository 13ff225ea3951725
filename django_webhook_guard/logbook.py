"""One structured record per delivery, on the logger ``django_webhook_guard``.

The record's attributes, for every formatter that takes ``extra``: ``request_id``, ``source``, ``tenant``, ``event_id``,
``event_type``, ``idempotency_key``, ``key_origin``, ``key_id``, ``receipt_id``, ``decision``, ``reason``,
``http_status``, ``duration_ms``. No secret, no payload, no raw header is in it.
"""

import logging
import re
from secrets import token_hex
from threading import Lock
from time import monotonic

from django_webhook_guard import watching
from django_webhook_guard.outcomes import Outcome
from django_webhook_guard.text import visible

logger = logging.getLogger("django_webhook_guard")

#: Seconds in which refusals of one kind are written once: a forger must not fill the log.
REFUSALS_EVERY = 60.0
#: A request id of a proxy's is taken over only in this form.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")
_LEVELS = {
    "failed": logging.WARNING,
    "gave_up": logging.WARNING,
    "quarantined": logging.WARNING,
    "rejected": logging.WARNING,
    "late": logging.WARNING,
    "malformed": logging.WARNING,
    "too_large": logging.WARNING,
    "unavailable": logging.ERROR,
}
#: What anybody can bring about who knows the URL.
UNVERIFIED = frozenset({"rejected", "not_found", "wrong_method", "too_large"})
#: Why a body that could not be read to its end is malformed.
UNREAD = "unread"
_MESSAGE = "webhook of source %s: %s (%s)%s"


def request_id(given: str | None) -> str:
    """Return the request id that a proxy gave, if it looks like one, or a new one of 32 hex."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else token_hex(16)


class _Throttle:
    """Lets one of a kind through in a while, and counts the others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kinds: dict[tuple[str, ...], tuple[float, int]] = {}

    def passes(self, *kind: str) -> int | None:
        """Return how many of a kind were held back before this one; None where it is held back itself.

        Args:
            kind: What counts as the same; of a bounded set, never a stranger's text.
        """
        now = monotonic()
        with self._lock:
            since, held_back = self._kinds.get(kind, (float("-inf"), 0))
            if now - since < REFUSALS_EVERY:
                self._kinds[kind] = (since, held_back + 1)
                return None
            self._kinds[kind] = (now, 0)
            return held_back


refusals = _Throttle()


def write(outcome: Outcome, *, source: str, request_id: str, seconds: float) -> None:
    """Write the record of a delivery, and tell who watches.

    Args:
        outcome: What became of it.
        source: The configured source's name, or an empty string.
        request_id: The request's.
        seconds: How long it took.
    """
    watching.tell(watching.deliveries, source, outcome.decision, seconds)
    level = outcome.level if outcome.level is not None else _LEVELS.get(outcome.decision, logging.INFO)
    if not logger.isEnabledFor(level):
        return
    more = f": {outcome.detail}" if outcome.detail else ""
    if outcome.decision in UNVERIFIED or outcome.reason == UNREAD:
        held_back = refusals.passes(source, outcome.decision, outcome.reason)
        if held_back is None:
            return
        if held_back:
            more += f" (and {held_back} more like it)"
    about = _about(outcome)
    name = source or "-"
    about |= {"source": source, "request_id": request_id, "duration_ms": round(seconds * 1000, 1)}
    logger.log(level, _MESSAGE, name, outcome.decision, outcome.http_status, more, exc_info=outcome.error, extra=about)


def _about(outcome: Outcome) -> dict[str, object]:
    event = outcome.event
    return {
        "decision": outcome.decision,
        "reason": outcome.reason,
        "http_status": outcome.http_status,
        "receipt_id": outcome.receipt_id,
        "tenant": visible(event.tenant) if event is not None and event.tenant is not None else None,
        "event_id": visible(event.event_id) if event is not None else "",
        "event_type": visible(event.event_type) if event is not None else "",
        "idempotency_key": visible(event.key.text[:255]) if event is not None else "",
        "key_origin": event.key.kind if event is not None else "",
        "key_id": event.key_id if event is not None else "",
    }

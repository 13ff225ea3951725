"""What is paused: asked before a lease is taken, from a memory that is a second old at most."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

from django_webhook_guard.handlers import Handler
from django_webhook_guard.models import WebhookPause
from django_webhook_guard.models.receipts import receipts_alias
from django_webhook_guard.sources import Source

#: For how many seconds a process goes by what it has read.
FRESH = 1.0


@dataclass(frozen=True)
class _Known:
    """The pauses of a database, as they were read."""

    at: float
    pauses: frozenset[tuple[str, str]]


_memory: dict[str, _Known] = {}


def forget() -> None:
    """Read again before the next lease; for this process, which has just changed something."""
    _memory.clear()


def is_paused(source: Source, handlers: Iterable[Handler] = ()) -> bool:
    """Tell whether a source is paused, or one of the handlers that a receipt waits for.

    Args:
        source: The source that would run it.
        handlers: The handlers.

    Raises:
        django.db.Error: The database is away.
    """
    pauses = _pauses()
    if not pauses:
        return False
    names = {name for handler in handlers for name in handler.names}
    return any((source.name, name) in pauses for name in ("", *names))


def paused_sources() -> frozenset[str]:
    """Return the names of the sources that are paused as a whole."""
    return frozenset(source for source, handler in _pauses() if not handler)


def _pauses() -> frozenset[tuple[str, str]]:
    using = receipts_alias()
    known = _memory.get(using)
    if known is None or monotonic() - known.at > FRESH:
        found = WebhookPause.objects.using(using).values_list("source", "handler")
        known = _Known(monotonic(), frozenset(found))
        _memory[using] = known
    return known.pauses

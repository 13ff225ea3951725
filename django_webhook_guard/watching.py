"""Who watches: nobody, unless the project has added somebody, such as ``contrib.metrics`` or ``contrib.tracing``."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

logger = logging.getLogger("django_webhook_guard")

#: Called after each delivery with source (or an empty string), decision and seconds.
deliveries: list[Callable[[str, str, float], Any]] = []
#: Called after each run of a handler with source, handler, how it ended (a mark, or ``failed``) and seconds.
runs: list[Callable[[str, str, str, float], Any]] = []

#: Called with the event; each attempt runs inside of what they return.
around: list[Callable[[Any], AbstractContextManager[Any]]] = []
#: Returns the ``traceparent`` of the span that a delivery is received in, or an empty string.
trace: Callable[[], str] | None = None
#: https://www.w3.org/TR/trace-context/#traceparent-header: version, trace, parent and flags; ff and zeros are invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent(given: str | None) -> str:
    """Return the trace context to keep with a delivery: this process's own, or that of its header if it is one.

    Args:
        given: The header's value.
    """
    try:
        own = trace() if trace is not None else ""
    except Exception:
        logger.exception("a watcher of webhooks failed")
        own = ""
    return next((each for each in (own, given) if each and _TRACEPARENT.fullmatch(each)), "")


@contextmanager
def attempt(event: Any) -> Iterator[None]:
    """Run an attempt inside of whatever watches it; what fails there changes nothing.

    Args:
        event: The ``WebhookEvent``.
    """
    with ExitStack() as stack:
        for watcher in around:
            try:
                stack.enter_context(watcher(event))
            except Exception:
                logger.exception("a watcher of webhooks failed")
        yield


def tell(watchers: list[Callable[..., Any]], *about: Any) -> None:
    """Call each watcher; what one of them raises changes nothing.

    Args:
        watchers: ``deliveries`` or ``runs``.
        about: What they are called with.
    """
    for watcher in watchers:
        try:
            watcher(*about)
        except Exception:
            logger.exception("a watcher of webhooks failed")

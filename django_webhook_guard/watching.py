"""Who is told how long things took: nobody, unless the project has added somebody, such as ``contrib.metrics``."""

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("django_webhook_guard")

#: Called after each delivery with source (or an empty string), decision and seconds.
deliveries: list[Callable[[str, str, float], Any]] = []
#: Called after each run of a handler with source, handler, how it ended (a mark, or ``failed``) and seconds.
runs: list[Callable[[str, str, str, float], Any]] = []


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

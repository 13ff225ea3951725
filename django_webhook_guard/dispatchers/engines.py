"""Which engine a source's ``DISPATCHER`` names. Each is imported when it is used, for none of them is required."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from django_webhook_guard.sources import Source


def call_for(source: Source) -> Callable[[int], Any]:
    """Return what wakes a worker of a source, given a receipt's number."""
    if source.wake is not None:
        return source.wake
    return partial(_engine(source).wake, source.dispatcher_options)


def stays_here(source: Source) -> bool:
    """Tell whether the engine is called in this thread: it uses this thread's database connection, or runs at once."""
    return source.wake is None and bool(_engine(source).stays_here(source.dispatcher_options))


def _engine(source: Source) -> Any:
    return import_module(f"django_webhook_guard.dispatchers.{_MODULES[source.dispatcher]}")


_MODULES = {"tasks": "django_tasks", "celery": "celery_tasks"}

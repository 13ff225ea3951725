"""Handlers of the live servers. A body says how they behave, see ``_work``.

``LIVE_OLD_RELEASE`` starts a process that does not know the second handler yet.
"""

import asyncio
import os
import time

from django.db import connection

from django_webhook_guard.exceptions import Skip
from django_webhook_guard.handlers import webhook_handler
from tests.project.killer import reach
from tests.project.models import Effect

SOURCES = ("stripe", "github", "partner", "brief-stripe", "brief-partner", "once", "github-docs")


def _work(event, handler):
    """Leave one effect, then do what the body says.

    ``sleep``: seconds, in the first attempt; ``sleeper``: only this handler does; ``in_database``: in a statement;
    ``fails``: handler → number of attempts that end in an error.
    """
    Effect.objects.create(name=event.data["id"], handler=handler)
    reach(f"inside {handler}")
    if event.attempt == 1 and event.data.get("sleeper", handler) == handler:
        _sleep(event.data.get("sleep", 0), event.data.get("in_database", False))
    if event.attempt <= event.data.get("fails", {}).get(handler, 0):
        raise RuntimeError("asked to fail")
    return f"attempt {event.attempt}"


def _sleep(seconds, in_database):
    if not in_database:
        time.sleep(seconds)
        return
    with connection.cursor() as cursor:
        cursor.execute({"postgresql": "SELECT pg_sleep(%s)", "mysql": "SELECT SLEEP(%s)"}[connection.vendor], [seconds])


@webhook_handler(SOURCES, ["one.*", "both.*"], name="handler")
def first(event):
    return _work(event, "handler")


if not os.environ.get("LIVE_OLD_RELEASE"):

    @webhook_handler(SOURCES, "both.*", name="second handler")
    def second(event):
        return _work(event, "second handler")


@webhook_handler(SOURCES, "skip.*", name="skipper")
def skipper(event):
    raise Skip("not wanted")


@webhook_handler(SOURCES, "outside.*", name="outsider", atomic=False)
def outsider(event):
    return _work(event, "outsider")


async def _await_work(event, handler):
    """``_work`` on an event loop, but for sleeping in the database."""
    await Effect.objects.acreate(name=event.data["id"], handler=handler)
    reach(f"inside {handler}")
    if event.attempt == 1 and event.data.get("sleeper", handler) == handler:
        await asyncio.sleep(event.data.get("sleep", 0))
    if event.attempt <= event.data.get("fails", {}).get(handler, 0):
        raise RuntimeError("asked to fail")
    return f"attempt {event.attempt}"


@webhook_handler(SOURCES, ["coroutine.*", "coroutines.*"], name="async handler")
async def first_coroutine(event):
    return await _await_work(event, "handler")


@webhook_handler(SOURCES, "coroutines.*", name="second async handler")
async def second_coroutine(event):
    return await _await_work(event, "second handler")

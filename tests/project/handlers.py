"""Handlers of the live servers. A body says how they behave, see ``_work``.

``LIVE_OLD_RELEASE`` starts a process that does not know the second handler yet.
"""

import asyncio
import http.client
import json
import os
import time

from django.db import connection

from django_webhook_guard.exceptions import NotDone, Skip
from django_webhook_guard.handlers import webhook_handler
from tests.project.killer import reach
from tests.project.models import Effect, Standing

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


@webhook_handler(SOURCES, "charge.*", name="charger", atomic=False)
def charger(event):
    """Charge at the payment server, then book; and keep up with the newest version of an object."""
    charge = event.once("charge", lambda key: _pay(event.data["id"], key), key_lifetime=3600)
    reach("between charge and booking")
    with event.atomic():
        Effect.objects.create(name=event.data["id"], handler="charger")
        reach("inside charger")
        if event.supersedes(event.data["object"], event.data["version"]):
            Standing.objects.update_or_create(name=event.data["object"], defaults={"version": event.data["version"]})
    return charge["id"]


def _pay(name, key):
    connection = http.client.HTTPConnection(os.environ["LIVE_PAYMENTS"], timeout=5)
    try:
        connection.request("POST", "/charges", json.dumps({"name": name}), {"Idempotency-Key": key})
        response = connection.getresponse()
        text = response.read()
    except ConnectionRefusedError:
        raise NotDone("the payment server is down") from None
    finally:
        connection.close()
    reach("after the charge")
    if response.status == 429:
        raise NotDone("too many requests")
    if response.status != 200:
        raise RuntimeError(f"the payment server said {response.status}")
    return json.loads(text)


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

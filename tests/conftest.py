"""Fixtures for the tests that run in one process."""

from copy import deepcopy

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client, SimpleTestCase

from django_webhook_guard import counting, logbook, pausing
from django_webhook_guard.handlers import unregister, webhook_handler
from tests import senders

pytest_plugins = ["tests.hunt"]
#: Fixtures of a test that opens the database without saying so by its marker.
DATABASE_FIXTURES = {"db", "transactional_db", "live_server"}


def pytest_addoption(parser):
    parser.addoption(
        "--asking-the-database",
        action="store_true",
        help="leave out what would do the same on every database; it runs on SQLite",
    )


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--asking-the-database"):
        return
    chosen = [item for item in items if _asks_the_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _asks_the_database(item):
    if item.get_closest_marker("browser"):
        return False  # how a page looks; what a click does is tested on every database without one
    marked = any(item.get_closest_marker(name) for name in ("django_db", "slow"))
    in_django_case = isinstance(getattr(item, "cls", None), type) and issubclass(item.cls, SimpleTestCase)
    return marked or in_django_case or bool(DATABASE_FIXTURES & set(item.fixturenames))


@pytest.fixture(autouse=True)
def _every_refusal_is_written(monkeypatch):
    """Let no refusal be held back because another test was refused a moment ago."""
    monkeypatch.setattr(logbook, "REFUSALS_EVERY", 0)


@pytest.fixture(autouse=True)
def _nothing_is_paused():
    """Spare tests that count statements the one that is made once a second, until a test pauses something."""
    pausing._memory["default"] = pausing._Known(float("inf"), frozenset())
    yield
    pausing.forget()


@pytest.fixture(autouse=True)
def _nothing_is_counted_yet():
    """Let no test see what another one's deliveries were counted as."""
    counting.forget()


@pytest.fixture
def handler():
    """Register functions as handlers for one test: ``handler("stripe", "invoice.*", name="a")(function)``."""
    registered = []

    def register(*args, **kwargs):
        def decorate(function):
            registered.append(function)
            return webhook_handler(*args, **kwargs)(function)

        return decorate

    yield register
    unregister(*registered)


@pytest.fixture
def sources(settings):
    """Change sources for one test: ``sources(stripe={"TOLERANCE": 60}, fourth={...})``; None removes one."""

    def change(**changes):
        guard = deepcopy(django_settings.WEBHOOK_GUARD)
        for name, options in changes.items():
            name = name.replace("__", "-")
            if options is None:
                guard["SOURCES"].pop(name, None)
            else:
                guard["SOURCES"][name] = {**guard["SOURCES"].get(name, {}), **options}
        settings.WEBHOOK_GUARD = guard

    return change


@pytest.fixture
def post():
    """Post a signed delivery with CSRF enforced: ``post("stripe", {"id": "evt_1", "type": "x"})``.

    ``headers`` replaces the signed ones, ``extra`` adds to them; other arguments go to the signer.
    """
    client = Client(enforce_csrf_checks=True)

    def send(source, content, *, path=None, headers=None, extra=None, content_type="application/json", **signing):
        body = senders.dumps(content)
        if headers is None:
            headers = senders.SIGNERS[source](body, **signing)
        return client.post(
            path or f"/webhooks/{source}/",
            body,
            content_type=content_type,
            headers={**headers, **(extra or {})},
        )

    return send


@pytest.fixture
def anywhere():
    """For a long test that asks nothing of the database: it runs on SQLite only."""
    if connection.vendor != "sqlite":
        pytest.skip("asks nothing of the database; it runs on SQLite")

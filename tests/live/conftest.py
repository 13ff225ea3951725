"""One database for the whole session, and servers over it."""

from itertools import count

import pytest
from django.conf import settings

from tests.servers import Event, LiveDatabase, serving

_numbers = count(1)


@pytest.fixture(scope="session")
def database(tmp_path_factory, django_db_blocker):
    """The session's database, the kind that ``DATABASE_URL`` names, with a lease of two seconds."""
    made = LiveDatabase(settings.DATABASE_URL, tmp_path_factory.mktemp("live"), LIVE_LEASE=2)
    with django_db_blocker.unblock():
        try:
            yield made.create()
        finally:
            made.drop()


@pytest.fixture(scope="module")
def threads(database, tmp_path_factory):
    """Two worker processes of sixteen threads each."""
    log = tmp_path_factory.mktemp("threads") / "server.log"
    with serving(database, log, kind="gthread", workers=2, threads=16) as server:
        yield server


@pytest.fixture(scope="module")
def sync(database, tmp_path_factory):
    """Two worker processes of one thread each."""
    log = tmp_path_factory.mktemp("sync") / "server.log"
    with serving(database, log, kind="sync", workers=2) as server:
        yield server


@pytest.fixture
def serve(database, tmp_path):
    """Start more servers: ``serve(kind="sync", workers=1, LIVE_LEASE=60)``; they end with the test."""
    servers = []

    def start(**options):
        manager = serving(options.pop("database", database), tmp_path / f"server{len(servers)}.log", **options)
        servers.append(manager)
        return manager.__enter__()

    yield start
    for manager in servers:
        manager.__exit__(None, None, None)


@pytest.fixture
def new():
    """Make an event that no other test has: ``new("stripe", "one.x", sleep=5)``."""

    def make(sender, event_type="one.x", **content):
        return Event(sender, f"evt_{next(_numbers)}", event_type, **content)

    return make

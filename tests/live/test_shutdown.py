"""Servers that are stopped, and databases that go away, in the middle of a run; another server makes it good."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.servers import Dropped

pytestmark = pytest.mark.slow

DAY = 86_400  # a lease that no test waits for


@pytest.fixture
def soon():
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@pytest.mark.parametrize("kind", ["sync", "gthread"])
def test_a_graceful_stop_lets_a_run_finish(serve, sync, database, new, soon, kind):
    event = new("stripe", "both.x", sleep=1, sleeper="handler")
    server = serve(kind=kind, workers=1, threads=4)
    running = soon(event.deliver, server)
    time.sleep(0.5)
    server.stop(signal.SIGTERM)
    assert (running.result().status, running.result().decision) == (200, "processed")
    assert event.deliver(sync).decision == "duplicate"
    assert database.effects(event) == {"handler": 1, "second handler": 1}


def test_a_stop_that_does_not_wait_long_enough_is_made_good_after_the_lease(serve, sync, database, new, soon):
    event = new("stripe", sleep=6)
    server = serve(kind="sync", workers=1, options=["--graceful-timeout", "1"])
    running = soon(event.deliver, server)
    time.sleep(0.5)
    server.stop(signal.SIGTERM)
    with pytest.raises(Dropped):
        running.result()
    assert event.until_held(sync)[-1].decision == "processed"
    assert database.effects(event) == {"handler": 1}


@pytest.mark.parametrize(("how", "event_type"), [("quick stop", "one.x"), ("worker time-out", "both.x")])
def test_a_run_that_is_told_to_exit_lets_its_lease_go(serve, sync, database, new, soon, how, event_type):
    """A quick stop and gunicorn's own time-out raise SystemExit in the handler."""
    event = new("github", event_type, sleep=8)
    server = serve(kind="sync", workers=1, options=["--timeout", "2"], LIVE_LEASE=DAY)
    running = soon(event.deliver, server)
    if how == "quick stop":
        time.sleep(0.7)
        server.stop(signal.SIGINT)
    with suppress(Dropped):
        assert running.result().status >= 500  # gunicorn's
    receipt = database.receipt(event)
    assert (receipt["status"], receipt["attempts"]) == ("processing", 1)
    assert event.deliver(sync).decision == "processed"
    expected = {"handler": 1} if event_type == "one.x" else {"handler": 1, "second handler": 1}
    assert database.effects(event) == expected


@pytest.fixture
def has_sessions(database):
    if database.vendor == "sqlite":
        pytest.skip("has no connections to cut")


@pytest.mark.parametrize(("event_type", "in_database"), [("one.x", False), ("both.x", False), ("one.x", True)])
def test_the_database_goes_away_in_the_middle_of_a_handler(
    has_sessions, serve, database, new, soon, event_type, in_database
):
    event = new("stripe", event_type, sleep=1.5, in_database=in_database)
    server = serve(kind="gthread", workers=1, threads=4, LIVE_CONN_MAX_AGE=600)
    running = soon(event.deliver, server)
    time.sleep(0.7)
    assert database.cut() >= 1
    answer = running.result()
    assert answer.status == 503 and answer.headers["Content-Type"] == "application/json"
    assert int(answer.headers["Retry-After"]) >= 1
    assert event.until_held(server)[-1].decision == "processed"
    expected = {"handler": 1} if event_type == "one.x" else {"handler": 1, "second handler": 1}
    assert database.effects(event) == expected


def test_the_database_goes_away_between_requests(has_sessions, serve, database, new):
    server = serve(kind="sync", workers=1, LIVE_CONN_MAX_AGE=600)
    for sender in ("stripe", "github", "partner"):
        assert new(sender).deliver(server).status == 200
        assert database.cut() >= 1
        event = new(sender, "both.x")
        answer = event.deliver(server)
        assert (answer.status, answer.decision) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) >= 1
        assert database.receipts(event) == []
        assert event.deliver(server).decision == "processed"
        assert database.effects(event) == {"handler": 1, "second handler": 1}


def test_the_database_is_cut_again_and_again_under_load(has_sessions, serve, database, new, soon):
    server = serve(kind="gthread", workers=2, threads=4, LIVE_CONN_MAX_AGE=600)
    events = [new(sender, kind) for sender in ("stripe", "github") for kind in ("one.x", "both.x") for _ in range(15)]
    held = [soon(event.until_held, server) for event in events]
    cuts = 0
    while cuts < 40 and not all(each.done() for each in held):
        cuts += database.cut()
        time.sleep(0.1)
    statuses = {answer.status for each in held for answer in each.result()}
    print(f"{cuts} connections cut, answers {sorted(statuses)}")
    assert cuts > 0 and statuses <= {200, 503}
    for event in events:
        expected = {"handler": 1} if event.type == "one.x" else {"handler": 1, "second handler": 1}
        assert database.effects(event) == expected
        assert database.receipt(event)["status"] == "processed"

"""The async door on an event loop: uvicorn, with sync and with async handlers.

What is marked ``long`` repeats the core's races, zombies and stops; ``benchmarks/crash_matrix.py --uvicorn`` its kills.
"""

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.live.test_crashes import EVERY, LEASE, NOTHING_STORED
from tests.servers import Dropped, at_once, serving

pytestmark = pytest.mark.slow
EFFECTS = {"one.x": {"handler": 1}, "coroutine.x": {"handler": 1}}
BOTH = {"both.x": {"handler": 1, "second handler": 1}, "coroutines.x": {"handler": 1, "second handler": 1}}
HANG_UPS, WAVE = 50, 25


@pytest.fixture(scope="module")
def uvicorn(database, tmp_path_factory):
    log = tmp_path_factory.mktemp("uvicorn") / "server.log"
    with serving(database, log, kind="uvicorn", workers=1, LIVE_ASYNC="1") as server:
        yield server


@pytest.fixture
def on_postgres(database):
    if database.vendor != "postgresql":
        pytest.skip("through uvicorn it runs on PostgreSQL; on the others in the long run")


@pytest.fixture
def soon():
    """Call in a thread of its own: ``soon(event.deliver, server).result()``."""
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


@pytest.mark.parametrize("event_type", EFFECTS)
def test_copies_at_once_are_one_event(on_postgres, uvicorn, database, new, event_type):
    for sender in ("stripe", "github", "partner"):
        event = new(sender, event_type)
        headers = event.signed()
        answers = at_once(20, lambda _: event.deliver(uvicorn, headers=headers))  # noqa: B023
        assert {answer.status for answer in answers} <= {200, 503}
        event.until_held(uvicorn, headers=headers)
        assert len(database.receipts(event)) == 1
        assert database.effects(event) == EFFECTS[event_type]
    assert uvicorn.errors() == []


@pytest.mark.parametrize("event_type", EFFECTS)
def test_under_atomic_requests_a_failure_leaves_its_receipt(on_postgres, serve, database, new, event_type):
    server = serve(kind="uvicorn", workers=1, LIVE_ASYNC="1", LIVE_ATOMIC_REQUESTS="1")
    event = new("stripe", event_type, fails={"handler": 1})
    assert event.deliver(server).status == 500
    assert (database.receipt(event)["status"], database.effects(event)) == ("failed", {})
    assert event.deliver(server).decision == "processed"
    assert event.deliver(server).decision == "duplicate"
    assert database.effects(event) == EFFECTS[event_type]


def hang_up(server, source, body, headers, after):
    """Send a whole request, and close the connection without waiting for the answer."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /webhooks/{source}/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request.encode() + body)
        time.sleep(after)


def settle(database):
    """Wait until nobody runs anything."""
    deadline = time.monotonic() + 20
    while database.open() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.parametrize("event_type", EFFECTS)
def test_g6_clients_that_hang_up_change_nothing(uvicorn, database, new, event_type):
    if database.vendor == "sqlite":
        pytest.skip("its one writer makes the second client wait for the first one's handler")
    events = [new("stripe", event_type, sleep=1) for _ in range(HANG_UPS)]
    sessions = database.sessions()
    for start in range(0, HANG_UPS, WAVE):  # more at once would hang up before the server has read them
        wave = events[start : start + WAVE]
        at_once(WAVE, lambda n: hang_up(uvicorn, "stripe", wave[n].body, wave[n].signed(), 0.2))  # noqa: B023
        settle(database)
    unread = [event for event in events if not database.receipts(event)]
    assert len(unread) < HANG_UPS // 2  # a slow machine had not read those when their senders left
    for event in unread:
        event.until_held(uvicorn)
    assert [database.receipt(event)["status"] for event in events] == ["processed"] * HANG_UPS
    assert [database.effects(event) for event in events] == [EFFECTS[event_type]] * HANG_UPS
    assert {event.deliver(uvicorn).decision for event in events} == {"duplicate"}
    deadline = time.monotonic() + 60
    while database.sessions() > sessions and time.monotonic() < deadline:
        time.sleep(0.5)
        events[0].deliver(uvicorn)  # what a thread has left behind that ended goes when the server does something
    assert database.sessions() <= sessions  # none is left behind


@pytest.mark.parametrize("event_type", EFFECTS)
def test_a_kill_at_any_stage_loses_nothing_and_doubles_nothing(on_postgres, serve, database, new, event_type):
    server = serve(kind="uvicorn", workers=2, LIVE_ASYNC="1")
    killed = {}
    for number, stage in enumerate(EVERY):
        event = killed[stage] = new(("stripe", "github")[number % 2], event_type)
        with pytest.raises(Dropped):
            event.deliver(server, kill=stage)
        assert bool(database.receipts(event)) != ((event.sender, stage) in NOTHING_STORED), stage
    assert server.log().count("killed at stage") == len(EVERY)
    time.sleep(LEASE)
    swept, brought = list(killed.items())[::2], list(killed.items())[1::2]
    for stage, event in brought:
        event.until_held(server)
        assert database.receipt(event)["status"] == "processed", stage
    database.sweep()
    for stage, event in swept:
        if (event.sender, stage) not in NOTHING_STORED:
            assert database.receipt(event)["status"] == "processed", stage
    for stage, event in killed.items():
        event.until_held(server)
        assert event.deliver(server).decision == "duplicate", stage
        assert database.effects(event) == EFFECTS[event_type], stage
        assert len(database.receipts(event)) == 1, stage


def test_f3_a_sender_that_gives_up_and_comes_again_gets_one_run(on_postgres, serve, database, new):
    server = serve(kind="uvicorn", workers=1, LIVE_ASYNC="1", LIVE_LEASE=60)
    event = new("stripe", "coroutine.x", sleep=6)
    with suppress(Dropped, OSError):
        event.deliver(server, timeout=1.5)
    copies = [event.deliver(server) for _ in range(2)]
    assert {(copy.status, copy.decision) for copy in copies} == {(503, "busy")}
    event.until_held(server)
    receipt = database.receipt(event)
    assert (receipt["status"], receipt["attempts"]) == ("processed", 1)
    assert database.effects(event) == {"handler": 1}


# -- the long run ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("event_type", [*EFFECTS, *BOTH])
def test_twenty_rounds_of_fifty_copies(uvicorn, database, new, event_type):
    for number in range(20):
        event = new(("stripe", "github", "partner")[number % 3], event_type)
        headers = event.signed()
        answers = at_once(50, lambda _: event.deliver(uvicorn, headers=headers))  # noqa: B023
        assert {answer.status for answer in answers} <= {200, 503}
        event.until_held(uvicorn, headers=headers)
        assert len(database.receipts(event)) == 1
        assert database.effects(event) == {**EFFECTS, **BOTH}[event_type]


@pytest.mark.long
@pytest.mark.parametrize("fails", [{}, {"handler": 1}])
@pytest.mark.parametrize("event_type", [*EFFECTS, *BOTH])
def test_a_run_that_lost_its_lease_cannot_commit(uvicorn, database, new, soon, event_type, fails):
    if database.vendor == "sqlite":
        pytest.skip("nobody can take over from a handler that holds the one write lock")
    event = new("stripe", event_type, sleep=3 * LEASE, sleeper="handler", fails=fails)
    late = soon(event.deliver, uvicorn)
    time.sleep(LEASE + 0.5)
    assert event.deliver(uvicorn).decision == "processed"
    assert not late.done()
    assert (late.result().status, late.result().decision) == (200, "duplicate")
    assert database.receipt(event)["attempts"] == 2
    assert database.effects(event) == {**EFFECTS, **BOTH}[event_type]


@pytest.mark.long
@pytest.mark.parametrize("event_type", [*EFFECTS, *BOTH])
def test_a_process_that_stood_still_cannot_commit_what_another_has_done(serve, database, new, soon, event_type):
    """SIGSTOP: the process sleeps through its lease with its handler at work, and then goes on as if nothing were."""
    if database.vendor == "sqlite":
        pytest.skip("the one that stands still holds the one write lock")
    frozen, other = (serve(kind="uvicorn", workers=1, LIVE_ASYNC="1") for _ in range(2))
    event = new("github", event_type, sleep=0.7, sleeper="handler")
    late = soon(event.deliver, frozen)
    time.sleep(0.4)
    frozen.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE + 0.5)
    database.sweep()
    assert database.receipt(event)["status"] == "processed"
    frozen.process.send_signal(signal.SIGCONT)
    assert (late.result().status, late.result().decision) == (200, "duplicate")
    assert event.deliver(other).decision == "duplicate"
    assert database.effects(event) == {**EFFECTS, **BOTH}[event_type]


@pytest.mark.long
@pytest.mark.parametrize("event_type", EFFECTS)
def test_a_pool_of_connections_serves_a_burst(serve, database, new, event_type):
    if database.vendor != "postgresql":
        pytest.skip("only psycopg has a pool")
    server = serve(kind="uvicorn", workers=1, LIVE_ASYNC="1", LIVE_POOL="1")
    event = new("stripe", event_type)
    headers = event.signed()
    answers = at_once(50, lambda _: event.deliver(server, headers=headers))
    assert {answer.status for answer in answers} <= {200, 503}
    event.until_held(server, headers=headers)
    assert database.effects(event) == EFFECTS[event_type]
    assert 0 < database.sessions() <= 4


@pytest.mark.long
@pytest.mark.parametrize("event_type", EFFECTS)
def test_a_stop_lets_a_run_finish(serve, database, new, soon, event_type):
    event = new("stripe", event_type, sleep=1)
    server = serve(kind="uvicorn", workers=1, LIVE_ASYNC="1")
    running = soon(event.deliver, server)
    time.sleep(0.5)
    server.stop(signal.SIGTERM)
    assert (running.result().status, running.result().decision) == (200, "processed")
    assert database.effects(event) == EFFECTS[event_type]


@pytest.mark.long
@pytest.mark.parametrize("event_type", EFFECTS)
@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_that_does_not_wait_is_made_good(serve, database, new, soon, event_type, signals):
    """The view is cancelled; the run either finishes in its thread or is taken over when its lease is out."""
    event = new("github", event_type, sleep=4)
    server = serve(kind="uvicorn", workers=1, options=["--timeout-graceful-shutdown", "1"], LIVE_ASYNC="1")
    running = soon(event.deliver, server)
    time.sleep(0.7)
    for _ in range(signals - 1):
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    server.stop(signal.SIGTERM, timeout=2)
    with suppress(Dropped):
        assert running.result().status >= 500
    after = serve(kind="uvicorn", workers=1, LIVE_ASYNC="1")
    event.until_held(after)
    assert database.receipt(event)["status"] == "processed"
    assert database.effects(event) == EFFECTS[event_type]

"""The async door on an event loop: uvicorn, with sync and with async handlers."""

import socket
import time

import pytest

from tests.servers import at_once

pytestmark = pytest.mark.slow
EFFECTS = {"one.x": "handler", "coroutine.x": "coroutine"}
HANG_UPS = 25


@pytest.fixture(scope="module")
def uvicorn(database, tmp_path_factory):
    from tests.servers import serving

    log = tmp_path_factory.mktemp("uvicorn") / "server.log"
    with serving(database, log, kind="uvicorn", LIVE_ASYNC="1") as server:
        yield server


@pytest.mark.parametrize("event_type", EFFECTS)
def test_copies_at_once_are_one_event(uvicorn, database, new, event_type):
    for sender in ("stripe", "github", "partner"):
        event = new(sender, event_type)
        headers = event.signed()
        answers = at_once(20, lambda _: event.deliver(uvicorn, headers=headers))  # noqa: B023
        assert {answer.status for answer in answers} <= {200, 503}
        event.until_held(uvicorn, headers=headers)
        assert len(database.receipts(event)) == 1
        assert database.effects(event) == {EFFECTS[event_type]: 1}
    assert uvicorn.errors() == []


def hang_up(server, source, body, headers, after):
    """Send a whole request, and close the connection without waiting for the answer."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /webhooks/{source}/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request.encode() + body)
        time.sleep(after)


@pytest.mark.parametrize("event_type", EFFECTS)
def test_g6_clients_that_hang_up_change_nothing(uvicorn, database, new, event_type):
    if database.vendor == "sqlite":
        pytest.skip("its one writer makes the second client wait for the first one's handler")
    events = [new("stripe", event_type, sleep=1) for _ in range(HANG_UPS)]
    at_once(HANG_UPS, lambda n: hang_up(uvicorn, "stripe", events[n].body, events[n].signed(), 0.2))
    deadline = time.monotonic() + 20
    while database.open() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [database.receipt(event)["status"] for event in events] == ["processed"] * HANG_UPS
    assert [database.effects(event) for event in events] == [{EFFECTS[event_type]: 1}] * HANG_UPS
    assert {event.deliver(uvicorn).decision for event in events} == {"duplicate"}

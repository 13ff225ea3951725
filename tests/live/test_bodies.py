"""Bodies that come in chunks, are too long, or are not as long as they say."""

import http.client
import json
import socket
import time
from contextlib import suppress

import pytest

from tests.servers import Dropped

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sync", "threads"])
def server(request):
    return request.getfixturevalue(request.param)


def head(event, *lines):
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", **event.signed()}
    start = [f"POST /webhooks/{event.source}/ HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
    return "\r\n".join([*start, *lines, "", ""]).encode()


def chunks(body, size=20):
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def statuses(found):
    """Return the status of every answer on a connection."""
    return [int(line.split()[1]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize("sender", ["stripe", "github", "partner"])
def test_gunicorn_passes_chunked_bodies_on(server, database, new, sender):
    event = new(sender)
    found = server.raw(head(event, "Transfer-Encoding: chunked", "Connection: close") + chunks(event.body))
    assert statuses(found) == [200], found
    assert bytes(database.receipt(event)["body"]) == event.body
    assert database.effects(event) == {"handler": 1}


def test_a_chunked_body_over_the_limit_is_refused(server, database, new):
    event = new("stripe", padding="x" * 1_100_000)
    found = server.raw(
        head(event, "Transfer-Encoding: chunked", "Connection: close") + chunks(event.body, 60_000), half_close=True
    )
    assert statuses(found) == [413]
    assert database.receipts(event) == []


def test_runserver_does_not_pass_chunked_bodies_on_and_says_so(serve, database, new):
    server = serve(kind="runserver")
    event = new("stripe")
    found = server.raw(head(event, "Transfer-Encoding: chunked", "Connection: close") + chunks(event.body))
    assert statuses(found)[0] == 411
    assert b'{"status": "malformed"}' in found
    assert database.receipts(event) == []
    assert event.deliver(server).decision == "processed"


@pytest.mark.parametrize("size", [1_048_577, 2_700_000])
def test_a_body_over_the_limit_is_refused_unread(server, database, new, size):
    event = new("stripe")
    found = server.raw(head(event, f"Content-Length: {size}", "Connection: close"))
    assert statuses(found) == [413]
    assert database.receipts(event) == []


def test_a_body_over_the_limit_is_refused_and_the_server_goes_on(server, database, new):
    event = new("stripe", padding="x" * 2_700_000)
    # The connection may be cut before the sender has read the answer, which HTTP cannot avoid (RFC 9112, 9.6).
    with suppress(Dropped):
        assert event.deliver(server).status == 413
    assert database.receipts(event) == []
    assert f"over MAX_BODY, {1 << 20} bytes" in server.log()
    assert new("stripe").deliver(server).status == 200


def test_a_body_just_under_the_limit_is_taken(server, database, new):
    event = new("stripe")
    event.body = json.dumps({**json.loads(event.body), "padding": "x" * (1_048_576 - len(event.body) - 15)}).encode()
    assert 1_048_000 < len(event.body) <= 1_048_576
    assert event.deliver(server).status == 200
    assert bytes(database.receipt(event)["body"]) == event.body


def test_a_kept_connection_carries_on_after_a_refusal_that_left_the_body_unread(threads, new):
    connection = http.client.HTTPConnection("127.0.0.1", threads.port, timeout=20)
    answers = []
    for event, signed in ((new("stripe"), True), (new("stripe", padding="x" * 9000), False), (new("stripe"), True)):
        headers = {"Content-Type": "application/json", **(event.signed() if signed else {})}
        connection.request("POST", "/webhooks/stripe/", event.body, headers)
        response = connection.getresponse()
        answers.append((response.status, json.loads(response.read())["status"]))
    connection.close()
    assert answers == [(200, "processed"), (401, "rejected"), (200, "processed")]


def test_a_body_shorter_than_it_says_is_no_delivery(server, database, new):
    for sender in ("stripe", "github"):
        event = new(sender)
        found = server.raw(head(event, f"Content-Length: {len(event.body)}") + event.body[:-10], half_close=True)
        assert all(400 <= status < 500 for status in statuses(found)), found
        assert b"<html" not in found.lower()
        assert database.receipts(event) == []


def test_a_body_longer_than_it_says_is_cut_where_it_says(server, database, new):
    """What follows is no second delivery either."""
    event, smuggled = new("stripe"), new("stripe")
    cut = server.raw(head(event, f"Content-Length: {len(event.body) - 1}", "Connection: close") + event.body)
    assert statuses(cut)[0] == 401
    assert database.receipts(event) == []
    whole = server.raw(
        head(event, f"Content-Length: {len(event.body)}", "Connection: close")
        + event.body
        + head(smuggled, f"Content-Length: {len(smuggled.body)}")
        + smuggled.body
    )
    assert statuses(whole) == [200]
    assert len(database.receipts(event)) == 1 and database.receipts(smuggled) == []


@pytest.mark.parametrize("length", ["-1", "abc", "0x10", "1e3", "+5", "٣"])
def test_a_length_that_is_no_number_is_refused(server, database, new, length):
    event = new("stripe")
    found = server.raw(head(event, f"Content-Length: {length}", "Connection: close") + event.body, half_close=True)
    assert all(400 <= status < 500 for status in statuses(found)), found
    assert database.receipts(event) == []


def test_two_lengths_are_never_two_truths(server, database, new):
    event = new("stripe")
    lines = ["Transfer-Encoding: chunked", f"Content-Length: {len(event.body)}", "Connection: close"]
    found = server.raw(head(event, *lines) + chunks(event.body), half_close=True)
    assert all(status < 500 for status in statuses(found)), found
    assert len(database.receipts(event)) <= 1


def test_a_sender_that_stalls_holds_up_nobody_else(threads, database, new):
    event = new("stripe")
    with socket.create_connection(("127.0.0.1", threads.port), timeout=20) as connection:
        connection.sendall(head(event, f"Content-Length: {len(event.body)}") + event.body[:-10])
        start = time.monotonic()
        assert new("stripe").deliver(threads).status == 200
        assert time.monotonic() - start < 10  # the other one stalls for as long as its sender likes
    time.sleep(0.2)
    assert database.receipts(event) == []
    assert event.deliver(threads).decision == "processed"

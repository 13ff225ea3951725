"""SQLite has one writer: everybody waits for it, and who waited too long is sent away, never lost."""

import json
import subprocess
import sys
import time
from itertools import product

import pytest

from tests.servers import LiveDatabase, at_once

pytestmark = pytest.mark.slow

HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(3)
connection.execute("COMMIT")
"""
OPTIONS = {
    "as Django has them": {"timeout": 5},
    "as Django has them, impatient": {"timeout": 1},
    "as the docs advise": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL;"},
    "as the docs advise, impatient": {
        "transaction_mode": "IMMEDIATE", "timeout": 0.2, "init_command": "PRAGMA journal_mode=WAL;",
    },
}  # fmt: skip
EFFECTS = {"one.x": {"handler": 1}, "both.x": {"handler": 1, "second handler": 1}}


@pytest.fixture
def only_sqlite(database):
    if database.vendor != "sqlite":
        pytest.skip("about SQLite")


@pytest.mark.parametrize("options", OPTIONS)
def test_two_processes_while_a_third_holds_the_write_lock(only_sqlite, serve, new, tmp_path, options):
    database = LiveDatabase("sqlite://", tmp_path, LIVE_LEASE=2, LIVE_SQLITE_OPTIONS=json.dumps(OPTIONS[options]))
    database.create()
    server = serve(database=database, kind="sync", workers=2)
    kinds = list(product(("stripe", "github"), EFFECTS))
    events = [new(*kinds[number % 4]) for number in range(100)]
    path = database.url.removeprefix("sqlite:///")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"held\n"
        halves = at_once(2, lambda half: [event.deliver(server) for event in events[half::2]])
    answers = {event: answer for half in (0, 1) for event, answer in zip(events[half::2], halves[half], strict=True)}
    assert {answer.status for answer in answers.values()} <= {200, 503}
    for event, answer in answers.items():
        # Answered 200: all of it. Answered 503: nothing, or a receipt that waits for its run; no half of a handler.
        receipts, effects = database.receipts(event), database.effects(event)
        if answer.status == 200:
            assert [receipt["status"] for receipt in receipts] == ["processed"]
        else:
            assert [receipt["status"] for receipt in receipts] in ([], ["processing"], ["failed"], ["processed"])
        assert set(effects.values()) <= {1}
    held = [answer.status for answer in answers.values()].count(200)
    print(f"{options}: {held} of 100 at the first try")
    if "impatient" in options:
        time.sleep(2)
    for event in events:
        event.until_held(server)
        assert database.effects(event) == EFFECTS[event.type]
        assert database.receipt(event)["status"] == "processed"
    if "impatient" not in options:
        assert server.errors() == []


def test_copies_wait_for_a_handler_that_writes_and_then_are_duplicates(only_sqlite, serve, database, new):
    server = serve(kind="gthread", workers=2, threads=8)
    event = new("github", "both.x", sleep=1)
    headers = event.signed()
    answers = at_once(10, lambda _: event.deliver(server, headers=headers))
    assert {answer.status for answer in answers} <= {200, 503}
    assert [answer.decision for answer in answers].count("processed") == 1
    assert event.until_held(server, headers=headers)[-1].decision == "duplicate"
    assert database.effects(event) == {"handler": 1, "second handler": 1}
    assert database.receipt(event)["attempts"] == 1


def test_a_handler_outside_of_a_transaction_lets_others_write(only_sqlite, serve, database, new):
    server = serve(kind="gthread", workers=2, threads=8)
    slow, other = new("stripe", "outside.x", sleep=3), new("stripe")

    def deliver(number):
        if number:
            time.sleep(0.5)
        return [slow, slow, other][number].deliver(server)

    winner, copy, quick = at_once(3, deliver)
    assert [winner.decision, copy.decision, quick.decision] == ["processed", "busy", "processed"]
    assert copy.seconds < 2.5 and quick.seconds < 2.5

"""Counts in memory and in the table: that they add up, whoever writes them, and that nothing makes them grow."""

import os
import subprocess
import sys
import time

import pytest
from django.core import mail
from django.core.signals import request_finished
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_webhook_guard import counting, statements
from django_webhook_guard.models import WebhookCount
from tests.servers import ROOT, at_once

MINUTE = 29_000_000


@pytest.fixture
def minute(monkeypatch):
    monkeypatch.setattr(counting, "time", lambda: MINUTE * 60.0)
    return MINUTE


@pytest.fixture
def serving(monkeypatch):
    """Let the process be one that serves requests: no test environment."""
    monkeypatch.delattr(mail, "outbox")


def table():
    return {(row.source, row.decision): row.count for row in WebhookCount.objects.all()}


def finish():
    request_finished.send(sender=None)


# -- in memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_every_decision_is_counted_under_a_configured_name_only(post, client, handler):
    handler("stripe", "*", name="h")(lambda event: None)
    for _ in range(2):
        post("stripe", {"id": "evt_1", "type": "x"})
    for number in range(3):
        post("stripe", {"id": f"evt_{number}"}, headers={"Stripe-Signature": "t=1,v1=00"})
        client.post(f"/webhooks/made-up-{number}/", b"{}", content_type="application/json")
    client.get("/webhooks/stripe/")
    counted = {(source, decision): number for (_, source, decision), number in counting.held().items()}
    assert counted == {
        ("stripe", "processed"): 1,
        ("stripe", "duplicate"): 1,
        ("stripe", "rejected"): 3,
        ("", "not_found"): 3,
        ("", "wrong_method"): 1,
    }


def test_a_process_holds_a_bounded_number(minute, monkeypatch):
    monkeypatch.setattr(counting, "MAX_HELD", 5)
    for number in range(8):
        counting.count(f"s{number}", "processed")
    for _ in range(3):
        counting.count("s0", "processed")
    assert len(counting.held()) == 5
    assert counting.held()[MINUTE, "s0", "processed"] == 4


def test_threads_lose_none(minute):
    def work(number):
        for _ in range(1_000):
            counting.count("stripe", "rejected")

    at_once(8, work)
    assert counting.held() == {(MINUTE, "stripe", "rejected"): 8_000}


# -- the write ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_write_is_one_statement_and_the_next_one_adds(minute):
    for turn in (1, 2):
        for decision in ("processed", "rejected", "rejected"):
            counting.count("stripe", decision)
        with CaptureQueriesContext(connection) as captured:
            assert counting.flush() == 2
        assert len(captured) == 1
        assert table() == {("stripe", "processed"): turn, ("stripe", "rejected"): 2 * turn}
    assert counting.held() == {}
    assert counting.flush() == 0


@pytest.mark.django_db(transaction=True)
def test_nothing_is_written_inside_of_a_transaction(minute):
    counting.count("stripe", "processed")
    with transaction.atomic():
        assert counting.flush() == 0
    assert counting.held() == {(MINUTE, "stripe", "processed"): 1}
    assert counting.flush() == 1


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_written_is_kept_and_tried_again_later(minute, serving, monkeypatch, caplog):
    def fail(*given):
        calls.append(given)
        raise OperationalError("away")

    calls = []
    monkeypatch.setattr(statements, "add_counts", fail)
    counting.count("stripe", "processed")
    finish()
    counting.count("stripe", "processed")
    finish()  # not yet again
    assert len(calls) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "webhook counts were not written, and are kept for later (OperationalError)"
    ]
    monkeypatch.undo()
    assert counting.flush() == 1
    assert table() == {("stripe", "processed"): 2}


@pytest.mark.django_db(transaction=True)
def test_requests_write_at_most_once_in_ten_seconds(minute, serving, monkeypatch):
    moment = [1000.0]
    monkeypatch.setattr(counting, "monotonic", lambda: moment[0])
    written = []
    monkeypatch.setattr(statements, "add_counts", lambda using, counts: written.append(sum(counts.values())))
    for _ in range(10_000):  # ten seconds at 1,000 a second, and the moment after
        counting.count("stripe", "rejected")
        finish()
        moment[0] += 0.001
    assert written == [1]
    moment[0] += 0.001
    finish()
    assert written == [1, 9_999]


@pytest.mark.django_db(transaction=True)
def test_many_counts_are_written_by_and_by(minute, monkeypatch):
    monkeypatch.setattr(counting, "MAX_ROWS", 3)
    for number in range(7):
        counting.count(f"s{number}", "processed")
    assert [counting.flush() for _ in range(4)] == [3, 3, 1, 0]
    assert len(table()) == 7


@pytest.mark.django_db
def test_a_test_environment_writes_nothing_by_itself(minute, monkeypatch):
    monkeypatch.setattr(counting, "flush", lambda: pytest.fail("written"))
    counting.count("stripe", "processed")
    finish()
    counting._at_exit()


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_process_writes_what_is_left(minute, serving, monkeypatch):
    closed = []
    monkeypatch.setattr(type(connection._connections[connection._alias]), "close", lambda self: closed.append(1))
    finish()
    counting.count("stripe", "processed")
    counting._at_exit()
    assert table() == {("stripe", "processed"): 1}
    assert closed


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_writers_at_once_add_up_and_do_not_deadlock(minute):
    """As processes do: each its own counts, of the same new keys, again and again."""
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("SQLite in memory is one connection; the file is tested by the live servers")
    writers, rounds = 8, 40

    def work(number):
        mine = counting._Counts()
        try:
            for turn in range(rounds):
                for decision in ("processed", "rejected", "duplicate", "failed"):
                    for source in ("stripe", "github", ""):
                        mine.add((MINUTE + turn, source, decision))
                deadline = time.monotonic() + 60
                while mine.held() and time.monotonic() < deadline:
                    mine.write()
        finally:
            connections.close_all()

    at_once(writers, work)
    assert WebhookCount.objects.count() == rounds * 12
    assert set(WebhookCount.objects.values_list("count", flat=True)) == {writers}


FORKING = """
import os
import django
django.setup()
from django_webhook_guard import counting
counting.count("stripe", "processed")
child = os.fork()
if not child:
    os._exit(len(counting.held()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(counting.held()))
"""


def test_a_forked_process_begins_with_nothing():
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]

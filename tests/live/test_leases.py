"""Runs that outlive their lease, or die, and who takes over."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from tests.servers import Dropped

pytestmark = pytest.mark.slow

LEASE = 2
FAILS = {"returns": {}, "raises": {"handler": 1}}


@pytest.fixture
def soon():
    """Call in a thread of its own: ``soon(event.deliver, server).result()``."""
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


def killed(event, server, stage):
    with pytest.raises(Dropped):
        event.deliver(server, kill=stage)


def test_a_run_that_lost_its_lease_cannot_commit(threads, database, new, soon):
    if database.vendor == "sqlite":
        pytest.skip("nobody can take over from a handler that holds the one write lock")
    handlers = {"one.x": {"handler": 1}, "both.x": {"handler": 1, "second handler": 1}}
    cases = product(handlers, ["returns", "raises"], ["delivery", "sweep"])
    events = {case: new("stripe", case[0], sleep=6, sleeper="handler", fails=FAILS[case[1]]) for case in cases}
    late = {case: soon(event.deliver, threads) for case, event in events.items()}
    time.sleep(LEASE + 0.5)
    for case, event in events.items():
        if case[-1] == "delivery":
            assert event.deliver(threads).decision == "processed"
    database.sweep()
    for case, event in events.items():
        assert not late[case].done(), case
        assert database.receipt(event)["status"] == "processed", case
    for case, event in events.items():
        # The late one's sender is told what became of it, not what the late run thinks.
        answer = late[case].result()
        assert (answer.status, answer.decision) == (200, "duplicate"), case
        receipt = database.receipt(event)
        assert (receipt["status"], receipt["attempts"]) == ("processed", 2), case
        assert database.effects(event) == handlers[case[0]], case
        ended = [(each["number"], each["outcome"]) for each in database.attempts(event)]
        assert ended == [(1, "fenced"), (2, "processed")], case


def test_a_late_run_outside_of_a_transaction_cannot_finish_the_receipt(threads, database, new, soon):
    event = new("stripe", "outside.x", sleep=2 * LEASE, fails={"outsider": 1})
    late = soon(event.deliver, threads)
    time.sleep(LEASE + 0.5)
    assert event.deliver(threads).decision == "processed"
    assert (late.result().status, late.result().decision) == (200, "duplicate")
    assert database.receipt(event)["status"] == "processed"
    assert database.effects(event) == {"outsider": 2}  # at least once is what it is promised


def test_a_lease_that_is_alive_is_left_alone(threads, database, new, soon):
    if database.vendor == "sqlite":
        pytest.skip("a handler in a transaction makes its copies wait there")
    event = new("stripe", sleep=LEASE - 0.5)
    running = soon(event.deliver, threads)
    time.sleep(0.7)
    assert event.deliver(threads).decision == "busy"
    database.sweep()
    assert running.result().decision == "processed"
    assert database.receipt(event)["attempts"] == 1


def test_a_kill_in_the_last_attempt_makes_the_receipt_dead(threads, database, new):
    redelivered, swept = (new("stripe", source="once", secret="whsec_once3456789abcdef0123") for _ in range(2))
    for event in (redelivered, swept):
        killed(event, threads, "inside handler")
        assert database.receipt(event)["status"] == "processing"
    time.sleep(LEASE + 0.2)
    answer = redelivered.deliver(threads)
    assert (answer.status, answer.decision) == (503, "busy")
    assert int(answer.headers["Retry-After"]) > 3000  # one more attempt when the longest delay is over
    database.sweep()
    for event in (redelivered, swept):
        receipt = database.receipt(event)
        assert (receipt["status"], receipt["reason"], receipt["attempts"]) == ("dead", "exhausted", 1)
        assert database.effects(event) == {}


def test_a_worker_of_the_old_release_does_not_finish_what_it_does_not_know(threads, serve, database, new):
    redelivered, swept = new("stripe", "both.x"), new("stripe", "both.x")
    for event in (redelivered, swept):
        killed(event, threads, "before handler")
    old = serve(kind="sync", workers=1, LIVE_OLD_RELEASE=1)
    time.sleep(LEASE)
    answer = redelivered.deliver(old)
    assert (answer.status, answer.decision) == (500, "failed")
    database.sweep(LIVE_OLD_RELEASE=1)
    for event in (redelivered, swept):
        assert database.receipt(event)["status"] == "failed"
        assert database.effects(event) == {"handler": 1}
        assert "second handler" in database.attempts(event)[-1]["message"]
        assert event.until_held(threads)[-1].decision == "processed"
        assert database.effects(event) == {"handler": 1, "second handler": 1}
        assert event.deliver(old).decision == "duplicate"


def test_receipts_in_every_open_state_are_brought_to_an_end(threads, database, new):
    """Rows as a dead process or a restored backup leaves them."""
    table = "django_webhook_guard_webhookreceipt"
    events = {name: new("stripe") for name in ("received", "lease out", "leased", "by sweep")}
    for event in events.values():
        killed(event, threads, "after claim")
    past = database.an_hour_ago
    later = past.replace("-", "+", 1) if database.vendor != "sqlite" else past.replace("-1", "+1")

    def put(name, status, lease, due):
        database.query(
            f"UPDATE {table} SET status = %s, lease_until = {lease}, due_at = {due} WHERE id = %s",
            [status, database.receipt(events[name])["id"]],
        )

    put("received", "received", "NULL", past)
    put("lease out", "processing", past, past)
    put("leased", "processing", later, later)
    put("by sweep", "received", "NULL", past)
    assert events["received"].deliver(threads).decision == "processed"
    assert events["lease out"].deliver(threads).decision == "processed"
    assert events["leased"].deliver(threads).decision == "busy"
    database.sweep()
    assert database.receipt(events["by sweep"])["status"] == "processed"
    assert database.receipt(events["leased"])["attempts"] == 1
    put("leased", "processing", past, past)
    database.sweep()
    for event in events.values():
        receipt = database.receipt(event)
        assert (receipt["status"], database.effects(event)) == ("processed", {"handler": 1})
    assert [database.receipt(event)["attempts"] for event in events.values()] == [2, 2, 2, 2]

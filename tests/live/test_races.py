"""Copies of one event at the same moment, through several processes and threads."""

import time

import pytest

from tests.servers import at_once

pytestmark = pytest.mark.slow

# Senders and handlers by turns: messages that are remembered and such that are not; one handler, whose mark and
# the receipt's end are one statement, two of them, or none that wants it.
KINDS = [("stripe", "one.x"), ("stripe", "both.x"), ("github", "one.x"), ("partner", "both.x"), ("github", "skip.x")]
EFFECTS = {"one.x": {"handler": 1}, "both.x": {"handler": 1, "second handler": 1}, "skip.x": {}}
ROUNDS, COPIES = 20, 50


def test_fifty_copies_at_once_are_one_event(threads, database, new):
    known = len(threads.errors())
    heard = set()
    for turn in range(ROUNDS):
        sender, event_type = KINDS[turn % len(KINDS)]
        event = new(sender, event_type)
        headers = event.signed()
        answers = at_once(COPIES, lambda _: event.deliver(threads, headers=headers))  # noqa: B023
        decisions = [(answer.status, answer.decision) for answer in answers]
        heard.update(decisions)
        winner = (200, "ignored" if event_type == "skip.x" else "processed")
        assert decisions.count(winner) == 1
        assert set(decisions) <= {winner, (200, "duplicate"), (503, "busy"), (503, "unavailable")}
        assert event.until_held(threads, headers=headers)[-1].decision == "duplicate"
        assert len(database.receipts(event)) == 1
        assert database.receipt(event)["attempts"] == 1
        assert database.effects(event) == EFFECTS[event_type]
    print(f"{ROUNDS} rounds of {COPIES} copies: {sorted(heard)}")
    assert threads.errors()[known:] == []


def test_copies_signed_one_by_one_are_one_event(threads, database, new):
    for sender in ("stripe", "partner"):
        event = new(sender)
        now = int(time.time())
        answers = at_once(20, lambda copy: event.deliver(threads, headers=event.signed(at=now - copy)))  # noqa: B023
        assert {answer.status for answer in answers} <= {200, 503}
        event.until_held(threads)
        assert len(database.receipts(event)) == 1
        assert database.effects(event) == {"handler": 1}


def test_a_captured_message_that_races_under_many_ids_takes_effect_once(threads, database, new):
    event = new("github")
    signed = event.signed()
    answers = at_once(
        20, lambda copy: event.deliver(threads, headers={**signed, "X-GitHub-Delivery": f"{event.id}-{copy}"})
    )
    assert {answer.status for answer in answers} <= {200, 202, 503}
    assert database.effects(event) == {"handler": 1}
    assert len(database.receipts(event)) <= 2  # the event's, and one that is held for a person


def test_copies_are_answered_at_once_while_the_handler_runs(threads, database, new):
    if database.vendor == "sqlite":
        pytest.skip("its one writer makes everybody wait; see test_sqlite.py")
    slow, copies = new("stripe", sleep=5), 20
    headers = slow.signed()

    def deliver(number):
        if number == 0:
            return slow.deliver(threads, headers=headers)
        time.sleep(1)
        if number <= copies:
            return slow.deliver(threads, headers=headers)
        return new(["stripe", "github"][number % 2]).deliver(threads)

    winner, *others = at_once(copies + 3, deliver)
    assert (winner.status, winner.decision) == (200, "processed") and winner.seconds > 5
    for copy in others[:copies]:
        assert (copy.status, copy.decision) == (503, "busy")
        assert copy.seconds < 3  # well before the handler ends
        assert int(copy.headers["Retry-After"]) >= 1
    assert [(other.status, other.decision, other.seconds < 4) for other in others[copies:]] == [
        (200, "processed", True)
    ] * 2
    assert slow.deliver(threads, headers=headers).decision == "duplicate"
    assert database.effects(slow) == {"handler": 1}


def test_a_busy_answer_is_not_an_error_in_the_log(serve, database, new):
    server = serve(kind="gthread", workers=1, threads=4)
    event = new("partner", "outside.x", sleep=1.5)
    headers = event.signed()
    answers = at_once(3, lambda _: event.deliver(server, headers=headers))
    assert sorted(answer.status for answer in answers) == [200, 503, 503]
    assert server.errors() == []

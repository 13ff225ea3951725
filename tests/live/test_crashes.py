"""``kill -9`` at every named stage, then a redelivery or a sweep: one effect, nothing lost.

``benchmarks/crash_matrix.py`` is the long form.
"""

import time

import pytest

from tests.servers import Dropped, at_once

pytestmark = pytest.mark.slow

LEASE = 2
EVERY = [
    "before insert", "after insert", "after claim", "before handler", "inside handler", "after handler",
    "before commit", "after commit", "before telling", "before answer",
]  # fmt: skip
ONE = {"handler": 1}
BOTH = {"handler": 1, "second handler": 1}
# Handlers, what they leave, and where they are killed; the first error of "second fails" is on purpose.
CASES = {
    "one": ("one.x", {}, ONE, EVERY),
    "both": ("both.x", {}, BOTH, [*EVERY, "after checkpoint", "inside second handler", "before closing commit"]),
    "second fails": ("both.x", {"fails": {"second handler": 1}}, BOTH, ["before finish", "after finish"]),
    "skips": ("skip.x", {}, {}, ["after checkpoint", "before commit", "before finish", "after finish"]),
}
# GitHub's messages are remembered, in one transaction with the receipt; Stripe's are not.
MATRIX = [(sender, case, stage) for sender in ("stripe", "github") for case in CASES for stage in CASES[case][3]]
# The receipt is not committed yet, so only the sender can bring the event again.
NOTHING_STORED = {("stripe", "before insert"), ("github", "before insert"), ("github", "after insert")}


@pytest.mark.parametrize("recovery", ["redelivery", "sweep"])
def test_a_kill_at_any_stage_loses_nothing_and_doubles_nothing(serve, database, new, recovery):
    server = serve(kind="sync", workers=1)
    killed = {}
    for sender, case, stage in MATRIX:
        event_type, content, _, _ = CASES[case]
        event = killed[sender, case, stage] = new(sender, event_type, **content)
        with pytest.raises(Dropped):
            event.deliver(server, kill=stage)
    for sender, case, stage in MATRIX:
        stored = database.receipts(killed[sender, case, stage])
        assert bool(stored) != ((sender, stage) in NOTHING_STORED), (sender, case, stage)
    assert server.log().count("killed at stage") == len(MATRIX)
    time.sleep(LEASE)
    if recovery == "sweep":
        database.sweep()
        for (sender, case, stage), event in killed.items():
            if (sender, stage) not in NOTHING_STORED:
                expected = "ignored" if case == "skips" else "processed"
                assert database.receipt(event)["status"] == expected, (sender, case, stage)
    for (sender, case, stage), event in killed.items():
        event.until_held(server)
        assert event.deliver(server).decision == "duplicate", (sender, case, stage)
        assert database.effects(event) == CASES[case][2], (sender, case, stage)
        assert len(database.receipts(event)) == 1, (sender, case, stage)


def test_a_sweep_that_is_killed_is_made_good_by_the_next(serve, database, new):
    server = serve(kind="sync", workers=1)
    stages = ["before commit", "after commit"]
    events = [new("github", "both.x") for _ in stages]
    for event in events:
        with pytest.raises(Dropped):
            event.deliver(server, kill="after claim")
    for stage in stages:
        assert database.end_leases() >= 1  # the kills above wait for a real end
        assert database.sweep(LIVE_KILL=stage).returncode == -9
    database.end_leases()
    database.sweep()
    for event in events:
        assert database.receipt(event)["status"] == "processed"
        assert database.effects(event) == BOTH


def test_the_whole_server_is_killed_while_handlers_run(serve, database, new):
    first = serve(kind="gthread", workers=2, threads=4)
    events = [new(sender, "both.x", sleep=0.4) for sender in ("stripe", "github", "partner") for _ in range(2)]

    def deliver(index):
        if index == len(events):
            time.sleep(0.6)
            return first.kill()
        with pytest.raises(Dropped):
            events[index].deliver(first)

    at_once(len(events) + 1, deliver)
    second = serve(kind="gthread", workers=2, threads=4)
    for event in events:
        event.until_held(second)
    for event in events:
        assert len(database.receipts(event)) == 1
        assert database.effects(event) == BOTH

"""Behind PgBouncer, which lends a connection for one transaction only: nothing may need a session."""

import re

import pytest
from django.db import connection

from tests.__main__ import pgbouncer, without_pgbouncer
from tests.servers import at_once, pooling

pytestmark = pytest.mark.slow

POOL, EVENTS, COPIES = 3, 10, 20
TABLE = "django_webhook_guard_webhookreceipt"
#: What PgBouncer itself keeps apart for each client, of what Django sets when it connects.
KEPT_APART = {"TimeZone", "DateStyle", "client_encoding", "standard_conforming_strings", "application_name"}
LEFT_IN_A_SESSION = """
    SELECT pg_backend_pid() AS session,
        (SELECT count(*) FROM pg_prepared_statements) AS statements,
        (SELECT count(*) FROM pg_cursors WHERE is_holdable) AS cursors,
        (SELECT count(*) FROM pg_listening_channels()) AS channels,
        pg_my_temp_schema()::bigint AS tables,
        (SELECT array_agg(name) FROM pg_settings WHERE source = 'session') AS settings
    FROM pg_sleep(1)
"""


@pytest.fixture
def pooled(database, tmp_path):
    if reason := without_pgbouncer():
        pytest.skip(reason)
    with pooling(pgbouncer(), database, tmp_path, size=POOL) as reached:
        yield reached


def advisory_locks(database):
    (row,) = database.query(
        "SELECT count(*) AS n FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
        "WHERE locktype = 'advisory' AND datname = current_database()"
    )
    return row["n"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PgBouncer is a pooler for PostgreSQL")
def test_d11_copies_and_sweepers_behind_a_transaction_pooler(pooled, database, serve, new):
    server = serve(database=pooled, kind="gthread", workers=2, threads=16, LIVE_LEASE=60)

    # Twenty copies of each of ten events, all at the same moment.
    kinds = [(["stripe", "github", "partner"][turn % 3], ["one.x", "both.x"][turn % 2]) for turn in range(EVENTS)]
    events = [new(*kind) for kind in kinds]
    signed = [event.signed() for event in events]
    answers = at_once(
        EVENTS * COPIES, lambda turn: events[turn % EVENTS].deliver(server, headers=signed[turn % EVENTS])
    )
    for number, event in enumerate(events):
        heard = [(answer.status, answer.decision) for answer in answers[number::EVENTS]]
        assert heard.count((200, "processed")) == 1
        assert set(heard) <= {(200, "processed"), (200, "duplicate"), (503, "busy")}
        assert event.deliver(server, headers=signed[number]).decision == "duplicate"
        assert (database.receipt(event)["status"], database.receipt(event)["attempts"]) == ("processed", 1)
        both = {"handler": 1, "second handler": 1}
        assert database.effects(event) == (both if event.type == "both.x" else {"handler": 1})
    assert server.errors() == []

    # Ten that failed, or that nobody has run yet, and two sweepers. Their source is their own: so is what is swept.
    owed = [
        new("github", source="github-docs", secret="It's a Secret to Everybody", fails={"handler": 1})
        for _ in range(EVENTS)
    ]
    for number, event in enumerate(owed):
        assert event.deliver(server).decision == "failed"
        database.query(
            f"UPDATE {TABLE} SET status = %s, due_at = {database.an_hour_ago} WHERE id = %s",
            [["failed", "received"][number % 2], database.receipt(event)["id"]],
        )
    sweeps = at_once(2, lambda _: pooled.manage("webhook_sweep", "--source", "github-docs", LIVE_LEASE=60))
    told = "".join(sweep.stdout for sweep in sweeps)
    assert sum(int(number) for number in re.findall(r"(\d+) processed", told)) == EVENTS, told
    for event in owed:
        assert (database.receipt(event)["status"], database.receipt(event)["attempts"]) == ("processed", 2)
        assert database.effects(event) == {"handler": 1}
    assert not any("[ERROR]" in sweep.stderr or "Traceback" in sweep.stderr for sweep in sweeps)

    # The pooler's own connections are still there, and hold nothing of those who used them.
    assert database.sessions() == POOL
    assert advisory_locks(database) == 0
    left = [found for (found,) in at_once(POOL, lambda _: pooled.query(LEFT_IN_A_SESSION))]
    assert len({found["session"] for found in left}) == POOL
    for found in left:
        assert set(found["settings"] or ()) <= KEPT_APART
        assert [found[name] for name in ("statements", "cursors", "channels", "tables")] == [0, 0, 0, 0]

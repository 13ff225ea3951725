"""Clocks and backlog, and the command that prints them."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone

from django_webhook_guard import health, operations, statements
from django_webhook_guard.models import WebhookReceipt

pytestmark = pytest.mark.django_db


def at(seconds):
    return timezone.now() + timedelta(seconds=seconds)


@pytest.fixture
def receipts(post, handler):
    """Make receipts of ``stripe`` whose stamps are so many seconds from their arrival."""

    def make(*skews, **values):
        handler("stripe", "*", name="h")(lambda event: None)
        for number, skew in enumerate(skews):
            assert post("stripe", {"id": f"evt_{number}", "type": "x"}).status_code == 200
            row = WebhookReceipt.objects.get(event_id=f"evt_{number}")
            WebhookReceipt.objects.filter(pk=row.pk).update(
                signed_at=row.received_at + timedelta(seconds=skew), **values
            )

    return make


def test_nothing_is_wrong_where_nothing_is():
    found = health.look()
    assert found.ok
    assert abs(found.database_skew) < 2
    assert (dict(found.source_skew), found.overdue, found.dead) == ({}, 0, 0)


def test_the_skew_of_a_source_is_the_median(receipts):
    receipts(-1, -2, 100)
    assert health.look().source_skew == {"stripe": -1}


@pytest.mark.parametrize(("skew", "ok"), [(4.9, True), (5.1, False), (-4.9, True), (-5.1, False)])
def test_a_skew_above_five_seconds_is_a_warning(receipts, skew, ok):
    receipts(skew)
    found = health.look()
    assert found.ok is ok
    assert ok or "source stripe" in found.warnings[0]


def test_what_is_held_as_late_says_nothing_of_a_clock(receipts):
    receipts(-4000, reason="late", status="quarantined")
    assert health.look().source_skew == {}


@pytest.mark.parametrize(("skew", "ok"), [(6, False), (-6, False), (1, True)])
def test_this_machine_against_the_database(monkeypatch, skew, ok):
    clock = statements.clock
    monkeypatch.setattr(statements, "clock", lambda using: clock(using) - skew)
    found = health.look()
    assert round(found.database_skew) == skew
    assert found.ok is ok


def test_what_is_overdue_and_dead(receipts):
    receipts(0, 0, 0)
    first, second, third = WebhookReceipt.objects.order_by("pk").values_list("pk", flat=True)
    WebhookReceipt.objects.filter(pk=first).update(status="failed", due_at=at(-400))
    WebhookReceipt.objects.filter(pk=second).update(status="failed", due_at=at(400))
    WebhookReceipt.objects.filter(pk=third).update(status="dead")
    found = health.look()
    assert 399 < found.overdue < 402
    assert found.dead == 1
    assert "webhook_sweep" in found.warnings[0]


def test_the_command_prints_and_ends_well(receipts, capsys):
    receipts(-1)
    call_command("webhook_health")
    out = capsys.readouterr().out
    assert "source stripe: signed -1.0 s from its arrival (median)" in out
    assert "overdue: 0 s" in out


def test_the_command_warns_and_ends_with_one(receipts, capsys):
    receipts(-60)
    with pytest.raises(SystemExit) as ended:
        call_command("webhook_health")
    assert ended.value.code == 1
    assert "warning: source stripe" in capsys.readouterr().err


def test_as_json(receipts, capsys):
    receipts(-60)
    with pytest.raises(SystemExit):
        call_command("webhook_health", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["source_skew"] == {"stripe": -60}
    assert len(found["warnings"]) == 1


def test_a_database_that_is_away_is_said_in_one_line(monkeypatch):
    def away(using):
        raise OperationalError("password of root in here")

    monkeypatch.setattr(statements, "clock", away)
    with pytest.raises(CommandError, match=r"cannot be asked \(OperationalError\)"):
        call_command("webhook_health")


# -- silence, keys, pauses ---------------------------------------------------------------------------------------------


def codes(found):
    return [(finding.code, finding.source, str(finding.level)) for finding in found.findings]


@pytest.mark.parametrize(("age", "silent"), [(50, False), (70, True)])
def test_a_source_that_is_silent_for_longer_than_it_should(receipts, sources, age, silent):
    sources(stripe={"EXPECT_EVERY": 60})
    receipts(0)
    WebhookReceipt.objects.update(received_at=at(-age), signed_at=at(-age))
    found = health.look()
    assert age - 2 < found.silent["stripe"] < age + 2
    assert codes(found) == ([("silent", "stripe", "error")] if silent else [])


def test_a_source_that_never_sent_anything(sources):
    sources(stripe={"EXPECT_EVERY": 60})
    (finding,) = health.look().findings
    assert finding.words == "source stripe has sent nothing yet, and EXPECT_EVERY is 60 s: ask the sender"
    sources(stripe={})
    assert health.look().silent == {"stripe": None}


def secrets(*days):
    moments = [None if day is None else (timezone.now() + timedelta(days=day)).isoformat() for day in days]
    return [
        {"secret": f"whsec_vb2Yk1q8mP0c4Rw{n}", **({"not_after": moment} if moment else {})}
        for n, moment in enumerate(moments)
    ]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([None], []), ([8], []), ([6], [("keys", "stripe", "warning")]), ([-1], [("keys", "stripe", "error")]),
        ([6, 30], []), ([-1, 6], [("keys", "stripe", "warning")]), ([-1, None], []),
    ],
)  # fmt: skip
def test_keys_that_end(sources, days, expected):
    sources(stripe={"SECRETS": secrets(*days)})
    assert codes(health.look()) == expected


def test_what_is_paused_is_said():
    operations.pause("stripe", actor="anna")
    operations.pause("github", "h", actor="anna")
    found = health.look()
    assert found.paused == ("github: h", "stripe")
    assert codes(found) == [("paused", "github: h", "warning"), ("paused", "stripe", "warning")]


def test_dead_ones_are_a_finding_only_where_somebody_says_how_many_are_too_many(receipts):
    receipts(0, 0, status="dead")
    assert health.look().ok
    assert codes(health.look(health.Limits(dead=1))) == [("dead", "", "error")]
    assert health.look(health.Limits(dead=2)).ok
    with pytest.raises(SystemExit):
        call_command("webhook_health", "--max-dead=1")
    call_command("webhook_health", "--max-dead=2")


@pytest.mark.parametrize(
    "option", ["--max-dead=-1", "--max-dead=x", "--max-dead=1000", "--max-overdue=-1", "--max-overdue=nan"]
)
def test_limits_that_make_no_sense(option):
    with pytest.raises(CommandError):
        call_command("webhook_health", option)


def test_the_findings_as_json(sources, capsys):
    sources(stripe={"EXPECT_EVERY": 60})
    with pytest.raises(SystemExit):
        call_command("webhook_health", "--json")
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["level"], finding["source"]) == ("silent", "error", "stripe")

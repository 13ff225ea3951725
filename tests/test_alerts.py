"""What begins and what is over is told once."""

import logging
from threading import Barrier, Event, Thread

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from django_webhook_guard import alerts, health, operations, sweeper
from django_webhook_guard.models import WebhookAlert
from django_webhook_guard.signals import webhook_alert

pytestmark = pytest.mark.django_db


@pytest.fixture
def heard():
    found = []

    def listen(sender, **about):
        about.pop("signal")
        found.append(about)

    webhook_alert.connect(listen)
    yield found
    webhook_alert.disconnect(listen)


def test_what_begins_is_told_once_and_so_is_its_end(heard, caplog):
    caplog.set_level(logging.INFO, "django_webhook_guard")
    operations.pause("stripe", actor="anna")
    caplog.clear()
    for _ in range(3):
        alerts.look_and_tell()
    words = "stripe is paused: its deliveries are stored and wait"
    assert heard == [{"code": "paused", "source": "stripe", "words": words, "level": "warning", "began": True}]
    assert caplog.messages == [f"webhook alert (paused): {words}"]
    operations.resume("stripe", actor="anna")
    for _ in range(3):
        alerts.look_and_tell()
    assert [each["began"] for each in heard] == [True, False]
    assert caplog.messages[-1] == f"webhook alert (paused) is over: {words}"
    assert not WebhookAlert.objects.exists()


def test_numbers_that_change_are_no_new_alert(heard, sources):
    sources(stripe={"EXPECT_EVERY": 60})
    alerts.look_and_tell()
    sources(stripe={"EXPECT_EVERY": 61})
    alerts.look_and_tell()
    assert len(heard) == 1


def test_a_receiver_that_fails_changes_nothing(sources, caplog):
    def fail(sender, **about):
        raise ValueError("pager is down")

    webhook_alert.connect(fail)
    try:
        sources(stripe={"EXPECT_EVERY": 60})
        alerts.look_and_tell()
    finally:
        webhook_alert.disconnect(fail)
    assert WebhookAlert.objects.count() == 1


def test_the_command_tells_and_other_limits_do_not(heard, sources):
    sources(stripe={"EXPECT_EVERY": 60})
    with pytest.raises(SystemExit):
        call_command("webhook_health", "--max-overdue=1")
    assert heard == []
    with pytest.raises(SystemExit):
        call_command("webhook_health")
    assert len(heard) == 1


@pytest.mark.django_db(transaction=True)
def test_a_sweeper_looks_now_and_then(heard, sources, monkeypatch):
    sources(stripe={"EXPECT_EVERY": 60})
    looks = []
    look = health.look
    monkeypatch.setattr(health, "look", lambda *limits: looks.append(1) or look(*limits))
    stop, passes = Event(), []

    def sweep(**options):
        passes.append(1)
        if len(passes) == 5:
            stop.set()
        return sweeper.Counter()

    monkeypatch.setattr(sweeper, "sweep", sweep)
    sweeper.forever(stop=stop, idle=0)
    assert (len(looks), len(heard)) == (1, 1)


def test_an_error_in_it_stops_no_sweeper(monkeypatch, caplog):
    monkeypatch.setattr(health, "look", lambda: 1 / 0)
    sweeper._look()
    assert "webhook alerts could not be looked at" in caplog.messages
    monkeypatch.setattr(alerts, "look_and_tell", lambda: (_ for _ in ()).throw(OperationalError(2006, "gone away")))
    if connection.vendor == "mysql":
        with pytest.raises(OperationalError):
            sweeper._look()


@pytest.mark.django_db(transaction=True)
def test_of_several_that_look_at_once_one_tells(heard, sources):
    if connection.vendor == "sqlite":
        pytest.skip("threads share the one connection of SQLite in memory")
    sources(stripe={"EXPECT_EVERY": 60}, github={"EXPECT_EVERY": 60})
    barrier = Barrier(4)

    def look():
        barrier.wait(10)
        try:
            alerts.look_and_tell()
        finally:
            connection.close()

    for expected in (2, 4):
        threads = [Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(heard) == expected
        sources(stripe={"EXPECT_EVERY": None}, github={"EXPECT_EVERY": None})
    assert sorted(each["began"] for each in heard) == [False, False, True, True]

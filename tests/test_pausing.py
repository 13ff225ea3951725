"""A source, or a handler, that a person has stopped for a while."""

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from django_webhook_guard import operations, pausing, processing
from django_webhook_guard.exceptions import RetryLater
from django_webhook_guard.models import WebhookPause, WebhookReceipt
from django_webhook_guard.sweeper import sweep
from tests.project.models import Effect

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(handler):
    seen = []

    def work(event):
        seen.append(event.event_id)
        Effect.objects.create(name=event.event_id)

    handler("stripe", "*", name="h", formerly="old-h")(work)
    return seen


def deliver(post, event_id="evt_1", source="stripe"):
    answer = post(source, {"id": event_id, "type": "x"})
    return answer.status_code, answer.json()["status"]


def receipt():
    return WebhookReceipt.objects.get()


def pause(source="stripe", handler=""):
    return operations.pause(source, handler, actor="anna", reason="the bank is down")


def resume(source="stripe", handler="", **options):
    return operations.resume(source, handler, actor="anna", reason="it is back", **options)


@pytest.mark.parametrize("what", [("stripe", ""), ("stripe", "h"), ("stripe", "old-h")])
def test_a_paused_inline_source_answers_as_a_deferred_one_and_runs_when_it_is_resumed(runs, post, what):
    assert pause(*what)
    assert deliver(post) == (202, "accepted")
    assert deliver(post) == (202, "accepted")
    assert (receipt().status, receipt().attempts) == ("received", 0)
    assert processing.run(receipt().pk, "worker") is None
    assert not sweep().get("processed")
    assert (receipt().status, receipt().attempts, runs) == ("received", 0, [])
    assert resume(*what)
    assert sweep() == {"processed": 1}
    assert deliver(post) == (200, "duplicate")
    assert runs == ["evt_1"]


def test_others_go_on(runs, handler, post):
    handler("github", "*", name="h")(lambda event: runs.append("github"))
    handler("partner", "*", name="p")(lambda event: runs.append("partner"))
    pause("stripe")
    pause("partner", "another")
    assert post("github", {"a": 1}, guid="g", event="push").json()["status"] == "processed"
    assert post("partner", {"type": "x"}).json()["status"] == "processed"
    assert deliver(post) == (202, "accepted")
    assert runs == ["github", "partner"]


def test_a_person_pauses_once_and_resumes_once(runs, caplog):
    assert pause()
    assert not pause()
    row = WebhookPause.objects.get()
    assert (row.source, row.handler, row.actor, row.reason) == ("stripe", "", "anna", "the bank is down")
    assert resume()
    assert not resume()
    told = [record.getMessage() for record in caplog.records if "webhook source stripe" in record.getMessage()]
    assert told == [
        "webhook source stripe paused (all of it) by anna: the bank is down",
        "webhook source stripe resumed (all of it) by anna: it is back",
    ]


def test_what_failed_before_waits_as_well(runs, handler, post):
    handler("stripe", "*", name="flaky")(lambda event: 1 / (event.attempt - 1))
    assert deliver(post) == (500, "failed")
    pause()
    WebhookReceipt.objects.update(due_at=timezone.now())
    assert deliver(post) == (202, "accepted")
    assert sweep() == {}
    resume()
    assert sweep() == {"processed": 1}


def test_a_run_that_was_killed_waits_as_well(runs, post):
    pause()
    deliver(post)
    past = timezone.now() - timedelta(seconds=5)
    WebhookReceipt.objects.update(status="processing", attempts=1, lease_until=past, due_at=past)
    assert sweep() == {}
    resume()
    assert sweep() == {"processed": 1}


def test_receipts_of_a_paused_handler_do_not_stand_in_front_of_others(runs, handler, post):
    handler("stripe", "y", name="other")(lambda event: runs.append("y"))
    pause("stripe", "other")
    post("stripe", {"id": "evt_y", "type": "y"})
    assert deliver(post, "evt_x") == (200, "processed")
    assert sweep(batch=1) == {"elsewhere": 1}
    assert sweep(batch=1) == {}
    assert runs == ["evt_x"]


def test_resumed_at_a_rate_they_run_one_after_another_the_oldest_first(runs, post):
    pause()
    for number in range(6):
        deliver(post, f"evt_{number}")
    resume(rate=2)
    due = list(WebhookReceipt.objects.order_by("event_id").values_list("due_at", flat=True))
    waits = [round((each - due[0]).total_seconds(), 3) for each in due]
    assert waits == [0, 0, 1, 1, 2, 2]
    assert sweep() == {"processed": 2}
    assert runs == ["evt_0", "evt_1"]


@pytest.mark.parametrize("rate", [None, 5])
def test_what_waits_for_its_next_attempt_goes_on_waiting(runs, handler, post, rate):
    handler("stripe", "*", name="later")(lambda event: (_ for _ in ()).throw(RetryLater(3600)))
    assert deliver(post, "evt_0") == (503, "retry_later")
    pause()
    deliver(post, "evt_1")
    woken = WebhookReceipt.objects.filter(event_id="evt_1")
    woken.update(due_at=timezone.now() + timedelta(seconds=1800))  # a worker was woken for it, and let it be
    resume(rate=rate)
    waits = {row.event_id: (row.due_at - timezone.now()).total_seconds() for row in WebhookReceipt.objects.all()}
    assert waits["evt_0"] > 3500
    assert waits["evt_1"] <= 0


def test_a_slow_rate(runs, post):
    pause()
    for number in range(3):
        deliver(post, f"evt_{number}")
    resume(rate=0.5)
    due = list(WebhookReceipt.objects.order_by("event_id").values_list("due_at", flat=True))
    assert [round((each - due[0]).total_seconds()) for each in due] == [0, 2, 4]


def test_a_deferred_source_wakes_nobody_while_it_is_paused(runs, sources, post, django_capture_on_commit_callbacks):
    from tests import test_deferred

    test_deferred.woken.clear()
    sources(stripe={"PROCESSING": "deferred", "DISPATCHER": "tests.test_deferred.wake"})
    pause()
    with django_capture_on_commit_callbacks(execute=True):
        assert deliver(post) == (202, "accepted")
    WebhookReceipt.objects.update(due_at=timezone.now())
    with django_capture_on_commit_callbacks(execute=True):
        deliver(post)
    assert sweep() == {}
    assert test_deferred.woken == []


def test_an_event_that_is_over_is_answered_as_ever(runs, post):
    assert deliver(post) == (200, "processed")
    pause()
    assert deliver(post) == (200, "duplicate")


def test_another_process_knows_within_a_second(runs, post, monkeypatch):
    pausing.forget()
    assert deliver(post) == (200, "processed")
    WebhookPause.objects.begin("stripe", "", actor="anna", reason="")  # another process did it
    assert deliver(post, "evt_2") == (200, "processed")
    monkeypatch.setattr(pausing, "FRESH", -1)
    assert deliver(post, "evt_3") == (202, "accepted")


def test_it_is_asked_for_once_a_second_at_most(runs, post, django_assert_num_queries):
    source = type("Source", (), {"name": "stripe"})
    pausing.forget()
    with django_assert_num_queries(1):
        for _ in range(5):
            assert not pausing.is_paused(source)


def test_a_database_that_is_away_is_answered_as_ever(runs, post, monkeypatch):
    def away():
        raise OperationalError("away")

    monkeypatch.setattr(pausing, "_pauses", away)
    assert deliver(post) == (503, "unavailable")
    assert not WebhookReceipt.objects.exists()

import os
import signal
import time
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import OperationalError
from django.utils import timezone

from django_webhook_guard import operations
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.management import filtering
from django_webhook_guard.management.progress import Progress
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.sweeper import sweep_all

pytestmark = pytest.mark.django_db


LONG_AGO = timezone.now() - timedelta(days=1)


class Terminal(StringIO):
    def isatty(self):
        return True


def retry(*arguments, out=None, **options):
    out = out or StringIO()
    call_command("webhook_retry", *arguments, stdout=out, **{"no_input": True, **options})
    return out.getvalue().splitlines()


def work(event):
    """Do what the type says, once."""
    if event.attempt == 1 and event.event_type == "a.fails":
        raise ValueError("why")
    if event.attempt == 1 and event.event_type == "a.breaks":
        raise KeyError("why")
    if event.attempt == 1 and event.event_type == "b.gives-up":
        raise GiveUp("why")


@pytest.fixture
def receipts(post, handler):
    """Two that failed, one dead, one processed, one held; minute by minute."""
    handler(["stripe", "partner"], "*", name="h")(work)
    for number, event_type in enumerate(["a.fails", "a.breaks", "b.gives-up", "ok", "held"]):
        source = "partner" if number == 1 else "stripe"
        post(source, {"id": f"evt_{number}", "type": event_type})
    start = timezone.now() - timedelta(hours=1)
    found = list(WebhookReceipt.objects.order_by("pk"))
    for number, receipt in enumerate(found):
        WebhookReceipt.objects.filter(pk=receipt.pk).update(received_at=start + timedelta(minutes=number))
    WebhookReceipt.objects.filter(event_type="held").update(status="quarantined", reason="late")
    return [receipt.pk for receipt in found]


def statuses():
    return list(WebhookReceipt.objects.order_by("pk").values_list("status", flat=True))


UNTOUCHED = ["failed", "failed", "dead", "processed", "quarantined"]
BRINGS = "webhook_sweep or a worker brings them."


def test_failed_and_dead_ones_become_due_and_run(receipts):
    assert retry(since=LONG_AGO) == ["3 receipts chosen", "3 made due", BRINGS]
    assert statuses() == ["received", "received", "received", "processed", "quarantined"]
    assert sweep_all() == {"processed": 3}


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({"source": "stripe"}, [0, 2]),
        ({"source": "partner"}, [1]),
        ({"event_type": "a.*"}, [0, 1]),
        ({"event_type": "a.fails"}, [0]),
        ({"status": ["dead"]}, [2]),
        ({"status": ["failed", "dead"]}, [0, 1, 2]),
        ({"error": "ValueError"}, [0]),
        ({"error": "builtins.KeyError"}, [1]),
        ({"error": "django_webhook_guard.exceptions.GiveUp"}, [2]),
        ({"handler": "h", "source": "stripe"}, [0, 2]),
        ({"since": "59m"}, [1, 2]),
        ({"until": "59m"}, [0]),
    ],
)
def test_filters_choose(receipts, options, which):
    retry(**{name: _parsed(name, value) for name, value in options.items()})
    changed = [number for number, status in enumerate(statuses()) if status == "received"]
    assert changed == which


def _parsed(name, value):
    """Shift the moment a little: the first was received exactly an hour ago, the second 59 minutes."""
    if name in ("since", "until"):
        return getattr(filtering, name)(value) - timedelta(seconds=30)
    return value


def test_the_error_of_an_earlier_attempt_does_not_choose(receipts):
    row = WebhookAttempt.objects.get(receipt_id=receipts[0])
    WebhookReceipt.objects.filter(pk=receipts[0]).update(attempts=2)
    row.pk, row.number, row.error_class = None, 2, "builtins.OSError"
    row.save()
    with pytest.raises(CommandError, match="No such receipt"):
        retry(error="ValueError")
    assert retry(error="OSError")[0] == "1 receipt chosen"


def test_receipts_are_named_and_what_is_left_alone_is_an_error(receipts):
    assert retry(str(receipts[0]))[1] == "1 made due"
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 2 receipts were left alone"):
        retry(str(receipts[1]), str(receipts[3]), out=out)
    assert out.getvalue().splitlines() == ["2 receipts chosen", "1 made due", "1 left alone, processed", BRINGS]


@pytest.mark.parametrize("extra", [{}, {"all_handlers": True}, {"handlers": "h"}])
def test_a_dry_run_changes_nothing(receipts, extra):
    before = list(WebhookReceipt.objects.order_by("pk").values())
    told = retry(source="stripe", dry_run=True, no_input=False, **extra)
    assert told == [f"{3 if extra else 2} receipts chosen", f"{3 if extra else 2} would be made due"]
    assert list(WebhookReceipt.objects.order_by("pk").values()) == before


def test_all_handlers_or_named_ones_run_again(receipts, handler):
    ran = []
    handler("stripe", "ok", name="new")(lambda event: ran.append("new"))
    retry("--missing", "--type=ok")
    sweep_all()
    assert ran == ["new"]
    retry("--handlers=new", "--status=processed", "--source=stripe")
    sweep_all()
    assert ran == ["new", "new"]
    retry("--all-handlers", "--type=ok")
    sweep_all()
    assert ran == ["new"] * 3
    retry("--missing", "--type=ok")
    sweep_all()
    assert ran == ["new"] * 3


@pytest.mark.parametrize(("order", "first"), [("oldest", 0), ("newest", 2)])
def test_the_order_is_kept_over_batches(receipts, order, first, monkeypatch):
    done = []
    monkeypatch.setattr(operations, "retry", lambda receipt, **about: done.append(receipt.pk) or True)
    monkeypatch.setattr(filtering.batches, "__kwdefaults__", {"newest": False, "size": 1})
    retry(since=LONG_AGO, order=order)
    assert done == (receipts[:3] if order == "oldest" else receipts[2::-1])


def test_two_of_one_moment_are_brought_once_each(receipts):
    WebhookReceipt.objects.update(received_at=timezone.now() - timedelta(hours=1))
    for newest in (False, True):
        found = [
            row.pk for batch in filtering.batches(WebhookReceipt.objects.all(), newest=newest, size=2) for row in batch
        ]
        assert found == (receipts[::-1] if newest else receipts)


def test_who_and_why_are_in_the_log(receipts, caplog):
    caplog.set_level("INFO", "django_webhook_guard")
    retry(str(receipts[0]), actor="anna", reason="mended\nforged")
    assert f"webhook receipt {receipts[0]} made due by anna: mended\\nforged" in caplog.messages


@pytest.mark.parametrize(("answer", "done"), [("y", True), ("yes", True), ("", False), ("n", False)])
def test_a_person_is_asked_before_many_are_made_due(receipts, monkeypatch, answer, done):
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    if done:
        retry(source="stripe", no_input=False)
    else:
        with pytest.raises(CommandError, match="Nothing was done"):
            retry(source="stripe", no_input=False)
    assert asked == ["Make 2 due? [y/N] "]
    assert (statuses() != UNTOUCHED) is done


@pytest.mark.parametrize(("error", "told"), [(EOFError, "--no-input"), (KeyboardInterrupt, "Nothing was done")])
def test_without_an_answer_nothing_is_done(receipts, monkeypatch, error, told):
    def nobody(text):
        raise error

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(CommandError, match=told):
        retry(source="stripe", no_input=False)
    assert statuses() == UNTOUCHED


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Give numbers or references"),
        (["--source=nobody"], "No such receipt"),
        (["1", "--source=stripe"], "not both"),
        (["999999"], "No receipt '999999'"),
        (["--source=stripe", "--status=processed"], "add --handlers"),
        (["--source=stripe", "--status=received"], "invalid choice"),
        (["--source=stripe", "--handlers=nobody"], "known are h, signal"),
        (["--source=stripe", "--handlers="], "known are h, signal"),
        (["--source=stripe", "--handlers=h", "--all-handlers"], "not allowed with"),
        (["--since=soon"], "is no time"),
        (["--since=9999-12-31T23:59:59+00:00"], "No such receipt"),
        (["--until=9999-12-31"], "is no time"),
        (["--since=999999w"], "is no time"),
        (["--source=stripe", "--rate=0"], "whole number"),
    ],
)
def test_what_cannot_be_meant_is_an_error(receipts, arguments, told):
    with pytest.raises(CommandError, match=told):
        call_command("webhook_retry", *arguments, "--no-input", stdout=StringIO())
    assert statuses() == UNTOUCHED


def test_a_source_that_this_process_has_not_is_left_alone(receipts):
    WebhookReceipt.objects.filter(pk=receipts[0]).update(source="gone\x1b")
    assert retry(since=LONG_AGO) == [
        "3 receipts chosen", "2 made due", r"1 left alone, this process has no source gone\x1b", BRINGS,
    ]  # fmt: skip


def test_it_goes_no_faster_than_it_is_told(receipts):
    start = time.monotonic()
    retry(since=LONG_AGO, rate=10)
    assert 0.2 <= time.monotonic() - start < 2


def test_it_is_stopped_with_a_count(receipts, monkeypatch):
    do, out = operations.retry, StringIO()

    def interrupted(receipt, **about):
        os.kill(os.getpid(), signal.SIGINT)
        return do(receipt, **about)

    monkeypatch.setattr(operations, "retry", interrupted)
    with pytest.raises(CommandError, match="Stopped: 1 made due, 0 left alone; 2 not looked at") as caught:
        retry(since=LONG_AGO, out=out)
    assert caught.value.returncode == 130
    assert statuses() == ["received", *UNTOUCHED[1:]]


def test_a_database_that_fails_says_what_is_done(receipts, monkeypatch):
    do, calls = operations.retry, []

    def fails(receipt, **about):
        calls.append(receipt.pk)
        if len(calls) == 2:
            raise OperationalError("gone away")
        return do(receipt, **about)

    monkeypatch.setattr(operations, "retry", fails)
    with pytest.raises(CommandError, match=r"failed \(OperationalError\). Until then: 1 made due"):
        retry(since=LONG_AGO)


def test_a_terminal_has_a_bar_and_a_file_has_lines(receipts):
    assert f"[{'#' * 30}] 3 of 3: 3 made due, 0 left alone\x1b[K" in retry(since=LONG_AGO, out=Terminal())
    assert "\x1b" not in "\n".join(retry("--all-handlers", "--status=processed"))


def test_a_line_now_and_then(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("django_webhook_guard.management.progress.monotonic", lambda: clock[0])
    out = StringIO()
    progress = Progress(OutputWrapper(out), 100)
    for done in range(1, 31):
        clock[0] = float(done)
        progress.tell(done, "text")
    progress.end()
    assert out.getvalue().splitlines() == ["10 of 100: text", "20 of 100: text", "30 of 100: text"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", "2026-11-30T00:00:00-03:00"),
        ("2026-11-30T14:00", "2026-11-30T14:00:00-03:00"),
        ("2026-11-30T14:00:00Z", "2026-11-30T14:00:00+00:00"),
    ],
)
def test_a_time_is_read_in_the_projects_zone(text, moment):
    assert filtering.since(text).isoformat() == moment
    assert filtering.until(text) - filtering.since(text) == timedelta(days=1 if len(text) == 10 else 0)

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

from django_webhook_guard import plans, processing
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.management import telling
from django_webhook_guard.models import WebhookEffect, WebhookReceipt

pytestmark = pytest.mark.django_db
PAID = {"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}
#: In the project's zone, three hours behind UTC.
DAY = datetime.fromisoformat("2026-11-30T02:14:07-03:00")


def show(*arguments, **options):
    out = StringIO()
    call_command("webhook_show", *arguments, stdout=out, **options)
    return out.getvalue().splitlines()


def receipt():
    return WebhookReceipt.objects.get()


def told(now=DAY + timedelta(hours=1), **changes):
    """Change the one receipt, and return what is said about it."""
    WebhookReceipt.objects.update(received_at=DAY, **changes)
    return list(telling.all_about(receipt(), now))


@pytest.fixture
def paid(post, handler):
    handler("stripe", "*", name="create_invoice")(lambda event: "created invoice 123")
    post("stripe", PAID)
    return receipt()


@pytest.mark.parametrize("what", ["pk", "reference", "fingerprint", "event_id", "object_key"])
def test_an_event_is_found_by_any_of_its_names(paid, what):
    lines = show(str(getattr(paid, what)))
    assert lines[0].startswith("received ") and lines[0].endswith(", created invoice 123")
    assert f"receipt {paid.pk}" in lines


def test_one_sentence_says_what_became_of_it(paid):
    ended = DAY + timedelta(seconds=1)
    assert told(processed_at=ended)[0] == "received 02:14:07, processed 02:14:08, created invoice 123"
    later = told(DAY + timedelta(days=1), processed_at=ended)[0]
    assert later == "received 2026-11-30 02:14:07, processed 2026-11-30 02:14:08, created invoice 123"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"status": "received", "due_at": DAY}, "waits to be run since 02:14:07"),
        ({"status": "received", "due_at": DAY + timedelta(hours=2)}, "is due 04:14:07"),
        ({"status": "processing", "lease_until": DAY}, "is being run, attempt 1, until 02:14:07"),
        ({"status": "failed", "due_at": DAY}, "failed 1 time, is due again 02:14:07"),
        ({"status": "dead", "attempts": 2, "reason": "exhausted"}, "dead after 2 attempts, attempts ran out"),
        ({"status": "quarantined", "reason": "late"}, "held, signed before the window of acceptance"),
        ({"status": "ignored", "processed_at": DAY, "reason": "skipped"}, "ignored 02:14:07, every handler skipped it"),
        ({"status": "discarded", "processed_at": DAY}, "discarded by a person 02:14:07"),
    ],
)
def test_every_state_has_its_sentence(paid, changes, sentence):
    assert told(**{"reason": "", **changes})[0] == f"received 02:14:07, {sentence}"


def test_handlers_attempts_and_what_a_retry_would_do(post, handler):
    handler("stripe", "*", name="first")(lambda event: "did one")
    handler("stripe", "*", name="second")(lambda event: 1 / 0)
    post("stripe", PAID)
    lines = show("evt_1")
    assert lines[0].endswith(": ZeroDivisionError: division by zero")
    text = "\n".join(lines)
    assert "  first: done " in text and "attempt 1, did one" in text
    assert "  second: to be run" in lines
    assert "     second: ZeroDivisionError: division by zero" in lines
    assert lines[-2:] == [
        f"  webhook_retry {receipt().pk} would run second", "  done, and not run again: first",
    ]  # fmt: skip


def test_what_gave_up_would_run_again(post, handler):
    def give_up(event):
        raise GiveUp("no customer")

    handler("stripe", "*", name="h")(give_up)
    post("stripe", PAID)
    lines = show("evt_1")
    assert lines[0].endswith(
        "dead after 1 attempt, a handler gave up: django_webhook_guard.exceptions.GiveUp: no customer"
    )
    assert any(line.startswith("  h: gave up ") for line in lines)
    assert lines[-1] == f"  webhook_retry {receipt().pk} would run h"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("quarantined", "webhook_release {} would run h"),
        ("ignored", "nothing failed; webhook_retry {} --missing would run h"),
        ("discarded", "nothing: a person ended it"),
        ("received", "it is to run h already"),
    ],
)
def test_what_next(post, handler, status, words):
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    post("stripe", PAID)
    assert told(status=status)[-1] == f"  {words.format(receipt().pk)}"


def test_a_handler_or_source_that_this_process_has_not_is_said(paid):
    assert told(handlers=["create_invoice", "gone\x1b"])[-1] == r"  not known to this process: gone\x1b"
    assert "no source “elsewhere”" in told(source="elsewhere")[-2]


def test_marks_that_cannot_be_read_are_said(paid, monkeypatch):
    read = plans._checkpoints

    def away(using, receipt):
        if using == "other":
            raise OperationalError
        return read(using, receipt)

    monkeypatch.setattr(plans, "_checkpoints", away)
    monkeypatch.setattr(
        plans, "handlers", lambda receipt: [type("H", (), {"using": "other", "names": ("x",), "name": "x"})]
    )
    assert "  the marks on the database 'other' cannot be read" in show("evt_1")


def test_effects_outside_of_the_database(post, handler):
    handler("stripe", "*", name="h", atomic=False)(
        lambda event: event.once("charge\x1b", lambda key: {"id": "ch_1"}) and None
    )
    post("stripe", PAID)
    (line,) = [line for line in show("evt_1") if "charge" in line]
    assert line.startswith(r"  h: charge\x1b: done ") and line.endswith(', {"id": "ch_1"}')
    effect = WebhookEffect.objects.get()
    WebhookEffect.objects.update(state="unknown", calls=2)
    (line,) = [line for line in show("evt_1") if "charge" in line]
    assert line.endswith(f", key {effect.key}, 2 calls with it")


def test_several_are_listed_the_oldest_first(post, paid):
    post("stripe", {**PAID, "id": "evt_2", "type": "invoice.voided\x1b[2J"})
    first, second = WebhookReceipt.objects.order_by("pk")
    lines = show("in_1")
    assert lines[0] == "2 receipts, the oldest first:"
    assert [line.split()[0] for line in lines[1:]] == [str(first.pk), str(second.pk)]
    assert r"invoice.voided\x1b[2J" in lines[2]
    WebhookReceipt.objects.filter(pk=second.pk).update(received_at=DAY)
    assert [line.split()[0] for line in show("in_1")[1:]] == [str(second.pk), str(first.pk)]


def test_a_list_is_bounded(post, paid, monkeypatch):
    monkeypatch.setattr("django_webhook_guard.management.commands.webhook_show.LISTED", 2)
    for number in range(2, 5):
        post("stripe", {**PAID, "id": f"evt_{number}"})
    assert show("in_1")[0] == "2 receipts, the oldest first (there are more: name one by its number or reference):"
    assert len(show("in_1")) == 3


def test_a_source_narrows_and_reaches_one_that_is_not_configured(post, paid):
    post("github", {"id": 1}, guid="evt_1")
    assert len(show("evt_1")) == 3
    assert "  source      github" in show("evt_1", source="github")
    WebhookReceipt.objects.filter(source="stripe").update(source="gone")
    with pytest.raises(CommandError):
        show("in_1")
    assert "  source      gone" in show("in_1", source="gone")
    with pytest.raises(CommandError, match="in source 'github'"):
        show(str(paid.pk), source="github")


@pytest.mark.parametrize(
    "what", ["evt_0", "EVT_1", "evt_1 ", "99999", "9" * 30, "a" * 16, "", "a\0b", "\ud800", "x" * 300, "\x1b[2J"]
)
def test_nothing_found_says_what_was_searched(paid, what):
    with pytest.raises(CommandError, match="in all sources: it is no event id, no object") as caught:
        show(what)
    assert "\x1b" not in str(caught.value) and "\0" not in str(caught.value)


def test_nothing_from_outside_reaches_the_terminal_as_it_is(post, handler):
    evil = "\x1b]0;x\x07\u202e"

    def fail(event):
        raise ValueError(evil)

    handler("stripe", "*", name="good")(lambda event: evil)
    handler("stripe", "*", name="bad")(fail)
    post("stripe", {"id": f"evt{evil}", "type": f"t{evil}", "data": {"object": {"id": f"o{evil}"}}})
    WebhookReceipt.objects.update(tenant=f"a{evil}", key_id=f"k{evil}")
    for what in (str(receipt().pk), f"evt{evil}", f"o{evil}"):
        text = "\n".join(show(what))
        assert "\\x1b" in text
        assert all(each == "\n" or each.isprintable() for each in text)


def test_many_attempts_are_bounded(post, handler):
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    post("stripe", PAID)
    for _ in range(telling.ATTEMPTS + 1):
        WebhookReceipt.objects.update(due_at=timezone.now() - timedelta(minutes=1))
        processing.run(receipt().pk, "sweeper")
    lines = show("evt_1")
    assert f"attempts (the last {telling.ATTEMPTS})" in lines
    assert sum("division" in line for line in lines[1:]) == telling.ATTEMPTS

"""``webhook_show``."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_webhook_guard.models import WebhookReceipt
from tests.test_admin import EVIL, make

pytestmark = pytest.mark.django_db(databases=["default", "other"])
ANSI = "\x1b[31mred\x1b[0m\x07"


def show(what, **options):
    out = StringIO()
    call_command("webhook_show", str(what), stdout=out, **options)
    return out.getvalue()


def test_one_sentence_first(handler, post):
    handler("stripe", "*", name="pay")(lambda event: "created invoice 123")
    post("stripe", {"id": "evt_1", "type": "x"})
    first = show("evt_1").splitlines()[0]
    receipt = WebhookReceipt.objects.get()
    came, done = (timezone.localtime(each).strftime("%H:%M:%S") for each in (receipt.received_at, receipt.processed_at))
    assert first == f"received {came}, processed {done}, created invoice 123"


@pytest.mark.parametrize("what", ["event", "object", "reference", "fingerprint", "number"])
def test_by_every_name(what):
    receipt = make(event_id="evt_x", object_key="in_7")
    named = {
        "event": "evt_x", "object": "in_7", "reference": receipt.reference, "fingerprint": receipt.fingerprint,
        "number": receipt.pk,
    }  # fmt: skip
    assert f"receipt     {receipt.pk}, reference {receipt.reference}" in show(named[what])


def test_why_it_failed_and_what_a_retry_would_do(handler, post):
    handler("stripe", "*", name="mail")(lambda event: "sent")
    handler("stripe", "*", name="pay")(lambda event: {}["price"])
    post("stripe", {"id": "evt_1", "type": "x"})
    told = show("evt_1")
    assert "failed, next attempt" in told
    assert "handler     mail: done, sent" in told
    assert "handler     pay: open" in told
    assert "delivery, failed: builtins.KeyError, 'price'" in told
    assert "a retry     runs pay" in told


def test_a_day_that_is_not_today_is_told():
    receipt = make(received_at=timezone.now() - timedelta(days=40))
    assert f"received {timezone.localtime(receipt.received_at):%Y-%m-%d %H:%M:%S}" in show(receipt.pk)


def test_several_are_listed_the_oldest_first():
    second = make(object_key="in_7")
    first = make(object_key="in_7", received_at=timezone.now() - timedelta(days=1), source="github")
    lines = show("in_7").splitlines()
    assert [line.split()[0] for line in lines[:2]] == [str(first.pk), str(second.pk)]
    assert lines[2] == "2 receipts: give a number."
    assert f"receipt     {first.pk}" in show("in_7", source="github")


def test_nothing_found_says_so():
    with pytest.raises(CommandError, match="Nothing is known as 'evt_9'"):
        show("evt_9")


@pytest.mark.parametrize("what", ["", " ", "\0", "\ud800", "x" * 10_000, "9" * 400, ANSI])
def test_any_text_is_looked_up_without_an_error_of_its_own(what):
    with pytest.raises(CommandError, match="Nothing is known") as raised:
        show(what)
    assert "\x1b" not in str(raised.value)


def test_nothing_reaches_the_terminal_that_controls_it(handler, post):
    def fail(event):
        raise ValueError(ANSI)

    handler("stripe", "*", name=f"pay {ANSI}")(fail)
    post("stripe", {"id": f"evt {ANSI}", "type": f"x{EVIL}"[:200], "data": {"object": {"id": ANSI}}})
    told = show(WebhookReceipt.objects.get().pk)
    assert "\x1b" not in told and "\x07" not in told and "\u202e" not in told
    assert "\\x1b[31mred" in told

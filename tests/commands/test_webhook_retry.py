"""``webhook_retry``."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_webhook_guard.management.commands import webhook_retry
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.sweeper import sweep
from tests.test_admin import make

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@pytest.fixture(autouse=True)
def naps(monkeypatch):
    found = []
    monkeypatch.setattr(webhook_retry, "sleep", found.append)
    return found


@pytest.fixture
def runs(handler):
    seen = []
    handler("stripe", "invoice.*", name="pay")(lambda event: seen.append(event.event_id))
    return seen


def retry(*arguments, **options):
    out = StringIO()
    call_command("webhook_retry", *map(str, arguments), stdout=out, **{"reason": "mended", **options})
    return out.getvalue().splitlines()


DUE = ["1 failed or dead receipts", "1 made due", "webhook_sweep, or a worker, brings them."]


def test_one_by_number_or_reference(runs):
    first, second = make(), make()
    assert retry(first.pk) == DUE
    assert retry(second.reference) == DUE
    assert sweep() == {"processed": 2}


def test_by_what_they_are(runs):
    now = timezone.now()
    old = make(received_at=now - timedelta(days=3))
    make(source="github"), make(event_type="other"), make(status="failed"), make(status="processed")
    assert retry(source="stripe", event_type="invoice.paid", status="dead", until=now - timedelta(days=2)) == DUE
    old.refresh_from_db()
    assert old.status == "received"
    assert WebhookReceipt.objects.filter(status="received").count() == 1


def test_the_rate_is_kept_and_the_order_is_as_told(runs, naps):
    first = make(received_at=timezone.now() - timedelta(days=1))
    second = make()
    retry("--status=dead", "--rate=4", "--order=newest", "--limit=1")
    second.refresh_from_db()
    assert second.status == "received"
    assert naps == []
    make()
    retry("--status=dead", "--rate=4")
    first.refresh_from_db()
    assert (first.status, naps) == ("received", [0.25])


def test_a_dry_run_counts(runs):
    make(), make()
    assert retry("--status=dead", "--dry-run", reason="") == ["2 failed or dead receipts"]
    assert retry("--status=dead", "--dry-run", "--limit=1")[0].startswith("1 failed or dead receipts or more")
    assert WebhookReceipt.objects.filter(status="dead").count() == 2


def test_a_reason_is_asked_for(runs):
    make()
    with pytest.raises(CommandError, match="--reason"):
        retry("--status=dead", reason="")


def test_nothing_there(runs):
    assert retry("--source=stripe") == ["0 failed or dead receipts"]
    with pytest.raises(CommandError, match="Say which receipts"):
        retry()
    with pytest.raises(CommandError, match="No receipt '999'"):
        retry("999")


def test_handlers_run_again_that_are_named(runs, handler):
    handler("stripe", "invoice.*", name="mail")(lambda event: runs.append("mail"))
    receipt = make(status="processed", last_handler="pay", handlers=["pay"])
    assert retry(receipt.pk)[0] == "0 failed or dead receipts"
    retry(receipt.pk, "--missing")
    assert sweep() == {"processed": 1}
    assert runs == ["mail"]
    retry(receipt.pk, "--handlers", "pay")
    sweep()
    assert runs == ["mail", receipt.event_id]
    retry(receipt.pk, "--all-handlers")
    sweep()
    assert sorted(runs[2:]) == sorted(["mail", receipt.event_id])
    with pytest.raises(CommandError, match="--handlers names none"):
        retry(receipt.pk, "--handlers", ", ")


def test_of_sources_that_are_not_here_nothing_is_made_due():
    make(source="gone")
    with pytest.raises(CommandError, match="left alone"):
        retry("--source=gone")
    assert WebhookReceipt.objects.get().status == "dead"


def test_it_can_be_stopped(runs, monkeypatch):
    make(), make()

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(webhook_retry, "sleep", interrupt)
    with pytest.raises(CommandError, match="Stopped: 1 of 2 were made due"):
        retry("--status=dead")


@pytest.mark.parametrize(
    "option", ["--rate=0", "--rate=nan", "--rate=x", "--limit=0", "--since=yesterday", "--status=x"]
)
def test_what_makes_no_sense_is_refused(option):
    with pytest.raises(CommandError):
        retry("--source=stripe", option)


class Terminal(StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(runs):
    make(), make()
    out = Terminal()
    call_command("webhook_retry", "--status=dead", reason="x", stdout=out)
    assert "\r[####################                    ] 1/2" in out.getvalue()
    assert "] 2/2\n" in out.getvalue()

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

from django_webhook_guard import statements
from django_webhook_guard.models import WebhookReceipt

RECEIPTS = pytest.mark.django_db
LET_GO = "1 bodies expired, 1 headers expired, 1 rows deleted, 0 seen rows deleted, 0 counts deleted, 0 samples deleted"


def prune(*args, **options):
    out = StringIO()
    call_command("webhook_prune", *args, stdout=out, **options)
    return out.getvalue().splitlines()


@pytest.fixture
def receipts(post):
    """One receipt whose body is over, one whose row is over, one of an open event."""
    for name, days, status in (("a", 31, "ignored"), ("b", 401, "ignored"), ("c", 401, "failed")):
        post("stripe", {"id": name, "type": "x"})
        moment = timezone.now() - timedelta(days=days)
        WebhookReceipt.objects.filter(event_id=name).update(received_at=moment, processed_at=moment, status=status)
    return list(WebhookReceipt.objects.order_by("pk").values_list("pk", flat=True))


@RECEIPTS
def test_nothing_to_do():
    let_go = "0 bodies expired, 0 headers expired, 0 rows deleted, 0 seen rows deleted"
    assert prune() == [f"let go: {let_go}, 0 counts deleted, 0 samples deleted"]


@RECEIPTS
def test_it_tells_how_far_it_is_what_went_and_what_stays(receipts):
    assert prune() == [
        f"up to receipt {receipts[2]}: 3 read, {LET_GO}",
        f"let go: {LET_GO}",
        "kept back: 1, not finished",
    ]
    assert prune("--batch=1", verbosity=0)[0].startswith("let go: 0 bodies")


@RECEIPTS
def test_a_dry_run_tells_the_same_and_changes_nothing(receipts):
    before = list(WebhookReceipt.objects.order_by("pk").values())
    dry = prune("--dry-run", "--batch", "2")
    assert list(WebhookReceipt.objects.order_by("pk").values()) == before
    assert dry[-2] == f"would let go: {LET_GO}"
    wet = prune("--batch", "2")
    assert [*dry[:-2], dry[-2].replace("would ", ""), dry[-1]] == wet


@RECEIPTS
def test_a_database_that_fails_says_what_is_done(receipts, monkeypatch):
    present, calls = statements.present, []

    def fails(*args):
        calls.append(args)
        if len(calls) > 1:
            raise OperationalError("gone away")
        return present(*args)

    monkeypatch.setattr(statements, "present", fails)
    out = StringIO()
    with pytest.raises(CommandError, match=r"OperationalError: gone away\). The batches above are done; run it again"):
        call_command("webhook_prune", "--batch=1", stdout=out)
    assert out.getvalue().startswith(f"up to receipt {receipts[0]}: 1 read, 1 bodies")


@pytest.mark.parametrize("batch", ["0", "-1", "x", "", "1.5", "10001"])
def test_a_batch_is_a_number_that_one_transaction_can_bear(batch):
    with pytest.raises(CommandError, match="batch"):
        prune(f"--batch={batch}")


def test_a_mistake_in_the_settings_is_named(sources):
    sources(stripe={"RETENTION": {"row": "7"}})
    with pytest.raises(CommandError, match=r"RETENTION\['row'\] is '7'.*E027.*Nothing was pruned"):
        prune()

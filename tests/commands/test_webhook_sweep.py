from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_webhook_guard.models import WebhookAttempt, WebhookReceipt

pytestmark = pytest.mark.django_db


def sweep(*args, **options):
    out = StringIO()
    call_command("webhook_sweep", *args, stdout=out, **options)
    return out.getvalue().strip()


@pytest.fixture
def failed(post, handler):
    """Make receipts that failed once and are due."""
    handler(["stripe", "github"], "*", name="h")(lambda event: 1 / (event.attempt - 1))

    def make(number):
        for each in range(number):
            post("stripe", {"id": f"evt_{each}", "type": "x"})
        WebhookReceipt.objects.update(due_at=timezone.now() - timedelta(minutes=1))

    return make


def test_it_says_that_nothing_is_due():
    assert sweep() == "nothing is due"


def test_it_runs_what_is_due_and_counts(failed):
    failed(2)
    assert sweep() == "2 processed"
    assert set(WebhookAttempt.objects.filter(number=2).values_list("trigger", "outcome")) == {("sweeper", "processed")}
    assert sweep() == "nothing is due"


def test_it_tells_more_when_asked(failed):
    failed(1)
    assert sweep(verbosity=2).splitlines() == [f"receipt {WebhookReceipt.objects.get().pk}: processed", "1 processed"]


@pytest.mark.parametrize("batch", ["1", "2", "3", "4"])
def test_it_brings_all_that_is_due_batch_by_batch(failed, batch):
    failed(3)
    assert sweep("--batch", batch) == "3 processed"
    assert sweep("--batch", batch) == "nothing is due"


def test_it_takes_one_source(failed):
    failed(1)
    assert sweep("--source", "github") == "nothing is due"
    assert sweep("--source", "stripe") == "1 processed"


@pytest.mark.parametrize("batch", ["0", "-1", "x", "", "1.5", "²"])
def test_a_batch_is_a_positive_whole_number(batch):
    with pytest.raises(CommandError, match="batch"):
        sweep(f"--batch={batch}")


def test_an_unknown_source_is_refused_with_those_that_are_known():
    with pytest.raises(CommandError, match=r"'strip' is not configured; known: stripe, github, partner"):
        sweep("--source", "strip")

"""Case G4: a project's own tests of its deferred sources, in TestCase and with pytest."""

from contextlib import nullcontext

import pytest
from django.test import TestCase, TransactionTestCase, override_settings

from django_webhook_guard.handlers import unregister, webhook_handler
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.testing import run_due
from tests import senders
from tests.project.models import Effect

GUARD = {"SOURCES": {"stripe": {"PROVIDER": "stripe", "SECRETS": [senders.STRIPE_SECRET]}}}
DEFERRED = {**GUARD, "PROCESSING": "deferred"}


def book(event):
    Effect.objects.create(name=event.event_id)


def deliver(client, event_id="evt_1"):
    body = senders.dumps({"id": event_id, "type": "x"})
    return client.post("/webhooks/stripe/", body, content_type="application/json", headers=senders.stripe(body))


class InATransactionTestCase(TransactionTestCase):
    """What holds in both kinds of Django's test cases."""

    def setUp(self):
        webhook_handler("stripe", "*", name="book")(book)
        self.addCleanup(unregister, book)

    @override_settings(WEBHOOK_GUARD=GUARD)
    def test_inline_works_as_it_stands(self):
        self.assertEqual(deliver(self.client).status_code, 200)
        self.assertEqual(Effect.objects.count(), 1)
        self.assertEqual(run_due(), {})

    @override_settings(WEBHOOK_GUARD=DEFERRED)
    def test_deferred_work_is_run_here_and_now(self):
        self.assertEqual(deliver(self.client).status_code, 202)
        self.assertEqual(deliver(self.client, "evt_2").status_code, 202)
        self.assertEqual(Effect.objects.count(), 0)
        self.assertEqual(run_due(), {"processed": 2})
        self.assertEqual(Effect.objects.count(), 2)

    @override_settings(WEBHOOK_GUARD={**DEFERRED, "DISPATCHER": "tests.test_testing.never"})
    def test_a_receipt_whose_worker_was_woken_runs_as_well(self):
        with self.committing():
            deliver(self.client)
        self.assertEqual(run_due(), {"processed": 1})

    def committing(self):
        return nullcontext()


class InATestCase(InATransactionTestCase, TestCase):
    def committing(self):
        return self.captureOnCommitCallbacks(execute=True)


def never(receipt_id):
    """A dispatcher that wakes nobody."""


@pytest.fixture
def deferred(settings, handler):
    settings.WEBHOOK_GUARD = DEFERRED
    handler("stripe", "*", name="book")(book)


@pytest.mark.django_db
def test_with_pytest_as_well(client, deferred):
    deliver(client)
    assert run_due() == {"processed": 1}


@pytest.mark.django_db
def test_failed_ones_run_again_when_asked_to(client, settings, handler):
    settings.WEBHOOK_GUARD = DEFERRED

    def fails_twice(event):
        if event.attempt < 3:
            raise ValueError

    handler("stripe", "*", name="h")(fails_twice)
    deliver(client)
    assert run_due() == {"failed": 1}
    assert run_due() == {}
    assert run_due(retries=True) == {"failed": 1}
    assert run_due(retries=True) == {"processed": 1}


@pytest.mark.django_db
def test_only_one_source(client, deferred):
    deliver(client)
    assert run_due(source="github") == {}
    assert WebhookReceipt.objects.get().status == "received"
    assert run_due(source="stripe") == {"processed": 1}


@pytest.mark.django_db
def test_what_arrives_while_it_runs_is_run_and_an_endless_chain_ends(client, deferred, handler, monkeypatch):
    monkeypatch.setattr("django_webhook_guard.testing.MAX_RUNS", 5)
    handler("stripe", "*", name="chain", atomic=False)(lambda event: deliver(client, event.event_id + "x") and None)
    deliver(client)
    with pytest.raises(RuntimeError, match="makes new ones"):
        run_due()
    assert Effect.objects.count() == 5

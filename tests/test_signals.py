import logging
import time

import pytest
from django.db import connection
from django.test import TestCase

from django_webhook_guard import operations, processing
from django_webhook_guard.exceptions import GiveUp, Skip
from django_webhook_guard.handlers import unregister, webhook_handler
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.signals import (
    webhook_dead,
    webhook_duplicate,
    webhook_failed,
    webhook_processed,
    webhook_quarantined,
    webhook_received,
    webhook_rejected,
)
from tests import senders
from tests.project.models import Effect

pytestmark = pytest.mark.django_db
EVENT = {"id": "evt_1", "type": "x"}


@pytest.fixture
def connect():
    connected = []

    def register(signal, receiver):
        signal.connect(receiver)
        connected.append((signal, receiver))

    yield register
    for signal, receiver in connected:
        signal.disconnect(receiver)


@pytest.fixture
def heard(connect):
    """What onlookers were told, and whether the receipt's end was committed by then."""
    told = []

    def listener(name):
        def listen(sender, signal, **about):
            told.append((name, {**about, "open": connection.in_atomic_block}))

        return listen

    for name, signal in (("processed", webhook_processed), ("failed", webhook_failed), ("dead", webhook_dead)):
        connect(signal, listener(name))
    return told


@pytest.mark.django_db(transaction=True)
def test_onlookers_are_told_after_the_commit(post, handler, heard):
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", EVENT)
    ((name, about),) = heard
    assert name == "processed"
    assert about == {
        "receipt_id": WebhookReceipt.objects.get().pk,
        "source": "stripe",
        "event_type": "x",
        "open": False,
    }


def test_a_failure_is_told_with_its_error(post, handler, heard):
    error = ValueError("why")

    def fail(event):
        raise error

    handler("stripe", "*", name="h")(fail)
    post("stripe", EVENT)
    ((name, about),) = heard
    assert (name, about["error"], about["attempt"]) == ("failed", error, 1)


def test_giving_up_and_running_out_are_told_as_dead(post, handler, heard, sources):
    sources(stripe={"RETRY": {"max_attempts": 1}})

    @handler("stripe", "*", name="h")
    def end(event):
        raise GiveUp if event.event_type == "x" else ValueError

    post("stripe", EVENT)
    post("stripe", {"id": "evt_2", "type": "y"})
    assert [(name, about.get("reason")) for name, about in heard] == [
        ("failed", None),
        ("dead", "gave_up"),
        ("failed", None),
        ("dead", "exhausted"),
    ]


def test_nobody_is_told_of_what_was_skipped_or_delivered_again(post, handler, heard):
    @handler("stripe", "*", name="h")
    def skip(event):
        raise Skip

    for _ in range(2):
        post("stripe", EVENT)
    assert heard == []


def test_a_receiver_that_raises_changes_nothing(post, handler, connect, caplog):
    def broken(sender, **about):
        raise RuntimeError("broken onlooker")

    connect(webhook_processed, broken)
    handler("stripe", "*", name="h")(lambda event: None)
    assert post("stripe", EVENT).status_code == 200
    assert WebhookReceipt.objects.get().status == "processed"
    assert "broken onlooker" in caplog.text


def test_duplicates_refusals_and_what_is_held_are_told(post, handler, connect):
    told = []
    for name, signal in (
        ("duplicate", webhook_duplicate), ("rejected", webhook_rejected), ("quarantined", webhook_quarantined),
    ):  # fmt: skip

        def listen(sender, signal, name=name, **about):
            told.append((name, sender, about))

        connect(signal, listen)
    handler("partner", "*", name="h")(lambda event: None)
    post("partner", EVENT, nonce="one", at=(now := int(time.time())), key="a")
    post("partner", EVENT, nonce="two", key="a")
    for _ in range(2):
        post("partner", EVENT, nonce="one", at=now, key="captured")
    post("partner", EVENT, headers={})
    post("partner", EVENT, secret="another-0123456789abcdef")
    post("partner", EVENT, at=1_700_000_000)
    post("partner", b"{")
    post("partner", EVENT, path="/webhooks/nobody/")
    (first, held) = WebhookReceipt.objects.order_by("pk")
    about = {"source": "partner", "event_type": "x"}
    assert told == [
        ("duplicate", WebhookReceipt, {**about, "receipt_id": first.pk}),
        ("quarantined", WebhookReceipt, {**about, "receipt_id": held.pk, "reason": "replayed"}),
        ("rejected", WebhookReceipt, {"source": "partner", "decision": "rejected", "reason": "signature_missing"}),
        ("rejected", WebhookReceipt, {"source": "partner", "decision": "rejected", "reason": "bad_signature"}),
        ("rejected", WebhookReceipt, {"source": "partner", "decision": "late", "reason": "unknown"}),
        ("rejected", WebhookReceipt, {"source": "partner", "decision": "malformed", "reason": ""}),
    ]


@pytest.mark.parametrize("signal", [webhook_duplicate, webhook_rejected, webhook_processed])
def test_an_async_onlooker_hears_and_a_broken_one_changes_nothing(post, handler, connect, caplog, signal):
    heard = []

    async def listen(sender, **about):
        heard.append(about["source"])

    async def broken(sender, **about):
        raise RuntimeError("broken onlooker")

    connect(signal, broken)
    connect(signal, listen)
    handler("stripe", "*", name="h")(lambda event: None)
    answers = [post("stripe", EVENT).status_code, post("stripe", EVENT).status_code]
    answers.append(post("stripe", EVENT, headers={}).status_code)
    assert answers == [200, 200, 401]
    assert heard == ["stripe"]
    assert "broken onlooker" in caplog.text


# -- the signal that is work -------------------------------------------------------------------------------------------


def first(sender, event, **kwargs):
    Effect.objects.create(name=f"first{event.attempt}")


def second(sender, event, **kwargs):
    if event.attempt == 1:
        raise ValueError("second broke")
    Effect.objects.create(name=f"second{event.attempt}")


async def third(sender, event, **kwargs):
    await Effect.objects.acreate(name="async")


def effects():
    return list(Effect.objects.order_by("pk").values_list("name", flat=True))


def test_e5_a_receiver_that_raises_is_named_and_all_run_again(post, connect, caplog):
    called = []
    connect(webhook_received, lambda_ := lambda sender, **kwargs: called.append(sender))
    connect(webhook_received, first)
    connect(webhook_received, second)
    assert post("stripe", EVENT).status_code == 500
    assert called == [WebhookReceipt]
    assert effects() == []
    attempt = WebhookAttempt.objects.get()
    assert attempt.handler == "signal (tests.test_signals:second)"
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info
    assert post("stripe", EVENT).json()["status"] == "processed"
    assert effects() == ["first2", "second2"]
    assert WebhookReceipt.objects.get().handlers == ["signal"]
    del lambda_


def test_g8_an_async_receiver_runs(post, connect):
    connect(webhook_received, third)
    connect(webhook_received, first)
    assert post("stripe", EVENT).json()["status"] == "processed"
    assert sorted(effects()) == ["async", "first1"]


def test_all_receivers_together_are_one_handler_beside_others(post, handler, connect):
    handler("stripe", "*", name="h")(lambda event: Effect.objects.create(name=f"h{event.attempt}"))
    connect(webhook_received, second)
    assert post("stripe", EVENT).status_code == 500
    assert post("stripe", EVENT).status_code == 200
    assert effects() == ["h1", "second2"]


def test_a_receipt_waits_for_a_receiver_that_is_gone(post, connect):
    connect(webhook_received, second)
    post("stripe", EVENT)
    webhook_received.disconnect(second)
    assert post("stripe", EVENT).status_code == 500
    assert WebhookReceipt.objects.get().status == "failed"
    connect(webhook_received, first)
    operations.retry(WebhookReceipt.objects.get(), actor="anna")
    assert processing.run(WebhookReceipt.objects.get().pk, "admin").status == "processed"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_g8_receivers_of_both_kinds_do_their_work(post, connect, kind):
    def plain(sender, event, **kwargs):
        Effect.objects.create(name="plain")

    async def coroutine(sender, event, **kwargs):
        await Effect.objects.acreate(name="async")

    connect(webhook_received, plain if kind == "plain" else coroutine)
    assert post("stripe", EVENT).json()["status"] == "processed"
    assert list(Effect.objects.values_list("name", flat=True)) == [kind]


def test_g8_an_async_receiver_that_fails_is_a_failed_attempt(post, connect):
    async def coroutine(sender, event, **kwargs):
        await Effect.objects.acreate(name="async")
        if event.attempt == 1:
            raise ValueError

    connect(webhook_received, coroutine)
    assert [post("stripe", EVENT).status_code for _ in range(2)] == [500, 200]
    assert Effect.objects.count() == 1


class TestG4(TestCase):
    """A user's own tests: Django's TestCase never commits, and inline handlers run all the same."""

    def test_g4_a_handler_runs_in_a_test_case_as_it_stands(self):
        def book(event):
            Effect.objects.create(name=event.event_id)

        webhook_handler("stripe", "*", name="book")(book)
        self.addCleanup(unregister, book)
        body = senders.dumps(EVENT)
        for _ in range(2):
            response = self.client.post("/webhooks/stripe/", body, "application/json", headers=senders.stripe(body))
            assert response.status_code == 200
        assert WebhookReceipt.objects.get().status == "processed"
        assert Effect.objects.count() == 1

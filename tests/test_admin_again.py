"""To run handlers again that are done, and to settle effects, in the admin."""

import time

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from django_webhook_guard import processing
from django_webhook_guard.models import WebhookEffect, WebhookReceipt
from tests.test_admin import EVIL, LIST, make, page_of, person

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def receipt():
    return WebhookReceipt.objects.get()


def shown(row):
    return f"{row.pk}:{row.status}:{row.attempts}"


def url(name, row):
    return f"{LIST}{row.pk}/{name}/"


@pytest.fixture
def send(django_capture_on_commit_callbacks):
    """Post a form, and let what waits for the commit be done."""

    def post(client, *args, **kwargs):
        with django_capture_on_commit_callbacks(execute=True):
            return client.post(*args, **kwargs)

    return post


@pytest.fixture
def done(handler, post):
    """A processed receipt of two handlers; returns what ran since."""
    runs = []
    handler("stripe", "*", name="pay")(lambda event: runs.append("pay"))
    handler("stripe", "*", name="mail")(lambda event: runs.append("mail"))
    post("stripe", {"id": "evt_1", "type": "x"})
    runs.clear()
    return runs


@pytest.fixture
def chief():
    return person("anna", "view_webhookreceipt", "rerun_webhookreceipt", "settle_webhookreceipt")


@pytest.mark.parametrize(("ticked", "ran"), [(["mail"], ["mail"]), (["pay", "mail"], ["pay", "mail"]), ([], [])])
def test_what_is_ticked_runs_again(done, chief, send, ticked, ran):
    row = receipt()
    assert url("rerun", row) in chief.get(page_of(row)).content.decode()
    page = chief.get(url("rerun", row)).content.decode()
    assert 'value="pay"' in page and 'value="mail"' in page
    data = {"handler": ticked, "shown": shown(row), "reason": "wrong tax"}
    answer = send(chief, url("rerun", row), data)
    assert answer.status_code == 302
    assert done == ran
    assert (receipt().status, receipt().attempts) == ("processed", 2)
    assert "Run again after status processed, attempt 1. Reason: wrong tax" in str(LogEntry.objects.get())


def test_a_handler_that_is_not_there_is_not_run(done, chief, send):
    row = receipt()
    send(chief, url("rerun", row), {"handler": ["nonsense", "\0", EVIL], "shown": shown(row)})
    assert done == []


def test_a_receipt_that_moved_on_is_left_alone(done, chief, send):
    row = receipt()
    WebhookReceipt.objects.update(attempts=5)
    send(chief, url("rerun", row), {"handler": ["pay"], "shown": shown(row)})
    assert done == []


@pytest.mark.parametrize("status", ["received", "processing", "quarantined", "discarded"])
def test_no_link_where_it_cannot_be_done(chief, status):
    row = make(status=status)
    assert url("rerun", row) not in chief.get(page_of(row)).content.decode()
    chief.post(url("rerun", row), {"handler": ["pay"], "shown": shown(row)})
    row.refresh_from_db()
    assert row.status == status


def test_each_takes_its_permission(done):
    row = receipt()
    every = ("retry", "release", "discard", "pause", "rerun", "settle")
    for name in ("rerun", "settle"):
        others = [f"{each}_webhookreceipt" for each in every if each != name]
        for number, permissions in enumerate([[], ["view_webhookreceipt"], ["view_webhookreceipt", *others]]):
            nobody = person(f"{name}{number}", *permissions)
            assert nobody.get(url(name, row)).status_code == 403
            assert nobody.post(url(name, row), {"shown": shown(row)}).status_code == 403
            if "view_webhookreceipt" in permissions:
                assert url(name, row) not in nobody.get(page_of(row)).content.decode()
    assert receipt().attempts == 1


@pytest.fixture
def effect(handler, post):
    """A receipt with an effect of unknown outcome; returns the keys of its calls, and what ``once`` gave back."""
    keys, results = [], []

    def charge(key):
        keys.append(key)
        if len(keys) == 1:
            raise ConnectionResetError
        return {"id": "ch_2"}

    def work(event):
        results.append(event.once("charge", charge, key_lifetime=0.001))

    handler("stripe", "*", name="h", atomic=False)(work)
    post("stripe", {"id": "evt_1", "type": "x"})
    time.sleep(0.05)
    WebhookReceipt.objects.update(due_at=timezone.now())
    processing.run(receipt().pk, "sweeper")
    assert receipt().reason == "effect_unknown"
    return keys, results


def settle(send, client, **data):
    row = receipt()
    return send(client, url("settle", row), {"shown": shown(row), "reason": "looked", **data})


def test_a_person_says_that_it_happened(effect, chief, send):
    keys, results = effect
    row = receipt()
    assert url("settle", row) in chief.get(page_of(row)).content.decode()
    assert keys[0] in chief.get(url("settle", row)).content.decode()
    settle(send, chief, effect=WebhookEffect.objects.get().pk, happened="yes", result='{"id": "ch_1"}')
    assert receipt().status == "processed"
    assert (len(keys), results) == (1, [{"id": "ch_1"}])
    assert "Effect settled" in str(LogEntry.objects.get())


def test_a_person_says_that_it_did_not_happen(effect, chief, send):
    keys, results = effect
    settle(send, chief, effect=WebhookEffect.objects.get().pk, happened="no")
    assert receipt().status == "processed"
    assert (len(set(keys)), results) == (2, [{"id": "ch_2"}])


@pytest.mark.parametrize(
    "data",
    [
        {}, {"happened": "yes"}, {"effect": "999", "happened": "yes"}, {"happened": "maybe"}, {"effect": "\0"},
        {"happened": "yes", "result": "{"}, {"happened": "yes", "result": "NaN"},
        {"effect": "9" * 99, "happened": "no"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_settles_nothing(effect, chief, send, data):
    if "result" in data:
        data["effect"] = WebhookEffect.objects.get().pk
    answer = settle(send, chief, **data)
    assert answer.status_code == 200
    assert "errornote" in answer.content.decode()
    assert WebhookEffect.objects.get().state == "unknown"


def test_no_link_where_nothing_is_unknown(done, chief):
    row = receipt()
    assert url("settle", row) not in chief.get(page_of(row)).content.decode()
    assert "No effect of this receipt waits" in chief.get(url("settle", row)).content.decode()

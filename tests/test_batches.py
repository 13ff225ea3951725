"""Many events in one body."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import IntegrityError, connection, connections
from django.test import Client

from django_webhook_guard import batches, statements
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import Body, Header
from django_webhook_guard.models import WebhookBatch, WebhookReceipt, WebhookSeen
from django_webhook_guard.providers import Provider
from django_webhook_guard.providers.base import listed
from django_webhook_guard.signals import webhook_quarantined
from django_webhook_guard.sweeper import sweep
from django_webhook_guard.verifiers import HMACVerifier
from tests import senders
from tests.project.models import Effect

pytestmark = pytest.mark.django_db
SECRET = "acme-s3cret-0123456789"
SIGNED = HMACVerifier(header="X-Acme", signed="{timestamp}.{body}", layout="t={timestamp},v1={signature}")
MANY = Provider(name="many", verifier=SIGNED, event_id=Body("id"), event_type=Body("type", optional=True), split=listed)
#: Its ids are not signed, so messages are remembered.
LOOSE = replace(MANY, name="loose", event_id=(Header("X-Batch"), Body("id")))


@pytest.fixture(autouse=True)
def many(sources):
    sources(
        many={"PROVIDER": "tests.test_batches.MANY", "SECRETS": [SECRET]},
        loose={"PROVIDER": "tests.test_batches.LOOSE", "SECRETS": ["loose-s3cret-0123456789"]},
    )


@pytest.fixture
def effects(handler):
    """Which items took effect, in order; an item that says ``fails`` does so many attempts."""

    def book(event):
        Effect.objects.create(name=event.event_id)
        if event.attempt <= event.data.get("fails", 0):
            raise RuntimeError("asked to fail")
        return f"item {event.item}"

    handler(["many", "loose"], "*", name="book")(book)
    return lambda: list(Effect.objects.order_by("pk").values_list("name", flat=True))


@pytest.fixture
def send(post):
    def deliver(items, source="many", secret=SECRET, **options):
        body = senders.dumps(items) if isinstance(items, bytes) else json.dumps(items).encode()
        signature = senders.stripe(body, secret=secret, at=options.pop("at", None))["Stripe-Signature"]
        return post(source, body, headers={"X-Acme": signature, **options})

    return deliver


def states():
    return dict(WebhookReceipt.objects.values_list("item", "status"))


def test_k7_every_item_is_an_event_in_its_own_right(send, effects):
    response = send([{"id": "a"}, {"id": "a"}, {"id": "b"}, {"x": 1}])
    assert (response.status_code, response.json()["status"]) == (202, "quarantined")
    assert effects() == ["a", "b"]
    assert states() == {0: "processed", 2: "processed", 3: "quarantined"}
    held = WebhookReceipt.objects.get(status="quarantined")
    assert (held.reason, held.event_id) == ("no_key", "")


def test_the_body_is_stored_once_and_every_item_finds_its_part(send, handler):
    seen = []
    handler("many", "*", name="h")(lambda event: seen.append((event.item, event.data, json.loads(event.body))))
    items = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    assert send(items).json()["status"] == "processed"
    assert seen == [(0, items[0], items), (1, items[1], items)]
    batch = WebhookBatch.objects.get()
    assert (batch.items, json.loads(bytes(batch.body))) == (2, items)
    assert list(batch.own_receipts().values_list("item", "body")) == [(0, None), (1, None)]
    assert {json.loads(receipt.raw_body)[0]["id"] for receipt in batch.own_receipts()} == {"a"}


def test_an_object_alone_is_one_event(send, effects):
    assert send({"id": "a"}).json()["status"] == "processed"
    assert effects() == ["a"]


def test_the_answer_is_the_worst_of_its_items_and_a_retry_runs_only_what_failed(send, effects):
    items = [{"id": "a"}, {"id": "b", "fails": 1}, {"id": "c"}]
    response = send(items)
    assert (response.status_code, response.json()["status"]) == (500, "failed")
    assert effects() == ["a", "c"]
    assert send(items).json()["status"] == "processed"
    assert effects() == ["a", "c", "b"]
    assert send(items).json()["status"] == "duplicate"
    assert WebhookBatch.objects.count() == 1


def test_an_item_that_comes_again_in_another_batch_is_a_duplicate(send, effects, caplog):
    send([{"id": "a"}, {"id": "b"}])
    assert send([{"id": "b"}, {"id": "c"}]).json()["status"] == "processed"
    assert effects() == ["a", "b", "c"]
    assert "another body" not in caplog.text
    assert WebhookBatch.objects.count() == 2


def test_what_was_stored_before_a_crash_is_run_by_the_sweeper(send, effects, monkeypatch):
    monkeypatch.setattr(batches, "claim_stored", lambda arrival: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        send([{"id": "a"}, {"id": "b"}])
    assert states() == {0: "received", 1: "received"}
    assert sweep() == {"processed": 2}
    assert sorted(effects()) == ["a", "b"]
    assert set(WebhookReceipt.objects.values_list("result", flat=True)) == {"item 0", "item 1"}


def test_items_that_another_delivery_stores_meanwhile_are_not_stored_twice(send, effects, monkeypatch):
    present, raced = statements.present, []

    def outrun(using, fingerprints):
        found = present(using, fingerprints)
        if not raced:
            raced.append(True)
            send([{"id": "b"}])
        return found

    monkeypatch.setattr(statements, "present", outrun)
    assert send([{"id": "a"}, {"id": "b"}, {"id": "c"}]).json()["status"] == "processed"
    assert sorted(effects()) == ["a", "b", "c"]
    assert WebhookReceipt.objects.count() == 3


def test_all_are_stored_or_none(send, monkeypatch):
    def broken(using, new):
        statements.insert(using, new[0])
        raise IntegrityError("CHECK constraint failed")

    monkeypatch.setattr(statements, "insert_many", broken)
    assert send([{"id": "a"}, {"id": "b"}]).status_code == 503
    assert not WebhookReceipt.objects.exists() and not WebhookBatch.objects.exists()


def test_many_items_are_written_in_several_statements(send, monkeypatch, effects):
    monkeypatch.setattr(statements, "ROWS", 3)
    assert send([{"id": f"e{n}"} for n in range(8)]).json()["status"] == "processed"
    assert len(effects()) == 8


def test_an_empty_batch_is_nothing(send):
    response = send([])
    assert (response.status_code, response.json()) == (200, {"status": "declined"})
    assert not WebhookBatch.objects.exists()


@pytest.mark.parametrize(
    "item", [None, 5, "x", [], {"id": None}, {"id": ""}, {"id": True}, {"id": 1.5}, {"id": "x" * 256}]
)
def test_an_item_that_nothing_identifies_is_held_and_the_others_run(send, effects, item):
    told = []
    webhook_quarantined.connect(lambda **about: told.append(about["reason"]), weak=False, dispatch_uid="test")
    try:
        for _ in range(2):
            assert send([{"id": "a"}, item]).status_code == 202
    finally:
        webhook_quarantined.disconnect(dispatch_uid="test")
    assert effects() == ["a"]
    assert states() == {0: "processed", 1: "quarantined"}
    # A retry is signed afresh: its bytes differ, and so does what stands for an item without a key.
    assert told == ["no_key"] * (WebhookReceipt.objects.count() - 1)


def test_a_body_that_is_no_batch_is_malformed(send):
    assert send(b'"text"').status_code == 400
    assert send(b"[{]").status_code == 400


def test_a_captured_batch_under_other_ids_is_held(send, effects):
    secret = "loose-s3cret-0123456789"
    body = [{"id": "a"}, {"id": "b"}]
    headers = {"X-Batch": "1"}
    assert send(body, "loose", secret, **headers).json()["status"] == "processed"
    assert send(body, "loose", secret, **headers).json()["status"] == "duplicate"
    response = send(body, "loose", secret, **{"X-Batch": "2"})
    assert response.json()["status"] == "quarantined"
    assert effects() == ["1 a", "1 b"]
    assert set(WebhookReceipt.objects.filter(status="quarantined").values_list("reason", "item")) == {
        ("replayed", 0), ("replayed", 1),
    }  # fmt: skip
    assert WebhookSeen.objects.count() == 2


def test_a_late_batch_is_refused_or_held_item_by_item(send, effects, sources):
    assert send([{"id": "a"}, {"id": "b"}], at=1_700_000_000).status_code == 400
    assert not WebhookBatch.objects.exists()
    sources(many={"LATE": "quarantine"})
    assert send([{"id": "a"}, {"id": "b"}], at=1_700_000_000).status_code == 202
    assert set(WebhookReceipt.objects.values_list("reason", flat=True)) == {"late"}
    assert send([{"id": "a"}, {"id": "b"}]).json()["status"] == "processed"
    assert effects() == ["a", "b"]


def test_a_source_with_a_former_name_knows_its_items(send, effects, sources):
    send([{"id": "a"}])
    sources(many=None, renamed={"PROVIDER": "tests.test_batches.MANY", "SECRETS": [SECRET], "FORMERLY": ["many"]})
    assert send([{"id": "a"}], "renamed").json()["status"] == "duplicate"
    assert send([{"id": "b"}], "renamed").json()["status"] == "ignored"
    assert WebhookReceipt.objects.count() == 2


def test_nothing_that_nobody_wants_is_stored_where_the_source_says_so(send, sources):
    sources(many={"UNHANDLED": "drop"})
    assert send([{"id": "a"}, {"id": "b"}]).json() == {"status": "declined"}
    assert not WebhookReceipt.objects.exists()


def test_listed_takes_an_array_or_an_object():
    assert listed([1, 2]) == [1, 2]
    assert listed({"a": 1}) == [{"a": 1}]


def test_parse_takes_an_array_only_from_a_sender_of_many():
    assert MANY.parse(b"[1]", "") == ([1], {})
    with pytest.raises(MalformedContent):
        replace(MANY, split=None).parse(b"[1]", "")


def test_an_item_without_id_has_its_number_in_its_key(send, sources):
    sources(many={"EVENT_ID": None})
    send([{"n": 1}, {"n": 1}])
    keys = list(WebhookReceipt.objects.values_list("fingerprint", "key_origin"))
    assert len(set(keys)) == 2 and {origin for _, origin in keys} == {"content"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("source", ["many", "loose"])
def test_batches_that_overlap_at_the_same_moment(handler, source):
    if connection.vendor == "sqlite":
        pytest.skip("threads share the one connection of SQLite in memory")
    handler(["many", "loose"], "*", name="book")(lambda event: Effect.objects.create(name=event.event_id) and None)
    secret = SECRET if source == "many" else "loose-s3cret-0123456789"

    def deliver(number):
        ids = list(range(12))
        shift = number % 12
        body = json.dumps([{"id": f"e{each}", "n": number // 4} for each in ids[shift:] + ids[:shift]]).encode()
        headers = {"X-Acme": senders.stripe(body, secret=secret)["Stripe-Signature"], "X-Batch": "1"}
        try:
            for _ in range(40):
                client = Client()
                status = client.post(f"/webhooks/{source}/", body, "application/json", headers=headers).status_code
                if status == 200:
                    return 200
                assert status == 503, status
                time.sleep(0.05)
        finally:
            connections.close_all()
        return 503

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(deliver, range(24))) == {200}
    names = list(Effect.objects.values_list("name", flat=True))
    # The loose source's ids count only together with the body: there each body's items are events of their own.
    assert len(names) == WebhookReceipt.objects.count()
    if source == "many":
        assert sorted(names) == sorted(f"e{each}" for each in range(12))
    assert set(WebhookReceipt.objects.values_list("status", flat=True)) == {"processed"}


def stored_bytes():
    bodies = [
        *WebhookReceipt.objects.values_list("body", flat=True),
        *WebhookBatch.objects.values_list("body", flat=True),
    ]
    return sum(len(bytes(body)) for body in bodies if body is not None)


@pytest.fixture
def sent_to_the_database():
    """How many bytes of parameters went to the database."""
    total = []

    def watch(execute, sql, params, many, context):
        values = [getattr(each, "obj", each) for each in params or ()]  # psycopg wraps binary values
        total.extend(len(bytes(each)) for each in values if isinstance(each, bytes | bytearray | memoryview))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield lambda: sum(total)


def test_a_batch_that_comes_again_does_not_carry_its_body_for_every_item(send, effects, sent_to_the_database):
    items = [{"id": f"e{number}", "pad": "x" * 500} for number in range(40)]
    send(items)
    first = sent_to_the_database()
    assert first > 20_000
    assert send(items).json()["status"] == "duplicate"
    assert sent_to_the_database() - first < 5_000


def test_a_batch_is_parsed_once_however_many_handlers_want_it(send, handler, monkeypatch):
    parses, seen, parse = [], [], Provider.parse
    monkeypatch.setattr(Provider, "parse", lambda *args: parses.append(1) or parse(*args))
    handler("many", "*", name="a")(lambda event: event.data.update(changed=True))
    handler("many", "*", name="b")(lambda event: seen.append(event.data))
    send([{"id": f"e{number}"} for number in range(10)])
    assert parses == [1]
    assert seen == [{"id": f"e{number}"} for number in range(10)]  # one handler's changes are not another's


def test_a_batch_that_is_replayed_is_held_without_its_body_for_every_item(send, effects):
    secret, items = "loose-s3cret-0123456789", [{"id": f"e{number}", "pad": "x" * 500} for number in range(20)]
    body = json.dumps(items).encode()
    headers = {"X-Acme": senders.stripe(body, secret=secret)["Stripe-Signature"]}
    for batch in ("1", "2", "3"):
        Client().post("/webhooks/loose/", body, "application/json", headers={**headers, "X-Batch": batch})
    held = WebhookReceipt.objects.filter(reason="replayed")
    assert held.count() == 20 and len(effects()) == 20
    assert stored_bytes() == len(body)
    assert {bytes(receipt.raw_body) for receipt in held} == {body}


def test_an_item_without_a_key_keeps_the_tenant_that_the_url_proved(post, sources):
    sources(many={"TENANT": "url", "SECRETS": [{"secret": SECRET, "tenant": "good"}]})
    body = b'[{"id": "a"}, {"x": 1}]'
    headers = {"X-Acme": senders.stripe(body, secret=SECRET)["Stripe-Signature"]}
    post("many", body, path="/webhooks/many/good/", headers=headers)
    assert set(WebhookReceipt.objects.values_list("tenant", flat=True)) == {"good"}

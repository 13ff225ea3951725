"""The admin: what it shows, whom it lets do what, and that a retry happens once."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import OperationalError, connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_webhook_guard import operations
from django_webhook_guard.admin import columns, payload, retrying
from django_webhook_guard.admin.changelist import search
from django_webhook_guard.dispatchers import work
from django_webhook_guard.events import Reply
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.models import (
    WebhookAttempt,
    WebhookBatch,
    WebhookCheckpoint,
    WebhookEffect,
    WebhookReceipt,
)
from django_webhook_guard.statements import insert_checkpoint
from django_webhook_guard.text import shortened, visible
from tests.project.models import Effect
from tests.test_deferred import woken

pytestmark = pytest.mark.django_db

LIST = "/admin/django_webhook_guard/webhookreceipt/"
EVIL = "</script><img src=x onerror=alert(1)>"
_numbers = iter(range(1, 10**6))


def make(**fields):
    """A receipt of a source that the tests configure, dead unless said otherwise."""
    number = next(_numbers)
    now = timezone.now()
    body = fields.pop("body", b'{"id": "evt_1", "amount": 1.50}')
    values = {
        "fingerprint": f"{number:08x}" + "a1" * 28,
        "source": "stripe",
        "event_id": f"evt_{number}",
        "event_type": "invoice.paid",
        "idempotency_key": f"evt_{number}",
        "key_origin": "id",
        "status": "dead",
        "reason": "exhausted",
        "handlers": ["pay"],
        "attempts": 3,
        "received_at": now - timedelta(minutes=3),
        "last_delivered_at": now - timedelta(minutes=2),
        "budget_from": now - timedelta(minutes=3),
        "processed_at": now - timedelta(minutes=1),
        "headers": {"content-type": "application/json", "user-agent": "Stripe/1.0"},
        "body": body,
        "body_digest": "d" * 64,
        "body_size": len(body or b""),
        **fields,
    }
    return WebhookReceipt.objects.create(**values)


def person(name, *permissions):
    user = User.objects.create_user(name, password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(raise_request_exception=True)
    client.force_login(user)
    return client


@pytest.fixture
def viewer():
    return person("vera", "view_webhookreceipt")


@pytest.fixture
def operator():
    return person("otto", "view_webhookreceipt", "retry_webhookreceipt")


@pytest.fixture
def pay(handler):
    """The handler ``pay``, which works and counts its effects."""
    runs = []

    @handler("stripe", "*", name="pay")
    def pay(event):
        runs.append(event.attempt)
        Effect.objects.create(name=event.event_id)
        return "paid"

    return runs


@pytest.fixture
def committing(django_capture_on_commit_callbacks):
    """Run what waits for the commit, as it is run outside of a test's transaction."""

    def call(function, *args, **kwargs):
        with django_capture_on_commit_callbacks(execute=True):
            return function(*args, **kwargs)

    return call


def page_of(receipt):
    return f"{LIST}{receipt.pk}/change/"


def button(receipt, **more):
    """What the form around the button sends."""
    return {"shown": f"{receipt.pk}:{receipt.status}:{receipt.attempts}", **more}


def press(client, receipt, **more):
    return client.post(f"{LIST}{receipt.pk}/retry/", button(receipt, **more), follow=True)


class Forms(HTMLParser):
    """The fields of a page, name → values."""

    def __init__(self, html):
        super().__init__()
        self.fields = {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "input" and attrs.get("name"):
            self.fields.setdefault(attrs["name"], []).append(attrs.get("value", ""))


def selection(client, *receipts, across=False, query=""):
    """What the list sends when these rows are ticked, with the hidden fields of the page as it is now."""
    fields = Forms(client.get(LIST + query).content.decode()).fields
    return {
        "action": "retry_selected",
        "select_across": "1" if across else "0",
        "index": "0",
        "_selected_action": [str(each.pk) for each in receipts],
        "shown": fields.get("shown", []),
        "shown_at": fields.get("shown_at", []),
    }


def messages_of(response):
    return [(message.level_tag, str(message)) for message in response.context["messages"]]


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


# -- who may what ------------------------------------------------------------------------------------------------------


def test_evidence_has_no_add_no_change_and_no_delete_even_for_a_superuser(admin_client):
    receipt = make()
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.get(f"{LIST}{receipt.pk}/delete/").status_code == 403
    assert admin_client.post(page_of(receipt), {"status": "processed"}).status_code == 403
    page = admin_client.get(LIST).content.decode()
    assert "delete_selected" not in page
    assert "webhookreceipt/add/" not in page
    receipt.refresh_from_db()
    assert receipt.status == "dead"


def test_without_the_view_permission_there_is_no_page():
    client, receipt = person("nobody", "retry_webhookreceipt"), make()
    for address in (LIST, page_of(receipt), f"{LIST}{receipt.pk}/body/", f"{LIST}{receipt.pk}/history/"):
        assert client.get(address).status_code == 403
    assert client.post(f"{LIST}{receipt.pk}/retry/", button(receipt)).status_code == 403


def test_only_a_person_with_the_permission_sees_and_uses_the_button_and_the_action(viewer, operator, pay):
    receipt = make()
    assert "retry" not in viewer.get(page_of(receipt)).content.decode().replace("webhook-retry", "")
    assert "retry_selected" not in viewer.get(LIST).content.decode()
    assert press(viewer, receipt).status_code == 403
    viewer.post(LIST, selection(viewer, receipt))
    receipt.refresh_from_db()
    assert (receipt.status, pay) == ("dead", [])
    assert f"{LIST}{receipt.pk}/retry/" in operator.get(page_of(receipt)).content.decode()
    assert "retry_selected" in operator.get(LIST).content.decode()


@pytest.mark.parametrize("view", ["retry", "release", "discard", "body", "history"])
def test_without_the_permission_nobody_learns_which_receipts_there_are(view):
    acts = ("retry", "release", "discard")
    client = person("nobody", "view_webhookreceipt" if view in acts else "retry_webhookreceipt")
    for object_id in (make().pk, 999_999, "abc"):
        address = f"{LIST}{object_id}/{view}/"
        with CaptureQueriesContext(connection) as queries:
            response = client.post(address) if view in acts else client.get(address)
        assert response.status_code == 403
        assert not any("webhook_guard_webhookreceipt" in query["sql"] for query in queries)


def test_the_permission_is_asked_for_the_receipt_itself(operator, pay, monkeypatch, committing):
    mine, other = make(source="stripe"), make(source="github")
    model_admin = admin.site._registry[WebhookReceipt]
    asked = type(model_admin).has_retry_permission

    def only_stripe(request, obj=None):
        return asked(model_admin, request, obj) and (obj is None or obj.source == "stripe")

    monkeypatch.setattr(model_admin, "has_retry_permission", only_stripe)
    assert press(operator, other).status_code == 403
    assert operator.post(f"{LIST}999999/retry/").status_code == 404
    response = committing(operator.post, LIST, selection(operator, mine, other), follow=True)
    assert ("warning", "1 was skipped: you may not do this to it.") in messages_of(response)
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.status, other.status) == ("processed", "dead")


def test_a_stranger_is_sent_to_the_login(client):
    receipt = make()
    for address in (LIST, page_of(receipt), f"{LIST}{receipt.pk}/retry/", f"{LIST}{receipt.pk}/body/"):
        response = client.post(address) if address.endswith("retry/") else client.get(address)
        assert response.status_code == 302
        assert "/login/" in response["Location"]


def test_the_retry_is_post_only_and_has_csrf_protection(operator):
    receipt = make()
    response = operator.get(f"{LIST}{receipt.pk}/retry/")
    assert (response.status_code, response["Allow"]) == (405, "POST")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="otto"))
    assert strict.post(f"{LIST}{receipt.pk}/retry/", button(receipt)).status_code == 403
    receipt.refresh_from_db()
    assert receipt.status == "dead"


@pytest.mark.parametrize("object_id", ["999999", "9" * 40, "abc", "_00", "-1", "%F0%9F%92%A9"])
@pytest.mark.parametrize("view", ["change", "retry", "body", "history"])
def test_a_receipt_that_is_not_there_is_no_error(operator, object_id, view):
    address = f"{LIST}{object_id}/{view}/"
    response = operator.post(address) if view == "retry" else operator.get(address)
    assert response.status_code in (302, 404)


# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_shows_what_an_operator_asks_first(viewer):
    receipt = make(
        status="failed",
        reason="",
        object_key="cus_1",
        tenant="acme",
        deliveries=7,
        due_at=timezone.now() + timedelta(minutes=5),
    )
    page = viewer.get(LIST).content.decode()
    for shown in (
        "failed", "stripe", "invoice.paid", receipt.event_id, receipt.reference, "cus_1", "acme", ">7<",
        "3\xa0minutes ago", "in 4\xa0minutes", timezone.localtime(receipt.received_at).strftime("%Y-%m-%d %H:%M:%S"),
    ):  # fmt: skip
        assert shown in page, shown


def test_the_list_selects_neither_body_nor_headers_nor_counts_without_bound(viewer):
    for _ in range(3):
        make(body=b"x" * 2_000_000)
    with CaptureQueriesContext(connection) as queries:
        viewer.get(LIST)
    about = [query["sql"] for query in queries if "webhookreceipt" in query["sql"].lower()]
    rows = [sql for sql in about if "COUNT(" not in sql.upper() and "event_type" in sql]
    assert len(rows) == 1
    for column in ("body", "headers", "handlers", "result"):
        assert f'"{column}"' not in rows[0].replace("`", '"'), column
    counts = [sql for sql in about if "COUNT(" in sql.upper()]
    assert counts
    assert all("LIMIT 1001" in sql for sql in counts)
    assert not any("DISTINCT" in sql.upper() for sql in about)


def test_the_counting_stops_and_the_page_says_so(viewer, monkeypatch):
    monkeypatch.setattr("django_webhook_guard.admin.changelist.REACH", 3)
    for _ in range(3):
        make()
    assert "There are more" not in viewer.get(LIST).content.decode()
    make()
    page = viewer.get(LIST).content.decode()
    assert "There are more than these 3" in page


def test_facets_full_counts_and_sorting_by_hand_do_nothing(viewer):
    for _ in range(2):
        make()
    plain = [receipt.pk for receipt in viewer.get(LIST).context["cl"].result_list]
    with CaptureQueriesContext(connection) as queries:
        changed = viewer.get(LIST + "?_facets=True&o=3.-2&all=")
    assert [receipt.pk for receipt in changed.context["cl"].result_list] == plain == sorted(plain, reverse=True)
    assert sum("COUNT(" in query["sql"].upper() for query in queries) == 1


@pytest.mark.parametrize(
    "address", ["?body__contains=x", "?idempotency_key__icontains=x", "?status__exact=dead", "?received_at__year=2026"]
)
def test_a_look_up_typed_into_the_address_is_refused(viewer, address):
    make()
    assert viewer.get(LIST + address).status_code == 400


def found(client, **query):
    response = client.get(LIST, query)
    assert response.status_code == 200
    return {receipt.pk for receipt in response.context["cl"].result_list}


def test_the_filters_narrow(viewer, sources):
    sources(stripe={"FORMERLY": ["old-stripe"]})
    dead, failed = make(), make(status="failed")
    old = make(source="old-stripe", status="processed")
    ancient = make(source="github", status="processed", received_at=timezone.now() - timedelta(days=3))
    assert found(viewer, status="failed") == {failed.pk}
    assert found(viewer, source="stripe") == {dead.pk, failed.pk}
    assert found(viewer, source="old-stripe") == {old.pk}
    assert found(viewer, received="hour") == {dead.pk, failed.pk, old.pk}
    assert found(viewer, received="week", source="github") == {ancient.pk}
    page = viewer.get(LIST).content.decode()
    assert "old-stripe (now stripe)" in page
    assert "DISTINCT" not in page


@pytest.mark.parametrize("value", ["nonsense", "\0", "'; --", "💩", "x" * 10_000])
@pytest.mark.parametrize("name", ["status", "source", "received"])
def test_a_filter_value_that_nobody_offered_finds_nothing(viewer, name, value):
    make()
    assert found(viewer, **{name: value}) == set()


def test_the_list_has_no_date_drill_down():
    assert admin.site._registry[WebhookReceipt].date_hierarchy is None


# -- search ------------------------------------------------------------------------------------------------------------


def test_search_finds_by_id_reference_fingerprint_object_and_number(viewer):
    receipt, other = make(object_key="cus_9", tenant="acme"), make(event_type="cus_9")
    for term in (
        receipt.event_id, f"  {receipt.event_id} ", receipt.reference, receipt.reference.upper(), receipt.fingerprint,
        receipt.fingerprint[:40], "cus_9", str(receipt.pk),
    ):  # fmt: skip
        assert found(viewer, q=term) == {receipt.pk}, term
    for term in (
        receipt.event_id[:3],
        "acme",
        "invoice.paid",
        receipt.reference[:15],
        receipt.fingerprint + "0",
        "amount",
    ):
        assert found(viewer, q=term) == set(), term
    assert other.pk in found(viewer, q="")


def test_search_and_filter_go_together(viewer):
    one = make(event_id="same")
    make(event_id="same", status="failed")
    assert found(viewer, q="same", status="dead") == {one.pk}


@pytest.mark.parametrize(
    "term",
    [
        "\0",
        "a\0b",
        "x" * 10_000,
        "💩" * 300,
        "💩",
        "9" * 18,
        "9" * 25,
        "9" * 5000,
        "-1",
        "१२३",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "\u202e",
        "0" * 16,
        "\ud800".encode("utf-8", "surrogatepass"),
        b"\xff\xfe",
    ],
)
def test_a_strange_search_finds_nothing_and_breaks_nothing(viewer, term):
    make()
    assert found(viewer, q=term) == set()


@pytest.mark.parametrize("term", ["\ud800", "a\0", "x" * 256, "", "  "])
def test_a_term_that_no_column_can_hold_is_not_sent_to_the_database(term, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert search(WebhookReceipt.objects.all(), term) == set()


def test_search_asks_indexed_columns_by_equality_only(viewer):
    make()
    with CaptureQueriesContext(connection) as queries:
        viewer.get(LIST, {"q": "0123456789012345"})
    about = [query["sql"].replace("`", '"') for query in queries if "webhookreceipt" in query["sql"].lower()]
    assert not any("LIKE" in sql.upper() for sql in about)
    lookups = [sql for sql in about if "COUNT(" not in sql.upper() and "SELECT" in sql.upper() and "LIMIT 1000" in sql]
    assert len(lookups) == 4
    for column in ('"event_id" =', '"object_key" =', '"fingerprint" >=', '."id" ='):
        assert sum(column in sql for sql in lookups) == 1, column


# -- what is in a payload stays text -----------------------------------------------------------------------------------


@pytest.fixture
def evil(handler):
    """A dead receipt in which everything that a stranger may choose is markup, and its failed attempts."""

    @handler("stripe", "*", name="pay")
    def pay(event):
        raise ValueError(EVIL)

    receipt = make(
        event_type=EVIL, event_id=EVIL, idempotency_key=EVIL, object_key=EVIL, tenant=EVIL, request_id=EVIL,
        headers={"user-agent": EVIL, EVIL: EVIL}, body=json.dumps({"n": EVIL}).encode(), result=EVIL, last_handler=EVIL,
    )  # fmt: skip
    WebhookAttempt.objects.create(
        receipt=receipt, number=3, trigger="delivery", actor=EVIL, outcome="failed", handler=EVIL, error_class=EVIL,
        message=EVIL, traceback=EVIL, release=EVIL, started_at=timezone.now(), duration_ms=5,
    )  # fmt: skip
    insert_checkpoint("default", receipt.fingerprint, EVIL, "done", EVIL, 1)
    return receipt


def assert_harmless(html):
    assert "<img src=x" not in html
    assert "onerror" in html  # it is there, as text
    for tag, attributes in Tags(html).found:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "style" not in attributes, (tag, attributes)
        assert tag != "style"
        if tag == "script":
            assert "src" in attributes or attributes.get("type") == "application/json"


def test_markup_is_text_in_list_detail_history_and_messages(operator, evil, committing):
    assert_harmless(operator.get(LIST).content.decode())
    assert_harmless(operator.get(LIST, {"q": EVIL}).content.decode())
    assert_harmless(operator.get(page_of(evil)).content.decode())
    answer = committing(press, operator, evil, reason=EVIL)
    assert_harmless(answer.content.decode())
    assert not any("onerror" in text for _level, text in messages_of(answer))
    assert_harmless(operator.get(f"{LIST}{evil.pk}/history/").content.decode())
    assert_harmless(operator.get("/admin/").content.decode())
    evil.refresh_from_db()
    answer = committing(operator.post, LIST, selection(operator, evil), follow=True)
    assert_harmless(answer.content.decode())


STRANGE = "a\u202eb\u200bc\u2066d\u2028e\x1bf\x07g"


def test_characters_that_cannot_be_seen_are_shown_as_escapes(operator, committing):
    # No NUL and no surrogate in these: the intake refuses them, and PostgreSQL cannot keep them.
    receipt = make(
        event_type=STRANGE, event_id=STRANGE, idempotency_key=STRANGE, object_key=STRANGE, tenant=STRANGE,
        headers={"user-agent": STRANGE}, body=b'{"a": "\\ud800 \\u0000 \xe2\x80\xae"}' + b"\x00\xff\xed\xa0\x80\x1b",
    )  # fmt: skip
    WebhookAttempt.objects.create(
        receipt=receipt, number=3, trigger="delivery", outcome="failed", error_class="E", message=STRANGE,
        traceback="one\n\ttwo" + STRANGE, started_at=timezone.now(), duration_ms=5,
    )  # fmt: skip
    pages = [operator.get(LIST), operator.get(page_of(receipt)), committing(press, operator, receipt, reason=STRANGE)]
    pages += [operator.get(f"{LIST}{receipt.pk}/history/"), operator.get("/admin/")]
    for response in pages:
        html = response.content.decode()
        assert not set(html) & set("\u202e\u200b\u2066\u2028\x1b\x07\x00")
        assert "a\\u202eb\\u200bc\\u2066d\\u2028e\\x1bf\\x07g" in html
    assert "one\n\ttwoa\\u202eb" in pages[1].content.decode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本 👍", "plain é 日本 👍"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\0\x1b", "\\x00\\x1b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


def test_visible_keeps_lines_where_they_are_wanted():
    assert visible("a\n\tb\r", lines=True) == "a\n\tb\\r"


def test_shortened_is_bounded_after_escaping():
    assert shortened("\x00" * 100, 20) == "\\x00" * 4 + "\\x0…"
    assert shortened("x" * 20, 20) == "x" * 20
    assert shortened("x" * 21, 20) == "x" * 19 + "…"


# -- the body ----------------------------------------------------------------------------------------------------------


def shown(body, cut=False):
    return payload.present(body, cut=cut).text


def test_json_is_indented_and_its_numbers_escapes_and_keys_stay_as_they_came():
    body = rb'{"b":1.50,"a":[1e2,{}, [],"\u00e9\" ]"],"b":null, "n":12345678901234567890.0}'
    assert shown(body) == (
        '{\n  "b": 1.50,\n  "a": [\n    1e2,\n    {},\n    [],\n    "\\u00e9\\" ]"\n  ],\n  "b": null,\n'
        '  "n": 12345678901234567890.0\n}'
    )


def test_the_start_of_a_large_json_is_indented_too():
    assert shown(b'{"a": [1, "ab', cut=True) == '{\n  "a": [\n    1,\n    "ab'
    assert shown(b'{"a": tru', cut=True) == '{\n  "a": tru'
    assert shown('{"a": "é'.encode()[:-1], cut=True) == '{\n  "a": "'


@pytest.mark.parametrize("body", [b"a=1&b=2", b"[hello] {world}", b"<xml/>", b"", b"   ", b"\xff\xfe", b'{"a": nope}'])
def test_what_is_no_json_is_shown_as_it_is(body):
    assert shown(body) == body.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65_536,
        b"[" * 90 + b"1," * 32_000,
        b'"' * 65_536,
        b"[" + b'"\\' * 32_000,
        b"{" * 30_000 + b"}" * 30_000,
        b"\0" * 65_536,
    ],
)
def test_the_work_for_a_hostile_body_is_bounded(body):  # fmt: skip
    before = timezone.now()
    result = payload.present(body, cut=False)
    assert len(result.text) <= payload.INDENTED
    assert (timezone.now() - before).total_seconds() < 2


def test_the_indented_form_is_bounded_while_it_is_made():
    pretty = payload._indented("[" * 90 + "1," * 32_000)
    assert len(pretty) < payload.INDENTED + 200
    assert max(len(line) - len(line.lstrip()) for line in pretty.split("\n")) == 2 * payload.DEEPEST


def test_the_detail_reads_and_shows_a_bounded_part_of_a_large_body(viewer):
    receipt = make(body=b'{"a": "' + b"x" * 2_000_000 + b'"}')
    small = make()
    with CaptureQueriesContext(connection) as queries:
        response = viewer.get(page_of(receipt))
    assert len(response.content) < 200_000
    page = response.content.decode()
    assert "1.9\xa0MB" in page
    assert "of which at most the first 64.0\xa0KB are shown" in page
    about = [query["sql"].replace("`", '"') for query in queries if '."body"' in query["sql"].replace("`", '"')]
    assert len(about) == 1
    assert "SUBSTR" in about[0].upper()
    assert "of which" not in viewer.get(page_of(small)).content.decode()


def test_the_raw_bytes_come_as_a_file_that_nothing_runs(viewer):
    body = bytes(range(256)) + b"<script>alert(1)</script>"
    receipt = make(body=body)
    response = viewer.get(f"{LIST}{receipt.pk}/body/")
    assert response.content == body
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"] == f'attachment; filename="webhook-receipt-{receipt.pk}.bin"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
    assert f"{LIST}{receipt.pk}/body/" in viewer.get(page_of(receipt)).content.decode()
    assert viewer.post(f"{LIST}{receipt.pk}/body/").status_code == 405


def test_a_body_that_is_gone_is_said_and_an_empty_one_is_not_gone(viewer):
    gone, empty = make(body=None, body_size=5, headers={}), make(body=b"")
    page = viewer.get(page_of(gone)).content.decode()
    assert "The body has expired: it is not kept any more." in page and "None are kept." in page
    assert viewer.get(f"{LIST}{gone.pk}/body/").status_code == 404
    assert "not kept any more" not in viewer.get(page_of(empty)).content.decode()
    assert viewer.get(f"{LIST}{empty.pk}/body/").content == b""


def test_the_body_of_an_item_is_that_of_its_batch_until_it_expires(viewer):
    batch = WebhookBatch.objects.create(
        source="stripe", received_at=timezone.now(), items=1, body=b'[{"id": "evt_in_a_batch"}]', body_size=26
    )
    item = make(batch=batch, item=0, body=None, body_size=26)
    page = viewer.get(page_of(item)).content.decode()
    assert "evt_in_a_batch" in page and "expired" not in page
    WebhookBatch.objects.update(body=None)
    assert "The body has expired" in viewer.get(page_of(item)).content.decode()


# -- the detail --------------------------------------------------------------------------------------------------------


def test_effects_outside_of_the_database_are_shown_with_what_is_known_of_them(viewer):
    receipt = make()
    moment = timezone.now()
    known = {"fingerprint": receipt.fingerprint, "handler": "<b>h</b>", "attempt": 1, "started_at": moment}
    for number, (state, result) in enumerate([("done", '{"id": "ch_1"}'), ("unknown", "null"), ("started", "null")]):
        WebhookEffect.objects.create(
            digest=f"{number}" * 64, name=f"charge {state}", state=state, key=f"key-{number}", calls=number + 1,
            result=result, key_since=moment, **known,
        )  # fmt: skip
    page = viewer.get(page_of(receipt)).content.decode()
    assert "Effects outside of the database" in page
    for text in (
        "charge done",
        "charge unknown",
        "outcome unknown",
        "key-2",
        "3 calls with it",
        "&lt;b&gt;h&lt;/b&gt;",
    ):
        assert text in page
    assert "{&quot;id&quot;: &quot;ch_1&quot;}" in page
    assert page.count("Nobody knows whether it happened") == 1
    assert "Effects outside" not in viewer.get(page_of(make())).content.decode()


def test_the_detail_shows_state_identity_headers_and_times(viewer):
    receipt = make(
        status="processing", reason="", lease_until=timezone.now() - timedelta(seconds=30), excused=2,
        signed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), object_key="cus_1", request_id="req-7",
    )  # fmt: skip
    page = viewer.get(page_of(receipt)).content.decode()
    for text in (
        receipt.fingerprint, receipt.reference, "3, of which 2 do not count any more", "30 seconds ago", "cus_1",
        "req-7", "2026-01-02 00:04:05 -03", "user-agent", "Stripe/1.0", "3\xa0minutes ago",
    ):  # fmt: skip
        assert text in page, text
    assert "Retry now" not in page


@pytest.mark.django_db(databases=["default", "other"])
def test_the_plan_says_what_a_retry_will_do(operator, pay, handler):
    handler("stripe", "invoice.*", name="mail")(lambda event: None)
    handler("stripe", "invoice.*", name="book", using="other", formerly="booked")(lambda event: None)
    receipt = make(handlers=["pay", "mail", "booked", "gone"], last_handler="")
    insert_checkpoint("default", receipt.fingerprint, "mail", "gave_up", "", 1)
    insert_checkpoint("default", receipt.fingerprint, "pay", "done", "paid 1", 1)
    plan = operator.get(page_of(receipt)).context["plan"]
    assert (plan.runs, plan.stays, plan.unknown) == (["mail", "booked"], ["pay"], ["gone"])
    page = operator.get(page_of(receipt)).content.decode()
    for text in (
        "<code>mail</code></bdi> runs", "<code>booked</code></bdi> runs",
        "<code>pay</code></bdi> is done and does not run again",
        "<code>gone</code></bdi> is not known to this process", "paid 1",
    ):  # fmt: skip
        assert text in page, text


@pytest.mark.django_db(databases=["default", "other"])
def test_marks_on_the_database_of_a_handler_and_on_the_receipt_count(operator, handler):
    handler("stripe", "*", name="pay")(lambda event: None)
    handler("stripe", "*", name="book", using="other")(lambda event: None)
    receipt = make(handlers=["pay", "book"], last_handler="pay", result="paid 2")
    insert_checkpoint("other", receipt.fingerprint, "book", "skipped", "not ours", 2)
    response = operator.get(page_of(receipt))
    assert response.context["plan"].stays == ["pay", "book"]
    page = response.content.decode()
    assert "nothing is left to run" in page
    assert "not ours" in page
    assert "paid 2" in page


def test_a_handler_whose_database_is_not_configured_is_said_and_is_no_error(operator, handler, committing):
    handler("stripe", "*", name="pay")(lambda event: None)
    handler("stripe", "*", name="book", using="nowhere")(lambda event: None)
    receipt = make(handlers=["pay", "book"])
    insert_checkpoint("default", receipt.fingerprint, "pay", "done", "paid 1", 1)
    response = operator.get(page_of(receipt))
    page = response.content.decode()
    assert response.status_code == 200
    assert "The checkpoints on the database “nowhere” could not be read." in page
    assert "paid 1" in page
    expected = "Nothing was done: the database refused it, the log says why."
    assert messages_of(committing(press, operator, receipt)) == [("error", expected)]
    other = make(handlers=["pay"])
    told = messages_of(committing(operator.post, LIST, selection(operator, receipt, other), follow=True))
    assert ("error", "1 could not be written; the log says why.") in told
    receipt.refresh_from_db()
    other.refresh_from_db()
    assert (receipt.status, receipt.attempts) == ("dead", 3)
    assert LogEntry.objects.filter(object_id=str(receipt.pk)).count() == 0


def test_a_source_that_this_process_has_not_is_said_and_has_no_button(operator):
    receipt = make(source="elsewhere")
    page = operator.get(page_of(receipt)).content.decode()
    assert "has no source “elsewhere”" in page
    assert "Retry now" not in page


def test_attempts_are_shown_the_newest_last_and_bounded(viewer):
    receipt = make()
    WebhookAttempt.objects.bulk_create(
        WebhookAttempt(
            receipt=receipt, number=number, trigger="sweeper", outcome="failed", error_class="builtins.ValueError",
            message=f"message {number}.", traceback=f"start {number}." + "x" * 20_000 + f"end {number}.",
            started_at=timezone.now(), duration_ms=12,
        )
        for number in range(1, 61)
    )  # fmt: skip
    response = viewer.get(page_of(receipt))
    page = response.content.decode()
    assert [row["number"] for row in response.context["attempts"]] == list(range(11, 61))
    assert "Only the newest 50 attempts are shown." in page
    assert page.index("message 11.") < page.index("message 60.")
    assert "message 10." not in page
    assert "end 60." in page
    assert "start 60." not in page
    assert len(response.content) < 600_000


# -- the button --------------------------------------------------------------------------------------------------------


def test_the_button_runs_it_once_and_everything_is_written_down(operator, pay, committing):
    receipt = make()
    form = Forms(operator.get(page_of(receipt)).content.decode()).fields
    assert form["shown"] == [f"{receipt.pk}:dead:3"]
    answer = committing(press, operator, receipt, reason="the bank is back")
    assert answer.redirect_chain == [(page_of(receipt), 302)]
    fresh = WebhookReceipt.objects.get(pk=receipt.pk)
    assert (fresh.status, fresh.attempts, fresh.excused, pay) == ("processed", 4, 3, [4])
    attempt = WebhookAttempt.objects.get(receipt=receipt)
    assert (attempt.number, attempt.trigger, attempt.actor, attempt.outcome) == (4, "admin", "otto", "processed")
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id, entry.action_flag) == ("otto", str(receipt.pk), 2)
    assert "the bank is back" in entry.get_change_message()
    history = operator.get(f"{LIST}{receipt.pk}/history/").content.decode()
    assert "the bank is back" in history


def test_a_double_click_and_a_stale_page_do_it_once_and_say_so(operator, pay, committing):
    receipt = make()
    committing(press, operator, receipt)
    answer = committing(press, operator, receipt)
    ((level, text),) = messages_of(answer)[-1:]
    assert level == "warning"
    assert "moved on since the page was shown" in text
    assert pay == [4]
    assert LogEntry.objects.count() == 1


def test_a_second_click_does_not_retry_what_failed_again(operator, handler, committing):
    runs = []

    @handler("stripe", "*", name="pay")
    def pay(event):
        runs.append(event.attempt)
        raise GiveUp("never")

    receipt = make()
    answer = committing(press, operator, receipt)
    fresh = WebhookReceipt.objects.get(pk=receipt.pk)
    assert (fresh.status, fresh.attempts) == ("dead", 4)
    assert messages_of(answer)[0][0] == "success"  # said before the commit, inside the transaction of the test
    committing(press, operator, receipt)
    committing(operator.post, LIST, {**selection(operator, receipt), "shown": f"{receipt.pk}:dead:3"})
    assert runs == [4]
    committing(press, operator, fresh)
    assert runs == [4, 5]


@pytest.mark.parametrize(
    "shown", ["", "x", "1", "1:dead", "a:b:c", "1:dead:३", "1:dead:-3", "9" * 4000 + ":dead:3", "\0"]
)
def test_a_form_that_shows_nothing_readable_does_nothing(operator, pay, committing, shown):
    receipt = make()
    for data in ({"shown": shown}, {}):
        answer = committing(operator.post, f"{LIST}{receipt.pk}/retry/", data, follow=True)
        assert messages_of(answer)[0][0] == "warning"
    assert pay == []


@pytest.mark.parametrize("status", ["received", "processing", "processed", "quarantined", "ignored", "discarded"])
def test_only_failed_and_dead_ones_are_retried(operator, pay, committing, status):
    receipt = make(status=status)
    answer = committing(press, operator, receipt)
    assert messages_of(answer) == [("warning", "Nothing was done: only failed and dead receipts can be retried.")]
    receipt.refresh_from_db()
    assert (receipt.status, pay) == (status, [])


def test_a_failed_one_that_is_not_due_yet_is_run_now(operator, pay, committing):
    receipt = make(status="failed", reason="", due_at=timezone.now() + timedelta(hours=1), processed_at=None)
    committing(press, operator, receipt)
    receipt.refresh_from_db()
    assert (receipt.status, pay) == ("processed", [4])


def test_a_source_that_is_not_here_is_left_alone(operator, committing):
    receipt = make(source="elsewhere")
    answer = committing(press, operator, receipt)
    assert messages_of(answer) == [("error", "Nothing was done: this process has no source “elsewhere”.")]
    receipt.refresh_from_db()
    assert receipt.status == "dead"


def test_nothing_runs_when_the_transaction_is_rolled_back(operator, pay, django_capture_on_commit_callbacks):
    receipt = make()
    with django_capture_on_commit_callbacks() as callbacks:
        press(operator, receipt)
    assert len(callbacks) == 1
    assert pay == []


def test_the_audit_and_the_change_stand_or_fall_together(operator, pay, monkeypatch, committing):
    receipt = make()

    def refuse(self, *args, **kwargs):
        raise OperationalError("the disk is full")

    model_admin = admin.site._registry[WebhookReceipt]
    monkeypatch.setattr(type(model_admin), "log_change", refuse)
    answer = committing(press, operator, receipt)
    assert messages_of(answer)[0][0] == "error"
    receipt.refresh_from_db()
    assert (receipt.status, pay) == ("dead", [])


@pytest.mark.django_db(transaction=True)
class TestReal:
    """Without a transaction around the test, as in a server."""

    def test_the_message_says_how_the_run_ended(self, handler):
        client, outcome = person("otto", "view_webhookreceipt", "retry_webhookreceipt"), []

        @handler("stripe", "*", name="pay")
        def pay(event):
            if outcome:
                raise outcome[0]

        assert messages_of(press(client, make())) == [("success", "It ran: processed.")]
        outcome.append(GiveUp("never"))
        ((level, text),) = messages_of(press(client, make()))
        assert (level, text.partition(".")[0]) == ("error", "It ran and did not work: dead")
        outcome[0] = ValueError("again")
        ((level, text),) = messages_of(press(client, make()))
        assert (level, text.partition(".")[0]) == ("error", "It ran and did not work: failed")

    def test_a_run_that_cannot_be_begun_stays_due(self, handler, monkeypatch):
        client, receipt = person("otto", "view_webhookreceipt", "retry_webhookreceipt"), make()

        def broken(*args):
            raise RuntimeError("no")

        monkeypatch.setattr("django_webhook_guard.processing.run", broken)
        ((level, text),) = messages_of(press(client, receipt))
        assert level == "warning"
        assert "webhook_sweep brings it" in text
        receipt.refresh_from_db()
        assert receipt.status == "received"
        assert receipt.due_at <= timezone.now() + timedelta(seconds=5)

    def test_under_atomic_requests_it_runs_after_the_commit(self, handler):
        client, receipt = person("otto", "view_webhookreceipt", "retry_webhookreceipt"), make()
        states = []

        @handler("stripe", "*", name="pay", atomic=False)
        def pay(event):
            states.append((connection.in_atomic_block, LogEntry.objects.count()))

        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            ((level, text),) = messages_of(press(client, receipt))
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
        receipt.refresh_from_db()
        assert (receipt.status, states) == ("processed", [(False, 1)])
        assert (level, text) == ("success", "Made due. It runs as soon as this request is saved.")

    def test_two_people_press_at_once(self, handler):
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            pytest.skip("threads share the one connection of SQLite in memory")
        runs, receipt = [], make()
        clients = [person(name, "view_webhookreceipt", "retry_webhookreceipt") for name in ("a", "b", "c", "d")]
        handler("stripe", "*", name="pay")(lambda event: runs.append(event.attempt))
        barrier = threading.Barrier(len(clients))

        def go(client):
            try:
                barrier.wait(10)
                client.post(f"{LIST}{receipt.pk}/retry/", button(receipt))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=go, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert runs == [4]
        assert LogEntry.objects.count() == 1


# -- the action on the list --------------------------------------------------------------------------------------------


def test_the_action_makes_due_runs_and_reports(operator, pay, committing):
    dead, failed, done, elsewhere = make(), make(status="failed"), make(status="processed"), make(source="elsewhere")
    answer = committing(operator.post, LIST, selection(operator, dead, failed, done, elsewhere), follow=True)
    told = messages_of(answer)
    assert told[0][0] == "success"
    assert "2 receipts were made due." in told[0][1]
    assert ("warning", "1 was skipped: it is neither failed nor dead.") in told
    assert ("warning", "1 was skipped: this process has no source “elsewhere”.") in told
    statuses = dict(WebhookReceipt.objects.values_list("pk", "status"))
    assert statuses == {dead.pk: "processed", failed.pk: "processed", done.pk: "processed", elsewhere.pk: "dead"}
    assert Effect.objects.count() == 2
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == {str(dead.pk), str(failed.pk)}
    assert set(WebhookAttempt.objects.values_list("actor", "trigger")) == {("otto", "admin")}


def test_the_action_leaves_alone_what_moved_on_since_the_list_was_shown(operator, pay, committing):
    receipt = make()
    form = selection(operator, receipt)
    committing(operator.post, LIST, form)
    WebhookReceipt.objects.filter(pk=receipt.pk).update(status="dead")  # as if it had failed again
    answer = committing(operator.post, LIST, form, follow=True)
    assert ("warning", "1 was skipped: it moved on since the list was shown.") in messages_of(answer)
    assert ("warning", "No receipt was made due.") in messages_of(answer)
    assert pay == [4]


def test_the_action_without_what_was_shown_does_nothing(operator, pay, committing):
    receipt = make()
    form = {"action": "retry_selected", "_selected_action": [str(receipt.pk)]}
    committing(operator.post, LIST, form)
    committing(operator.post, LIST, {**form, "shown_at": ["yesterday", "\0"], "shown": ["::"]})
    assert pay == []


def test_a_time_without_a_zone_is_as_if_none_was_shown(operator, pay, committing):
    make()
    form = {"action": "retry_selected", "select_across": "1", "_selected_action": ["1"]}
    for shown_at in ("2999-01-01", "2999-01-01T00:00:00"):
        told = messages_of(committing(operator.post, LIST, {**form, "shown_at": shown_at}, follow=True))
        assert ("warning", "1 was skipped: it moved on since the list was shown.") in told
    assert pay == []
    aware = "2026-01-01T00:00:00+00:00"
    assert retrying.read_shown((), ["2999-01-01", aware]).at == datetime(2026, 1, 1, tzinfo=UTC)


NOTHING_SELECTED = "Items must be selected in order to perform actions on them. No items have been changed."
NO_NUMBERS = ["", "abc", "9" * 20, str(2**63), "9" * 5000, "-1", "1.5", " 1", "1\n", "1e3", "१", "\0", "💩"]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("more", [{}, {"index": "0"}])
def test_a_selection_of_no_number_is_a_selection_of_nothing(operator, pay, committing, value, more):
    make()
    form = {"action": "retry_selected", "_selected_action": [value], **more}
    assert messages_of(committing(operator.post, LIST, form, follow=True)) == [("warning", NOTHING_SELECTED)]


def test_what_is_no_number_in_a_selection_does_not_harm_the_rest(operator, pay, committing):
    receipt = make()
    form = selection(operator, receipt)
    form["_selected_action"] += [*NO_NUMBERS, str(2**63 - 1), "0", "00"]
    told = messages_of(committing(operator.post, LIST, form, follow=True))
    assert "1 receipt was made due." in told[0][1]
    assert pay == [4]


def test_a_selection_of_all_takes_those_on_other_pages_once(operator, pay, committing, monkeypatch):
    monkeypatch.setattr(admin.site._registry[WebhookReceipt], "list_per_page", 2)
    receipts = [make() for _ in range(5)]
    other = make(status="processed")
    form = selection(operator, receipts[0], across=True, query="?status=dead")
    with CaptureQueriesContext(connection) as queries:
        committing(operator.post, LIST + "?status=dead", form)
    assert set(WebhookReceipt.objects.exclude(pk=other.pk).values_list("status", flat=True)) == {"processed"}
    read = [query["sql"].replace("`", '"') for query in queries if '"handlers"' in query["sql"].replace("`", '"')]
    assert read
    first = next(sql for sql in read if '"budget_from"' in sql and "SELECT" in sql)
    assert '"body"' not in first
    assert '"headers"' not in first
    WebhookReceipt.objects.filter(pk__in=[each.pk for each in receipts]).update(status="dead")
    answer = committing(operator.post, LIST + "?status=dead", form, follow=True)
    assert ("warning", "5 were skipped: they moved on since the list was shown.") in messages_of(answer)
    assert len(pay) == 5


@pytest.mark.django_db(transaction=True)
class TestBounds:
    def test_twenty_run_in_the_request_and_the_sweeper_brings_the_rest(self, pay):
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        receipts = [make() for _ in range(23)]
        told = messages_of(client.post(LIST, selection(client, *receipts), follow=True))
        assert told == [
            ("success", "23 receipts were made due."),
            ("success", "20 ran, now processed."),
            ("info", "3 of them did not run in this request; webhook_sweep brings them."),
        ]
        assert WebhookReceipt.objects.filter(status="received").count() == 3
        assert set(WebhookReceipt.objects.filter(status="processed").values_list("pk", flat=True)) == {
            receipt.pk for receipt in receipts[:20]
        }
        call_command("webhook_sweep")
        assert not WebhookReceipt.objects.exclude(status="processed").exists()
        assert len(pay) == 23

    def test_a_deferred_source_is_left_to_its_workers(self, pay, sources):
        woken.clear()
        sources(stripe={"PROCESSING": "deferred", "DISPATCHER": "tests.test_deferred.wake"})
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        receipts = [make() for _ in range(2)]
        told = messages_of(client.post(LIST, selection(client, *receipts), follow=True))
        assert told == [("success", "2 receipts were made due."), ("info", "Workers were woken for 2 of them.")]
        assert pay == []
        assert sorted(woken) == sorted(receipt.pk for receipt in receipts)
        assert [work.run(number) for number in woken] == ["processed", "processed"]

    def test_a_deferred_source_without_a_dispatcher_is_left_to_the_sweeper(self, pay, sources):
        sources(stripe={"PROCESSING": "deferred"})
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        told = messages_of(client.post(LIST, selection(client, make()), follow=True))
        assert told[1] == ("info", "1 of them did not run in this request; webhook_sweep brings it.")
        assert pay == []
        call_command("webhook_sweep")
        assert len(pay) == 1

    def test_the_runs_end_when_time_is_up(self, pay, monkeypatch):
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        receipts = [make() for _ in range(3)]
        form = selection(client, *receipts)
        clock = iter([0, 1, 1, 1, 5, 21, 22])
        monkeypatch.setattr(retrying, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        monkeypatch.setattr("django_webhook_guard.processing.run", lambda *args: runs.append(args))
        runs = []
        told = messages_of(client.post(LIST, form, follow=True))
        assert runs == [(receipts[0].pk, "admin", "otto")]
        assert ("success", "3 receipts were made due.") in told

    def test_what_time_does_not_reach_is_said(self, pay, monkeypatch):
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        form = selection(client, *[make() for _ in range(3)])
        monkeypatch.setattr(retrying, "SECONDS", -1)
        told = messages_of(client.post(LIST, form, follow=True))
        assert ("warning", "3 were not reached in time: select them again.") in told
        assert pay == []

    def test_one_that_cannot_be_written_does_not_stop_the_others(self, pay, monkeypatch):
        client = person("otto", "view_webhookreceipt", "retry_webhookreceipt")
        receipts = [make() for _ in range(3)]
        form, retry = selection(client, *receipts), operations.retry

        def broken(receipt, **kwargs):
            if receipt.pk == receipts[1].pk:
                raise OperationalError("no")
            return retry(receipt, **kwargs)

        monkeypatch.setattr(operations, "retry", broken)
        told = messages_of(client.post(LIST, form, follow=True))
        assert ("error", "1 could not be written; the log says why.") in told
        assert len(pay) == 2


# -- words and times ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds ago"),
        (1, "1 second ago"),
        (59, "59 seconds ago"),
        (60, "1\xa0minute ago"),
        (3 * 86_400, "3\xa0days ago"),
        (-90, "in 1\xa0minute"),
    ],
)
def test_relative_times(seconds, words):
    now = timezone.now()
    assert columns.relative(now - timedelta(seconds=seconds), now) == words


def test_the_own_addresses_have_names():
    assert reverse("admin:django_webhook_guard_webhookreceipt_retry", args=[5]) == f"{LIST}5/retry/"
    assert reverse("admin:django_webhook_guard_webhookreceipt_body", args=[5]) == f"{LIST}5/body/"


def test_the_model_admin_has_no_system_check_errors():
    assert admin.site._registry[WebhookReceipt].check() == []
    assert not admin.site.is_registered(WebhookAttempt)
    assert not admin.site.is_registered(WebhookCheckpoint)


# -- release and discard -----------------------------------------------------------------------------------------------


def press_on(client, receipt, name, **more):
    return client.post(f"{LIST}{receipt.pk}/{name}/", button(receipt, **more), follow=True)


@pytest.fixture
def keeper():
    return person(
        "keeper",
        *(f"{name}_webhookreceipt" for name in ("view", "release", "discard")),
    )


@pytest.fixture
def held(pay):
    return make(status="quarantined", reason="schema", result="does not fit the schema: amount: invalid", attempts=0)


def test_a_held_receipt_says_why_and_is_released_once(keeper, held, committing):
    page = keeper.get(page_of(held)).content.decode()
    assert "Held for a person" in page and "amount: invalid" in page and "Release and run" in page
    assert "Retry now" not in page
    first = committing(press_on, keeper, held, "release", reason="looked at it")
    second = committing(press_on, keeper, held, "release")
    assert messages_of(first) == [("success", "Made due. It runs as soon as this request is saved.")]
    assert messages_of(second)[0][0] == "warning"
    held.refresh_from_db()
    assert (held.status, held.attempts, held.result) == ("processed", 1, "paid")
    entry = LogEntry.objects.get()
    assert "Released after status quarantined, attempt 0. Reason: looked at it" in entry.get_change_message()


def test_a_held_receipt_is_discarded_and_runs_no_more(keeper, held, committing):
    response = committing(press_on, keeper, held, "discard", reason="a test of theirs")
    assert messages_of(response) == [("success", "Discarded. Its event, delivered again, is answered as a duplicate.")]
    held.refresh_from_db()
    assert (held.status, held.attempts, held.due_at) == ("discarded", 0, None)
    assert held.processed_at is not None
    assert "Discarded after status quarantined" in LogEntry.objects.get().get_change_message()
    assert "Release and run" not in keeper.get(page_of(held)).content.decode()


@pytest.mark.parametrize("name", ["release", "discard", "retry"])
def test_each_act_has_a_permission_of_its_own(held, name):
    others = {"retry", "release", "discard"} - {name}
    client = person("other", "view_webhookreceipt", *(f"{each}_webhookreceipt" for each in others))
    assert press_on(client, held, name).status_code == 403
    held.refresh_from_db()
    assert held.status == "quarantined"


def test_what_is_at_work_or_finished_is_not_discarded(keeper, pay, committing):
    for status in ("processing", "processed", "ignored", "discarded"):
        receipt = make(status=status)
        response = committing(press_on, keeper, receipt, "discard")
        assert messages_of(response)[0][0] == "warning"
        receipt.refresh_from_db()
        assert receipt.status == status


def test_the_actions_release_and_discard_what_the_list_showed(keeper, pay, committing):
    receipts = [make(status="quarantined", reason="late", attempts=0) for _ in range(3)]
    for action, chosen in (("release_selected", receipts[:1]), ("discard_selected", receipts[1:])):
        form = {**selection(keeper, *chosen), "action": action}
        page = keeper.post(LIST, form).content.decode()
        assert "about to be" in page
        form = {**Forms(page).fields, "reason": "tests of theirs"}
        committing(keeper.post, LIST, form)
    statuses = [WebhookReceipt.objects.get(pk=receipt.pk).status for receipt in receipts]
    assert statuses == ["processed", "discarded", "discarded"]
    assert "Reason: tests of theirs" in LogEntry.objects.first().get_change_message()


def test_a_replay_leads_to_the_receipt_that_took_effect(keeper, handler, post):
    handler("partner", "*", name="h")(lambda event: None)
    signed = {"nonce": "one", "at": int(time.time())}
    post("partner", {"type": "x"}, key="a", **signed)
    post("partner", {"type": "x"}, key="b", **signed)
    original, replay = WebhookReceipt.objects.order_by("pk")
    page = keeper.get(page_of(replay)).content.decode()
    assert f'<a href="{page_of(original)}">It took effect as #{original.pk}.</a>' in page
    assert "once more" in page
    WebhookReceipt.objects.filter(pk=original.pk).update(status="dead")
    assert f"It first came as #{original.pk}, which is dead." in keeper.get(page_of(replay)).content.decode()
    original.delete()
    assert "first came as" in keeper.get(page_of(replay)).content.decode()


def test_a_viewer_reads_why_it_is_held_and_has_no_button(viewer, held):
    page = viewer.get(page_of(held)).content.decode()
    assert "Held for a person" in page
    assert "formaction" not in page


def test_the_page_names_reply_item_and_what_is_still_to_run(viewer, pay):
    reply = Reply("<script>", 201, "text/html").kept()
    processed = make(status="processed", reply=reply, item=2)
    page = viewer.get(page_of(processed)).content.decode()
    assert "201, 8 bytes of text/html" in page and "item 3" in page and "&lt;script&gt;" not in page
    failed = make(status="failed", handlers=["pay", "other"])
    insert_checkpoint("default", failed.fingerprint, "pay", "done", "", 1)
    page = viewer.get(page_of(failed)).content.decode()
    assert "Still to run: <bdi><code>other</code></bdi></p>" in page


def test_a_used_nonce_with_another_body_is_not_called_the_same_message(keeper, handler, post):
    handler("partner", "*", name="h")(lambda event: None)
    for amount in (1, 2):
        post("partner", {"type": "x", "amount": amount}, nonce="one")
    reused = WebhookReceipt.objects.get(reason="key_reused")
    page = keeper.get(page_of(reused)).content.decode()
    assert "same signed message" not in page
    assert "another body" in page and "It took effect as #" in page


def test_a_handler_under_its_new_name_is_not_waited_for(viewer, handler):
    handler("stripe", "*", name="new", formerly="old")(lambda event: None)
    receipt = make(status="failed", handlers=["old", "pay"])
    insert_checkpoint("default", receipt.fingerprint, "new", "done", "", 1)
    page = viewer.get(page_of(receipt)).content.decode()
    assert "Still to run: <bdi><code>pay</code></bdi></p>" in page


def test_releasing_from_the_list_asks_once_more_and_names_replays(keeper, pay, committing):
    receipts = [make(status="quarantined", reason=reason, attempts=0) for reason in ("late", "replayed")]
    form = {**selection(keeper, *receipts), "action": "release_selected"}
    page = committing(keeper.post, LIST, form).content.decode()
    assert "2 selected receipts are about to be released" in page and "1 of them" in page
    assert pay == []
    committing(keeper.post, LIST, {**Forms(page).fields, "reason": "asked the sender"})
    assert len(pay) == 2
    assert "Reason: asked the sender" in LogEntry.objects.first().get_change_message()

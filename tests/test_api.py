"""The operators' REST interface: who may what, what is shown, and that nothing is done twice or blindly."""

import json
from base64 import b64encode
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection
from django.http import UnreadablePostError
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path
from django.utils import timezone
from rest_framework.exceptions import ParseError
from rest_framework.filters import SearchFilter
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import PageNumberPagination
from rest_framework.parsers import FormParser
from rest_framework.permissions import AllowAny
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.versioning import NamespaceVersioning
from rest_framework.views import APIView

from django_webhook_guard import counts, operations
from django_webhook_guard.api import answering, views, wire
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models import WebhookAttempt, WebhookBatch, WebhookEffect, WebhookReceipt
from django_webhook_guard.statements import insert_checkpoint
from django_webhook_guard.text import storable
from tests.test_admin import make
from tests.test_deferred import woken
from tests.test_scope import BODY

pytestmark = pytest.mark.django_db(databases=["default", "other"])

URL = "/api/webhooks/"
urlpatterns = [path("api/webhooks/", include("django_webhook_guard.api.urls"))]
ACTS = ("retry", "rerun", "release", "discard", "settle")
MORE = {"rerun": {"handlers": None}, "settle": {"handler": "pay", "name": "charge", "happened": False}}
#: The state in which a receipt can be acted on.
STATES = {"release": "quarantined", "rerun": "processed"}


def own(request):
    """Users see the receipts of the tenant that they are named after, superusers all."""
    every = WebhookReceipt.objects.all()
    return every if request.user.is_superuser else every.filter(tenant=request.user.get_username())


def broken(request):
    raise LookupError


@pytest.fixture(autouse=True)
def _urls(settings):
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def limited(settings):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_api.own"}


def person(name, *acts):
    user = User.objects.create_user(name, password="x")
    user.user_permissions.set(Permission.objects.filter(codename__in=[f"{act}_webhookreceipt" for act in acts]))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer():
    return person("vera", "view")


@pytest.fixture
def operator():
    return person("otto", "view", *ACTS)


def at(receipt, name=""):
    return f"{URL}receipts/{receipt.pk}/{name}{'/' if name else ''}"


def wish(receipt, act, **more):
    return {"status": receipt.status, "attempts": receipt.attempts, **MORE.get(act, {}), **more}


def send(client, receipt, act, **more):
    return client.post(at(receipt, act), wish(receipt, act, **more), content_type="application/json")


def unknown_effect(receipt, **fields):
    """An effect of which nobody knows whether it happened."""
    values = {
        "digest": operations.effect_digest(receipt.fingerprint, "pay", "charge"),
        "fingerprint": receipt.fingerprint,
        "handler": "pay",
        "name": "charge",
        "state": "unknown",
        "key": "k" * 64,
        "calls": 1,
        "attempt": 3,
        "started_at": timezone.now(),
        "key_since": timezone.now(),
        **fields,
    }
    return WebhookEffect.objects.create(**values)


def ready(act, **fields):
    """A receipt in a state for an act."""
    receipt = make(status=STATES.get(act, "dead"), **fields)
    if act == "settle":
        unknown_effect(receipt)
    return receipt


# -- who may what ------------------------------------------------------------------------------------------------------


def people(act):
    """Who → their client, and the answers to seeing and to acting on acme's receipt."""
    root = Client()
    root.force_login(User.objects.create_superuser("root", password="x"))
    return {
        "anonymous": (Client(), 403, 403),
        "staff without": (person("nobody"), 403, 403),
        "act-only": (person("blind", act), 403, 403),
        "view-only": (person("acme", "view"), 200, 403),
        "another act's": (person("other", "view", next(each for each in ACTS if each != act)), 404, 403),
        "tenant's": (person("globex", "view", act), 404, 404),
        "superuser": (root, 200, 200),
    }


@pytest.mark.parametrize("act", ACTS)
def test_each_act_has_a_permission_of_its_own(limited, act):
    receipt = ready(act, tenant="acme")
    for who, (client, seen, done) in people(act).items():
        assert client.get(at(receipt)).status_code == seen, who
        assert client.get(at(receipt, "attempts")).status_code == seen, who
        assert client.get(at(receipt, "body")).status_code == seen, who
        assert send(client, receipt, act).status_code == done, who
        assert WebhookReceipt.objects.filter(status=receipt.status).exists() is (done != 200), who


@pytest.mark.parametrize("act", ACTS)
def test_a_tenants_own_staff_acts_on_its_own(limited, act):
    receipt = ready(act, tenant="acme")
    assert send(person("acme", "view", act), receipt, act).status_code == 200


def test_retry_only_is_no_other_act():
    client = person("rita", "view", "retry")
    for act in ACTS:
        assert send(client, ready(act), act).status_code == (200 if act == "retry" else 403), act


@pytest.mark.parametrize("name", ["receipts/", "receipts/1/", "receipts/1/body/", "receipts/1/attempts/", "stats/"])
def test_a_stranger_learns_nothing(client, name):
    make()
    with CaptureQueriesContext(connection) as queries:
        assert client.get(URL + name).status_code == 403
    assert not any("webhookreceipt" in query["sql"] for query in queries)


def test_the_projects_authentication_counts(settings, viewer):
    User.objects.create_superuser("root", password="secret")
    assert Client().get(f"{URL}receipts/", headers={"Authorization": "Basic cm9vdDpzZWNyZXQ="}).status_code == 200
    assert Client().get(f"{URL}receipts/", headers={"Authorization": "Basic cm9vdDp3cm9uZw=="}).status_code == 403


def test_an_act_in_a_session_has_csrf_protection(operator):
    receipt = make()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="otto"))
    assert send(strict, receipt, "retry").status_code == 403
    assert WebhookReceipt.objects.get().status == "dead"


def test_a_receipt_is_read_only(operator):
    receipt = make()
    for method in (operator.put, operator.patch, operator.delete, operator.options, operator.post):
        assert method(at(receipt)).status_code == 405
    assert operator.post(f"{URL}receipts/").status_code == 405
    assert operator.get(at(receipt, "retry")).status_code == 405


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_of_another_tenant_nothing_can_be_seen_counted_or_told_apart(limited):
    acme = person("acme", "view", *ACTS)
    theirs = make(tenant="globex", event_id="evt_secret", object_key="obj", source="github", due_at=timezone.now())
    theirs_held = make(tenant="globex", status="quarantined", source="github")
    for name, value in {
        "event_id": "evt_secret",
        "reference": theirs.reference,
        "status": "dead",
        "source": "github",
    }.items():
        assert acme.get(f"{URL}receipts/", {name: value}).json()["results"] == []
    for act in ACTS:
        here, nowhere = send(acme, theirs, act), send(acme, WebhookReceipt(pk=theirs.pk + 999, status="dead"), act)
        assert (here.status_code, here.content) == (404, nowhere.content) == (404, nowhere.content), act
    stats = acme.get(f"{URL}stats/").json()
    assert (stats["sources"], stats["dead"], stats["quarantined"], stats["due"], stats["oldest_due"]) == (
        [],
        0,
        0,
        0,
        None,
    )
    assert all(row["week"] == 0 for row in stats["statuses"])
    assert {row.status for row in WebhookReceipt.objects.all()} == {theirs.status, theirs_held.status}


def test_the_hook_is_given_the_user_that_rest_framework_knows(limited):
    person("acme", "view")
    mine, _theirs = make(tenant="acme"), make(tenant="globex")
    basic = {"Authorization": "Basic " + b64encode(b"acme:x").decode()}
    client = Client()
    assert [row["id"] for row in client.get(f"{URL}receipts/", headers=basic).json()["results"]] == [mine.pk]
    assert client.get(f"{URL}stats/", headers=basic).json()["dead"] == 1


def test_a_cursor_leads_into_no_other_tenants_receipts(limited, admin_client):
    now = timezone.now()
    theirs = [make(tenant="globex", received_at=now - timedelta(minutes=number)) for number in range(3)]
    url = admin_client.get(f"{URL}receipts/?limit=1").json()["next"]
    assert admin_client.get(url).json()["results"][0]["id"] == theirs[1].pk
    assert person("acme", "view").get(url).json() == {"next": None, "previous": None, "results": []}


def test_a_replay_of_anothers_receipt_does_not_name_it(limited, admin_client):
    theirs = make(tenant="globex")
    held = make(tenant="acme", status="quarantined", reason="replayed", result=f"first came as {theirs.fingerprint}")
    answer = person("acme", "view").get(at(held))
    assert (answer.json()["original"], answer.json()["result"]) == (None, "")
    assert theirs.fingerprint[:16] not in answer.content.decode()
    assert admin_client.get(at(held)).json()["original"] == theirs.pk


def test_a_body_that_brought_others_events_is_not_handed_out(limited, sources, admin_client):
    sources(stripe={"PROVIDER": "tests.test_batches.MANY"})
    moment, body = timezone.now(), b'[{"id": "one"}, {"id": "two"}]'
    batch = WebhookBatch.objects.create(
        source="stripe", received_at=moment, items=2, body=body, body_digest="d" * 64, body_size=len(body)
    )
    about = {"batch": batch, "body": None, "received_at": moment, "body_size": len(body)}
    mine, _theirs = make(tenant="acme", item=0, **about), make(tenant="globex", item=1, **about)
    acme = person("acme", "view")
    shown = acme.get(at(mine)).json()
    assert (shown["payload"], shown["raw_body"]) == ({"state": "shown", "data": {"id": "one"}}, False)
    assert acme.get(at(mine, "body")).status_code == 403
    assert admin_client.get(at(mine, "body")).content == body


def test_a_hook_that_fails_shows_nothing(settings, operator, caplog):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_api.broken"}
    receipt = make()
    assert operator.get(f"{URL}receipts/").json()["results"] == []
    assert operator.get(at(receipt)).status_code == send(operator, receipt, "retry").status_code == 404
    assert operator.get(f"{URL}stats/").json()["dead"] == 0
    assert "RECEIPTS_FOR failed: nobody sees a receipt" in caplog.messages


# -- the list ----------------------------------------------------------------------------------------------------------


def numbers(client, **query):
    return [row["id"] for row in client.get(f"{URL}receipts/", query).json()["results"]]


def test_the_list_shows_neither_body_nor_headers_and_reads_neither(viewer):
    receipt = make(tenant="acme", object_key="cus_1")
    with CaptureQueriesContext(connection) as queries:
        answer = viewer.get(f"{URL}receipts/")
    (row,) = answer.json()["results"]
    assert (row["id"], row["reference"], row["source"], row["tenant"]) == (
        receipt.pk, receipt.reference, "stripe", "acme",
    )  # fmt: skip
    assert not {"body", "headers", "payload", "result"} & set(row)
    about = [query["sql"].replace("`", '"') for query in queries if '"received_at"' in query["sql"].replace("`", '"')]
    assert about
    assert not any(f'"{name}"' in sql for sql in about for name in ("body", "headers", "handlers", "result"))
    assert (answer["Cache-Control"], answer["X-Content-Type-Options"]) == ("no-store", "nosniff")


def test_filters_find_and_leave_out(viewer):
    now = timezone.now()
    one = make(tenant="acme", object_key="cus_1", status="failed", event_type="a", received_at=now - timedelta(hours=2))
    two = make(source="github", event_type="b", received_at=now - timedelta(hours=1))
    hour, since = (now - timedelta(minutes=90)).isoformat(), (now - timedelta(days=9)).isoformat()
    assert numbers(viewer) == [two.pk, one.pk]
    assert numbers(viewer, source="stripe") == numbers(viewer, status="failed") == [one.pk]
    assert numbers(viewer, source="stripe", object="cus_1") == numbers(viewer, event_id=one.event_id) == [one.pk]
    assert numbers(viewer, tenant="acme", since=since) == numbers(viewer, type="a", since=since) == [one.pk]
    assert numbers(viewer, until=hour) == numbers(viewer, reference=one.reference) == [one.pk]
    assert numbers(viewer, since=hour) == numbers(viewer, reference=two.fingerprint) == [two.pk]
    assert numbers(viewer, source="github", status="failed") == numbers(viewer, source="unheard-of") == []


def test_a_source_finds_what_it_received_under_former_names(viewer, sources):
    sources(stripe={"FORMERLY": ["shop"]})
    receipt = make(source="shop")
    assert numbers(viewer, source="stripe") == numbers(viewer, source="shop") == [receipt.pk]


@pytest.mark.parametrize(
    "query",
    [
        {"unheard": "1"},
        {"format": "api"},
        {"source": ["a", "b"]},
        {"status": "lost"},
        {"status": "x" * 10_000},
        {"event_id": "x" * 10_000},
        {"event_id": "a\0b"},
        {"source": "\0"},
        {"event_id": ""},
        {"object": "cus_1"},
        {"type": "a"},
        {"tenant": "acme"},
        {"since": "yesterday"},
        {"since": "2026-12-01T12:00:00"},
        {"since": "2026-13-01T12:00:00Z"},
        {"since": "0001-01-01T00:00:00+14:00"},
        {"until": "9999-12-31T23:59:59-14:00"},
        {"reference": "g" * 16},
        {"reference": "a" * 15},
        {"reference": "a" * 16 + "\n"},
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "9" * 2_000},
        {"limit": "many"},
        {"cursor": "n1"},
        {"cursor": "n1-" + "9" * 19},
        {"cursor": "x1-1"},
        {"cursor": "n" + "9" * 60},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_short_words(viewer, query):
    answer = viewer.get(f"{URL}receipts/", query)
    assert answer.status_code == 400
    assert len(answer.content) < 300


@pytest.mark.parametrize(
    "raw",
    [
        "event_id=%ED%A0%80",
        "event_id=%FF%FE",
        "cursor=n99999999999999999-1",
        "limit=٣",
        "since=2026-12-01T12:00:00%2B23:59",
    ],
)
def test_odd_bytes_of_an_address_are_no_error(viewer, raw):
    assert viewer.get(f"{URL}receipts/?{raw}").status_code in (200, 400)


@pytest.mark.parametrize("number", ["9" * 19, "0", "00001", "9223372036854775807"])
@pytest.mark.parametrize("name", ["", "attempts/", "body/"])
def test_a_number_that_no_receipt_has_is_not_found(viewer, number, name):
    assert viewer.get(f"{URL}receipts/{number}0/{name}".replace("10/", "9/")).status_code == 404


@pytest.mark.parametrize("name", ["receipts/1/", "receipts/1/attempts/", "receipts/1/body/", "stats/"])
def test_elsewhere_no_query_parameter_is_known(viewer, name):
    assert viewer.get(f"{URL}{name}?source=stripe").status_code == 400


def walk(client, way, url):
    """Follow a link from page to page; returns the numbers of each."""
    pages = []
    while url:
        answer = client.get(url).json()
        pages.append([row["id"] for row in answer["results"]])
        url = answer[way]
    return pages


def test_pages_hold_each_receipt_once_however_many_came_at_one_moment(viewer):
    now = timezone.now()
    rows = [make(received_at=now - timedelta(minutes=number // 5)) for number in range(12)]
    ordered = [row.pk for row in sorted(rows, key=lambda row: (row.received_at, row.pk), reverse=True)]
    pages = walk(viewer, "next", f"{URL}receipts/?limit=5")
    assert pages == [ordered[:5], ordered[5:10], ordered[10:]]
    last = viewer.get(f"{URL}receipts/?limit=5").json()["next"]
    last = viewer.get(last).json()["next"]
    assert walk(viewer, "previous", last) == [ordered[10:], ordered[5:10], ordered[:5]]


def test_what_comes_meanwhile_moves_no_page(viewer):
    rows = [make(received_at=timezone.now() - timedelta(minutes=number)) for number in range(4)]
    first = viewer.get(f"{URL}receipts/?limit=2&status=dead").json()
    assert first["previous"] is None
    make(received_at=timezone.now())
    second = viewer.get(first["next"]).json()
    assert [row["id"] for row in second["results"]] == [rows[2].pk, rows[3].pk]
    assert second["next"] is None
    assert "status=dead" in second["previous"]
    newer = viewer.get(second["previous"]).json()
    assert [row["id"] for row in newer["results"]] == [rows[0].pk, rows[1].pk]
    assert newer["previous"] is not None  # what came meanwhile


def test_an_empty_page_leads_nowhere(viewer):
    assert viewer.get(f"{URL}receipts/").json() == {"next": None, "previous": None, "results": []}


# -- one receipt -------------------------------------------------------------------------------------------------------


def test_a_receipt_is_shown_with_what_hangs_on_it(viewer, handler):
    handler("stripe", "*", name="pay")(lambda event: None)
    handler("stripe", "*", name="mail")(lambda event: None)
    receipt = make(body=BODY, body_size=len(BODY), handlers=["pay", "mail", "gone"], headers={"user-agent": "Stripe"})
    insert_checkpoint("default", receipt.fingerprint, "pay", "done", "paid", 1)
    unknown_effect(receipt, result="NaN")
    shown = viewer.get(at(receipt)).json()
    assert shown["payload"] == {"state": "shown", "data": json.loads(BODY)}
    assert (shown["headers"], shown["handlers"]) == ({"user-agent": "Stripe"}, ["pay", "mail", "gone"])
    assert [(row["handler"], row["mark"], row["result"]) for row in shown["marks"]] == [("pay", "done", "paid")]
    assert [(row["name"], row["state"], row["result"]) for row in shown["effects"]] == [("charge", "unknown", "NaN")]
    assert shown["retry"] == {"runs": ["mail"], "stays": ["pay"], "unknown": ["gone"], "problem": ""}
    assert (shown["acts"], shown["raw_body"], shown["unread_databases"]) == ([], True, [])


def test_the_acts_are_what_the_user_may_do_to_it_now(operator, viewer):
    assert operator.get(at(make())).json()["acts"] == ["retry", "rerun", "discard", "settle"]
    assert operator.get(at(make(status="quarantined"))).json()["acts"] == ["release", "discard"]
    assert operator.get(at(make(status="processing"))).json()["acts"] == []


def test_attempts_are_the_newest_with_the_end_of_their_tracebacks(viewer, monkeypatch):
    monkeypatch.setattr(views, "ATTEMPTS", 2)
    receipt = make()
    for number in (1, 2, 3):
        WebhookAttempt.objects.create(
            receipt=receipt, number=number, trigger="delivery", outcome="failed", error_class="ValueError",
            message="<script>", traceback="x" * 9_000 + "end", started_at=timezone.now(), duration_ms=5,
        )  # fmt: skip
    found = viewer.get(at(receipt, "attempts")).json()
    assert (found["earlier"], [row["number"] for row in found["results"]]) == (True, [2, 3])
    assert {len(row["traceback"]) for row in found["results"]} == {answering.TRACEBACK}
    assert found["results"][0]["traceback"].endswith("end")
    assert viewer.get(at(make(), "attempts")).json() == {"earlier": False, "results": []}


@pytest.mark.parametrize("more", [[], ["view_webhookreceipt_payload"]])
def test_personal_values_are_for_who_may_see_them(sources, more):
    sources(stripe={"PERSONAL": ["customer.email", "lines.*.name"]})
    client = person("vera", "view")
    User.objects.get(username="vera").user_permissions.add(*Permission.objects.filter(codename__in=more))
    body = b'{"customer": {"email": "ada@example.org"}, "lines": [{"name": "Ada", "n": 1}], "amount": 1.50}'
    receipt = make(body=body)
    shown, raw = client.get(at(receipt)), client.get(at(receipt, "body"))
    assert (b"ada@example.org" in shown.content) is bool(more)
    assert shown.json()["payload"]["data"]["lines"][0] == {"name": "Ada" if more else "•••", "n": 1}
    assert shown.json()["payload"]["state"] == ("shown" if more else "masked")
    assert (shown.json()["raw_body"], raw.status_code) == (bool(more), 200 if more else 403)
    assert (raw.content == body) is bool(more)


@pytest.mark.parametrize("more", [[], ["view_webhookreceipt_payload"]])
def test_a_column_that_holds_a_personal_value_is_masked_too(sources, more):
    sources(stripe={"OBJECT": "customer.email", "PERSONAL": ["customer"]})
    client = person("vera", "view", "retry")
    User.objects.get(username="vera").user_permissions.add(*Permission.objects.filter(codename__in=more))
    receipt = make(object_key="ada@example.org")
    other = make(source="github", object_key="bob@example.org")
    for answer in (client.get(f"{URL}receipts/"), client.get(at(receipt)), send(client, receipt, "retry")):
        assert (b"ada@example.org" in answer.content) is bool(more)
    assert client.get(at(other)).json()["object_key"] == "bob@example.org"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"body": None}, "expired"),
        ({"body": b"ada@example.org"}, "unreadable"),
        ({"body": b"[" * 5_000}, "unreadable"),
        ({"source": "gone"}, "unknown_source"),
        ({"source": "many", "item": 7, "body": b'[{"id": "ada@example.org"}]'}, "unreadable"),
        ({"source": "many", "item": 0, "body": b"5"}, "unreadable"),
    ],
)
def test_why_there_is_no_payload_is_said(viewer, sources, fields, state):
    many = {"PROVIDER": "tests.test_batches.MANY", "SECRETS": ["many-s3cret-0123456789"]}
    sources(stripe={"PERSONAL": ["customer.email"]}, many=many)
    answer = viewer.get(at(make(**fields)))
    assert answer.json()["payload"] == {"state": state, "data": None}
    assert "ada@example.org" not in answer.content.decode()


def test_an_expired_body_cannot_be_had(viewer):
    assert viewer.get(at(make(body=None), "body")).status_code == 404


def test_the_raw_bytes_are_a_file_that_cannot_run(viewer):
    receipt = make(body=b"<script>alert(1)</script>\0\xff")
    answer = viewer.get(at(receipt, "body"))
    assert answer.content == b"<script>alert(1)</script>\0\xff"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == f'attachment; filename="webhook-receipt-{receipt.pk}.bin"'
    assert "sandbox" in answer["Content-Security-Policy"]


# -- hostile content ---------------------------------------------------------------------------------------------------

EVIL = ["</script><script>alert(1)</script>", "\u202egnp.exe", "a\u0000b", "\ud800", "\u2028", "\x1b[2J"]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/json; indent=8", "application/xml"])
def test_hostile_content_is_ascii_json_whatever_is_accepted(viewer, evil, accept):
    receipt = make(body=json.dumps({"id": evil, evil: [evil]}).encode(), headers={"user-agent": storable(evil, 99)})
    answer = viewer.get(at(receipt), headers={"Accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert answer.content.isascii()
    assert not any(byte < 32 for byte in answer.content)
    assert json.loads(answer.content)["payload"]["data"] == {"id": evil, evil: [evil]}


def test_a_large_body_is_not_read_for_an_answer(viewer):
    receipt = make(body=b'{"a": "' + b"x" * 5_000_000 + b'"}', body_size=5_000_009)
    with CaptureQueriesContext(connection) as queries:
        answer = viewer.get(at(receipt))
    assert answer.json()["payload"] == {"state": "too_large", "data": None}
    assert len(answer.content) < 10_000
    columns = [query["sql"].replace("`", '"') for query in queries]
    assert not any('webhookreceipt"."body"' in sql for sql in columns)


def test_deep_content_stays_as_short_as_it_is(viewer):
    body = b'{"a": ' + b"[" * 98 + b"1," * 60_000 + b"1" + b"]" * 98 + b"}"
    answer = viewer.get(at(make(body=body)), headers={"Accept": "application/json; indent=8"})
    assert answer.json()["payload"]["state"] == "shown"
    assert len(answer.content) < 2 * len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{", b"[" * 100_000, b'{"a":' * 90_000, b"\xff", b'{"attempts": NaN}', b"1" * 5_000,
        b'{"status": "dead", "attempts": 1e400}', b'{"status": "dead", "attempts": true}',
        b'{"status": "dead", "attempts": -1}', b'{"status": "dead", "attempts": 99999999999999999999}',
        b'{"status": {"a": 1}, "attempts": 3}', b'{"status": "dead", "attempts": 3, "reason": "\\u0000"}',
        b'{"status": "dead", "attempts": 3, "reason": "\\ud800"}', b'{"status": "dead"}', b'{"attempts": 3}',
        b'{"status": "dead", "attempts": 3, "reason": "' + b"x" * 10_000 + b'"}',
        b'{"status": "dead", "status": "dead", "attempts": 3}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("act", ACTS)
def test_a_wish_that_cannot_be_read_is_refused(operator, body, act):
    receipt = ready(act)
    answer = operator.post(at(receipt, act), body, content_type="application/json")
    assert answer.status_code == (413 if len(body) > wire.LONGEST else 400)
    assert len(answer.content) < 500
    assert WebhookReceipt.objects.get().status == receipt.status


def test_only_json_is_read(operator):
    receipt = make()
    assert operator.post(at(receipt, "retry"), wish(receipt, "retry")).status_code == 415
    assert operator.post(at(receipt, "retry") + "?x=1", {}, content_type="application/json").status_code == 400


class BreaksOff:
    def read(self, size):
        raise UnreadablePostError


def test_a_request_that_breaks_off_is_no_error_of_ours():
    with pytest.raises(ParseError, match="broke off"):
        wire.StrictJSONParser().parse(BreaksOff())


class OnePerPage(PageNumberPagination):
    page_size = 1


class Versions(NamespaceVersioning):
    allowed_versions = ("v1",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("versioning_class", Versions),
        ("permission_classes", [AllowAny]),
        ("pagination_class", OnePerPage),
        ("renderer_classes", [BrowsableAPIRenderer]),
        ("parser_classes", [FormParser]),
        ("filter_backends", [SearchFilter]),
    ],
)
def test_what_a_project_sets_for_its_own_api_changes_nothing(viewer, operator, monkeypatch, name, value):
    """REST framework reads its settings once, into these attributes."""
    monkeypatch.setattr(GenericAPIView, name, value)
    monkeypatch.setattr(APIView, name, value, raising=False)
    for _ in range(2):
        make()
    answer = viewer.get(f"{URL}receipts/")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert len(answer.json()["results"]) == 2
    assert Client().get(f"{URL}receipts/").status_code == 403
    assert send(operator, WebhookReceipt.objects.first(), "retry").status_code == 200


# -- acting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "becomes"),
    [
        ("retry", "received"), ("rerun", "received"), ("release", "received"), ("discard", "discarded"),
        ("settle", "received"),
    ],
)  # fmt: skip
def test_an_act_is_done_once_logged_and_runs_nothing(operator, handler, caplog, act, becomes):
    caplog.set_level("INFO", "django_webhook_guard")
    runs = []
    handler("stripe", "*", name="pay")(runs.append)
    receipt = ready(act)
    answer = send(operator, receipt, act, reason="mended\n")
    assert (answer.status_code, answer.json()["status"], answer.json()["id"]) == (200, becomes, receipt.pk)
    assert WebhookReceipt.objects.get().status == becomes
    (told,) = [message for message in caplog.messages if " by otto: mended" in message]
    assert f"webhook receipt {receipt.pk}" in told
    assert send(operator, receipt, act).json()["code"] == "moved_on"
    assert runs == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("seen", [{"attempts": 2}, {"status": "received"}])
def test_what_moved_on_since_it_was_read_is_left_alone(operator, act, seen):
    receipt = ready(act)
    before = WebhookReceipt.objects.values().get()
    answer = send(operator, receipt, act, **seen)
    assert (answer.status_code, answer.json()["code"]) == (409, "moved_on")
    assert WebhookReceipt.objects.values().get() == before


@pytest.mark.parametrize("act", ACTS)
def test_of_two_clients_one_wins(operator, monkeypatch, act):
    receipt = ready(act)
    done = getattr(operations, act)

    def late(shown, *args, **kwargs):
        WebhookReceipt.objects.update(attempts=4)  # between reading and writing
        return done(shown, *args, **kwargs)

    monkeypatch.setattr(operations, act, late)
    answer = send(operator, receipt, act)
    assert (answer.status_code, answer.json()["code"]) == (409, "moved_on")
    assert WebhookReceipt.objects.get().status == receipt.status
    assert WebhookEffect.objects.filter(state="unknown").count() == (act == "settle")


@pytest.mark.parametrize("act", ACTS)
def test_a_state_that_is_not_for_it_is_said(operator, act):
    answer = send(operator, make(status="processing"), act)
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")


@pytest.mark.parametrize("act", ACTS)
def test_what_no_source_here_can_run_is_only_discarded(operator, act):
    answer = send(operator, ready(act, source="gone"), act)
    assert answer.status_code == (200 if act == "discard" else 409)
    assert answer.json().get("code") == (None if act == "discard" else "unknown_source")


def test_a_rerun_takes_handlers_of_the_receipt(operator, handler):
    handler("stripe", "*", name="pay")(lambda event: None)
    receipt = make(status="processed", last_handler="pay", handlers=["pay"])
    for handlers in (["pya"], "pay", [1, {}], ["pay"] * 101):
        assert send(operator, receipt, "rerun", handlers=handlers).status_code == 400
    assert operator.post(
        at(receipt, "rerun"), {"status": "processed", "attempts": 3}, content_type="application/json"
    ).status_code == 400  # fmt: skip
    assert send(operator, receipt, "rerun", handlers=["pay"]).status_code == 200
    assert WebhookReceipt.objects.get().last_handler == ""


def test_a_rerun_of_none_keeps_what_is_done(operator, handler):
    handler("stripe", "*", name="pay")(lambda event: None)
    receipt = make(status="processed", last_handler="pay", handlers=["pay"])
    assert send(operator, receipt, "rerun", handlers=[]).status_code == 200
    assert WebhookReceipt.objects.get().last_handler == "pay"


@pytest.mark.parametrize(("happened", "result"), [(True, {"id": "ch_1"}), (True, None), (False, None)])
def test_an_effect_is_settled(operator, happened, result):
    receipt = ready("settle")
    assert send(operator, receipt, "settle", happened=happened, result=result).status_code == 200
    effect = WebhookEffect.objects.get()
    assert effect.state == ("done" if happened else "started")
    assert json.loads(effect.result) == (result if happened else None)


def test_an_effect_that_is_not_there_is_not_settled(operator):
    answer = send(operator, ready("settle"), "settle", name="other")
    assert answer.status_code == 409
    assert WebhookReceipt.objects.get().status == "dead"


def test_a_deferred_sources_worker_is_woken_once_it_is_committed(operator, sources, django_capture_on_commit_callbacks):
    sources(stripe={"PROCESSING": "deferred", "DISPATCHER": "tests.test_deferred.wake"})
    receipt = make()
    woken.clear()
    with django_capture_on_commit_callbacks() as callbacks:
        send(operator, receipt, "retry")
    assert woken == []
    for callback in callbacks:
        callback()
    assert woken == [receipt.pk]


def test_a_broker_that_is_down_takes_nothing_back(operator, monkeypatch, caplog, django_capture_on_commit_callbacks):
    monkeypatch.setattr("django_webhook_guard.sweeper.handed_over", lambda number: 1 / 0)
    with django_capture_on_commit_callbacks(execute=True):
        assert send(operator, make(), "retry").status_code == 200
    assert WebhookReceipt.objects.get().status == "received"
    assert "no worker could be woken" in caplog.text


@pytest.mark.parametrize(
    ("error", "status"), [(OperationalError("away"), 503), (Misconfigured("two handlers of one name"), 409)]
)
def test_what_cannot_be_written_is_said(operator, monkeypatch, error, status):
    def fails(receipt, **kwargs):
        raise error

    monkeypatch.setattr(operations, "retry", fails)
    answer = send(operator, make(), "retry")
    assert answer.status_code == status
    assert str(error) not in answer.content.decode()


# -- stats -------------------------------------------------------------------------------------------------------------


def test_stats_count_by_source_and_status_and_name_what_waits(viewer):
    now = timezone.now()
    for minutes in (1, 90, 60 * 30, 60 * 24 * 8):
        make(received_at=now - timedelta(minutes=minutes))
    make(source="github", status="quarantined", received_at=now)
    oldest = make(status="failed", due_at=now - timedelta(hours=2), received_at=now - timedelta(days=30))
    make(status="failed", due_at=now - timedelta(hours=1), received_at=now - timedelta(days=30))
    make(status="failed", due_at=now + timedelta(hours=1), received_at=now - timedelta(days=30))
    found = viewer.get(f"{URL}stats/").json()
    rows = {row.pop("name"): row for row in found["sources"] + found["statuses"]}
    assert rows["stripe"] == rows["dead"] == {"hour": 1, "day": 2, "week": 3}
    assert rows["github"] == rows["quarantined"] == {"hour": 1, "day": 1, "week": 1}
    assert rows["partner"] == rows["failed"] == {"hour": 0, "day": 0, "week": 0}
    assert (found["dead"], found["quarantined"], found["due"], found["reach"]) == (4, 1, 2, counts.REACH)
    assert found["oldest_due"]["id"] == oldest.pk


def test_counting_ends(viewer, monkeypatch):
    monkeypatch.setattr(counts, "REACH", 3)
    for _ in range(5):
        make(due_at=timezone.now() - timedelta(hours=1), status="failed")
    with CaptureQueriesContext(connection) as queries:
        found = viewer.get(f"{URL}stats/").json()
    rows = {row["name"]: row["hour"] for row in found["sources"] + found["statuses"]}
    assert (rows["stripe"], rows["failed"], found["due"], found["reach"]) == (3, 3, 3, 3)
    about = [query["sql"] for query in queries if "COUNT(" in query["sql"].upper() and "webhookreceipt" in query["sql"]]
    assert about
    assert all("LIMIT 3" in sql for sql in about)

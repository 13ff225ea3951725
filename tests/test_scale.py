"""A large table: every query of an admin's page and of the sweeper reads an index, none counts or sorts all of it."""

import re
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F, Value
from django.db.models.functions import Concat, Substr
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_webhook_guard import processing
from django_webhook_guard.models import WebhookAttempt, WebhookCount, WebhookReceipt
from django_webhook_guard.sweeper import sweep

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

LIST = "/admin/django_webhook_guard/webhookreceipt/"
TABLE, ATTEMPTS = WebhookReceipt._meta.db_table, WebhookAttempt._meta.db_table
ROWS, MADE = 50_000, 5_000
SOURCES = ("stripe", "stripe", "github", "partner")
OPEN = ("received", "processing", "failed")
DUE = 300


def receipt(number, now):
    """Most of them are processed, one in 500 is dead, one in 250 failed; of the older ones some are due, some later."""
    status = "dead" if number % 500 == 0 else "failed" if number % 250 == 0 else "processed"
    at, due_at = now - timedelta(minutes=number), None
    if number > 2_000 and number % 100 in (7, 11):
        status, due_at = OPEN[number % 3], at if number % 100 == 7 else now + timedelta(hours=number)
    return WebhookReceipt(
        fingerprint=f"{number * 2654435761 % 2**32:08x}" + "b2" * 28,
        source=SOURCES[number % 4],
        event_id=f"evt_{number}",
        event_type="invoice.paid",
        object_key=f"cus_{number % 5000}",
        idempotency_key=f"evt_{number}",
        key_origin="id",
        status=status,
        due_at=due_at,
        attempts=1,
        received_at=at,
        last_delivered_at=at,
        budget_from=at,
        handlers=["pay"],
        body=b"{}",
        body_digest="d" * 64,
        body_size=2,
    )


def copy(turn):
    """Copy the first rows inside of the database, which is many times faster than to send them: other events, older."""
    event, age = Concat("event_id", Value(f"_{turn}")), timedelta(minutes=turn * MADE)
    fingerprint = Concat(Substr("fingerprint", 1, 8), Value(f"{turn:02x}"), Substr("fingerprint", 11))
    changed = {"fingerprint": fingerprint, "event_id": event, "idempotency_key": event}
    changed |= {name: F(name) - age for name in ("received_at", "last_delivered_at", "budget_from")}
    names = [field.attname for field in WebhookReceipt._meta.concrete_fields if not field.primary_key]
    first = WebhookReceipt.objects.order_by("pk").values_list(*(changed.get(name, F(name)) for name in names))
    select, values = first[:MADE].query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} ({', '.join(names)}) {select}", values)


@pytest.fixture(scope="module")
def many(django_db_setup, django_db_blocker):
    """The table with its rows, and statistics that the planner knows."""
    now = timezone.now()
    with django_db_blocker.unblock():
        WebhookReceipt.objects.bulk_create((receipt(number, now) for number in range(MADE)), batch_size=500)
        for turn in range(1, ROWS // MADE):
            copy(turn)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE {_kind()} {TABLE}")
        yield
        WebhookReceipt.objects.all()._raw_delete(using="default")


def _kind():
    return "TABLE" if connection.vendor == "mysql" else ""


@pytest.fixture
def operator(many):
    user = User.objects.create_user("otto", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_webhookreceipt", "retry_webhookreceipt"]),
    )
    client = Client()
    client.force_login(user)
    return client


def plan(sql):
    """How the database would run a statement, as one text."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mysql": "ANALYZE FORMAT=JSON "}
    with connection.cursor() as cursor:
        cursor.execute(explain[connection.vendor] + sql)
        return "\n".join(" ".join(str(value) for value in row) for row in cursor.fetchall())


def assert_reads_an_index(sql, few=False):
    """``few``: an index finds so few rows that they may be sorted."""
    text = plan(sql)
    print(sql.replace(TABLE, "t")[-220:], text, sep="\n", end="\n\n")
    found_by_number = few or "id` IN (" in sql or 'id" IN (' in sql  # then at most some hundred rows are sorted
    if connection.vendor == "sqlite":
        assert found_by_number or "USE TEMP B-TREE" not in text, text
        assert not re.search(rf"SCAN {TABLE}(?! USING)", text), text
    elif connection.vendor == "postgresql":
        assert "Seq Scan" not in text, text
    else:
        # ANALYZE runs it and counts: what is read is what is shown, never the table.
        assert found_by_number or "filesort" not in text, text
        assert all(float(rows) <= 1_001 for rows in re.findall(r'"r_rows": ([\d.]+)', text)), text


PAGES = {
    "first": {},
    "second": {"p": 2},
    "last": {"p": 20},
    "dead": {"status": "dead"},
    "processed": {"status": "processed"},
    "source": {"source": "stripe"},
    "source and status": {"source": "stripe", "status": "failed"},
    "hour": {"received": "hour"},
    "month": {"received": "month"},
    "dead this week": {"received": "week", "status": "dead"},
    "all three": {"received": "week", "status": "dead", "source": "github"},
    "event id": {"q": "evt_123"},
    "object": {"q": "cus_123"},
    "reference": {"q": "0123456789abcdef"},
    "number": {"q": "123456"},
    "nothing": {"q": "no such thing"},
    "search and filter": {"q": "evt_500", "status": "dead"},
}


@pytest.mark.parametrize("query", PAGES.values(), ids=PAGES)
def test_every_query_of_the_list_is_bounded_and_reads_an_index(operator, query):
    started = time.monotonic()
    with CaptureQueriesContext(connection) as captured:
        response = operator.get(LIST, query)
    assert time.monotonic() - started < 2
    assert response.status_code == 200
    statements = [each["sql"] for each in captured if TABLE in each["sql"]]
    assert 1 <= len(statements) <= 7
    for sql in statements:
        assert "DISTINCT" not in sql.upper()
        assert "LIKE" not in sql.upper()
        if "COUNT(" in sql.upper():
            assert "LIMIT 1001" in sql
        else:
            assert "LIMIT" in sql or " IN (" in sql
            assert_reads_an_index(sql)


def test_the_pages_end_at_a_thousand_and_say_so(operator):
    page = operator.get(LIST, {"p": 20})
    assert len(page.context["cl"].result_list) == 50
    assert "There are more than these 1000" in page.content.decode().replace(",", "")
    assert operator.get(LIST, {"p": 21}).status_code == 302
    assert "There are more" not in operator.get(LIST, {"status": "dead"}).content.decode()


def test_search_finds_the_one_row(operator):
    wanted = WebhookReceipt.objects.get(event_id="evt_123")
    for term in ("evt_123", wanted.reference, wanted.fingerprint, str(wanted.pk)):
        with CaptureQueriesContext(connection):
            found = operator.get(LIST, {"q": term}).context["cl"].result_list
        assert [each.pk for each in found] == [wanted.pk], term
    assert len(operator.get(LIST, {"q": "cus_123"}).context["cl"].result_list) == 10


def test_an_action_over_all_looks_at_a_thousand(operator):
    before = WebhookReceipt.objects.filter(status="received").count()
    page = operator.get(LIST)
    row = page.context["cl"].result_list[0]
    form = {
        "action": "retry_selected", "select_across": "1", "_selected_action": [str(row.pk)],
        "shown_at": row.shown_at.isoformat(),
    }  # fmt: skip
    with CaptureQueriesContext(connection) as captured:
        answer = operator.post(LIST, form)
    assert answer.status_code == 302
    (ids,) = [each["sql"] for each in captured if "LIMIT 1000" in each["sql"]]
    assert_reads_an_index(ids)
    (read,) = [each["sql"] for each in captured if "budget_from" in each["sql"] and each["sql"].startswith("SELECT")]
    assert not re.search(r"\bbody\b|\bheaders\b", read)
    assert_reads_an_index(read)
    assert WebhookReceipt.objects.filter(status="received").count() == before + 4


def test_the_detail_reads_no_table(operator):
    wanted = WebhookReceipt.objects.get(event_id="evt_500")
    with CaptureQueriesContext(connection) as captured:
        operator.get(f"{LIST}{wanted.pk}/change/")
    statements = [each["sql"] for each in captured if "django_webhook_guard_" in each["sql"]]
    assert len(statements) >= 4
    for sql in statements:
        if TABLE in sql:
            assert_reads_an_index(sql)


@pytest.mark.parametrize("batch", [100, 10_000])
def test_the_sweeper_finds_what_is_due_by_its_index(many, monkeypatch, batch):
    found = []
    monkeypatch.setattr(processing, "run", lambda number, trigger: found.append(number))
    with CaptureQueriesContext(connection) as captured:
        sweep(batch=batch)
    assert len(found) == min(batch, DUE)
    (sql,) = [each["sql"] for each in captured if "ORDER BY" in each["sql"] and TABLE in each["sql"]]
    text = plan(sql)
    print(sql, text, sep="\n")
    assert "webhook_receipt_due" in text, text
    if connection.vendor == "sqlite":
        assert "SCAN" not in text and "USE TEMP B-TREE" not in text, text
    elif connection.vendor == "postgresql":
        assert "Seq Scan" not in text, text
    else:
        # It may look into the index of open receipts as well, due or not.
        assert '"access_type": "ALL"' not in text, text
        assert all(float(rows) <= 1_001 for rows in re.findall(r'"r_rows": ([\d.]+)', text)), text


@pytest.fixture(scope="module")
def attempts(many, django_db_blocker):
    """The last attempt of everything that is failed or dead, of seven kinds."""
    with django_db_blocker.unblock():
        rows = WebhookReceipt.objects.filter(status__in=["failed", "dead"]).values_list("pk", "attempts", "received_at")
        WebhookAttempt.objects.bulk_create(
            (
                WebhookAttempt(
                    receipt_id=pk, number=number, trigger="sweeper", outcome="failed", handler="pay", started_at=at,
                    error_class="builtins.ValueError", error_group=f"{pk % 7:016x}", duration_ms=1,
                )
                for pk, number, at in rows
            ),
            batch_size=500,
        )  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE {_kind()} {ATTEMPTS}")
        yield
        WebhookAttempt.objects.all()._raw_delete(using="default")


def test_what_fails_is_found_without_reading_the_table(operator, attempts):
    with CaptureQueriesContext(connection) as captured:
        page = operator.get(f"{LIST}errors/")
    assert len(page.context["rows"]) == 7
    for sql in [each["sql"] for each in captured if TABLE in each["sql"]]:
        text = plan(sql)
        if connection.vendor == "sqlite":
            assert not re.search(rf"SCAN {TABLE}(?! USING)", text), text
        elif connection.vendor == "postgresql":
            assert f"Seq Scan on {TABLE}" not in text, text
        else:
            assert all(float(rows) <= 1_001 for rows in re.findall(r'"r_rows": ([\d.]+)', text)), text
    (group, *_) = page.context["rows"]
    shown = operator.get(group["list_url"])
    assert shown.context["cl"].result_count == group["row"].failed + group["row"].dead


@pytest.fixture(scope="module")
def counted(many, django_db_blocker):
    """Five weeks of counts of a few sources."""
    now = int(timezone.now().timestamp()) // 60
    rows = (
        WebhookCount(minute=now - minute, source=source, decision=decision, count=minute % 7 + 1)
        for minute in range(0, 35 * 1440, 3)
        for source, decision in (("stripe", "processed"), ("github", "duplicate"), ("", "not_found"))
    )
    with django_db_blocker.unblock():
        WebhookCount.objects.bulk_create(rows, batch_size=200)
        with connection.cursor() as cursor:
            cursor.execute(
                "ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE {_kind()} {WebhookCount._meta.db_table}"
            )
        yield
        WebhookCount.objects.all()._raw_delete(using="default")


@pytest.mark.parametrize("period", ["hour", "day", "week"])
@pytest.mark.parametrize("limited", [False, True])
def test_every_query_of_the_overview_reads_an_index(operator, counted, settings, period, limited):
    if limited:
        settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_scale.everything"}
    started = time.monotonic()
    with CaptureQueriesContext(connection) as captured:
        response = operator.get(f"{LIST}overview/", {"period": period})
    assert time.monotonic() - started < 2
    assert response.status_code == 200
    statements = [each["sql"] for each in captured if "django_webhook_guard_" in each["sql"]]
    assert len(statements) == (9 if limited else 7)
    counts = WebhookCount._meta.db_table
    for sql in statements:
        if counts in sql:
            text = plan(sql)
            print(sql, text, sep="\n", end="\n\n")
            assert "webhook_count_minute" in text or "sqlite_autoindex" in text, text
            assert "Seq Scan" not in text, text
        else:
            assert "LIMIT" in sql
            if not limited:  # a project's own rule is its own plan
                assert_reads_an_index(sql)


def everything(request):
    return WebhookReceipt.objects.filter(attempts__gte=0)

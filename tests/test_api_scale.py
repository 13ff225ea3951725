"""A large table behind the REST interface: every statement reads an index, however far a client pages or counts."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from django_webhook_guard import counts
from django_webhook_guard.models import WebhookReceipt
from tests.test_scale import TABLE, assert_reads_an_index, many, plan  # noqa: F401 - many is a fixture

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

URL = "/api/webhooks/"
urlpatterns = [path("api/webhooks/", include("django_webhook_guard.api.urls"))]
QUERIES = {
    "all": {},
    "source": {"source": "stripe"},
    "status": {"status": "dead"},
    "both": {"source": "github", "status": "dead"},
    "event": {"event_id": "evt_123"},
    "object": {"source": "stripe", "object": "cus_124"},
    "reference": {"reference": "0123456789abcdef"},
    "since": {"since": "2020-01-01T00:00:00Z", "limit": 200},
}

#: What these find is little, and is sorted once it is found.
FEW = {"event_id", "object", "reference"}


def no_tenant(request):
    return WebhookReceipt.objects.filter(tenant=None)


@pytest.fixture
def viewer(many, settings):  # noqa: F811
    settings.ROOT_URLCONF = __name__
    user = User.objects.create_user("vera")
    user.user_permissions.set(Permission.objects.filter(codename="view_webhookreceipt"))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("hook", [None, "tests.test_api_scale.no_tenant"])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_page_reads_an_index(viewer, settings, query, hook):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": hook}
    url, pages = f"{URL}receipts/", 0
    while url and pages < 3:
        with CaptureQueriesContext(connection) as captured:
            answer = viewer.get(url, query if pages == 0 else None).json()
        statements = [each["sql"] for each in captured if TABLE in each["sql"]]
        assert 1 <= len(statements) <= 2
        for sql in statements:
            assert_reads_an_index(sql, few=not FEW.isdisjoint(query))
        url, pages = answer["next"], pages + 1


@pytest.mark.parametrize("hook", [None, "tests.test_api_scale.no_tenant"])
def test_counts_end_whatever_there_is(viewer, settings, hook):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": hook}
    with CaptureQueriesContext(connection) as captured:
        stats = viewer.get(f"{URL}stats/").json()
    assert {row["name"]: row["week"] for row in stats["statuses"]}["processed"] > 9_000
    statements = [each["sql"] for each in captured if TABLE in each["sql"]]
    assert len(statements) < 50
    for sql in statements:
        assert f"LIMIT {counts.REACH}" in sql or "LIMIT 1" in sql, sql
        text = plan(sql)
        print(sql, text, sep="\n", end="\n\n")
        if connection.vendor == "sqlite":
            assert not re.search(rf"SCAN {TABLE}(?! USING)", text), text
        elif connection.vendor == "mysql":
            assert all(float(rows) <= counts.REACH + 1 for rows in re.findall(r'"r_rows": ([\d.]+)', text)), text


def test_one_receipt_reads_no_table(viewer):
    wanted = WebhookReceipt.objects.get(event_id="evt_500")
    for name in ("", "attempts/"):
        with CaptureQueriesContext(connection) as captured:
            viewer.get(f"{URL}receipts/{wanted.pk}/{name}")
        for each in captured:
            if f"{TABLE}" in each["sql"]:
                assert_reads_an_index(each["sql"])

"""The overview: its numbers, whose they are, and that nothing on it runs."""

import re
from datetime import timedelta

import pytest
from django.contrib import admin
from django.utils import timezone

from django_webhook_guard import counting
from django_webhook_guard.admin import WebhookReceiptAdmin
from django_webhook_guard.admin.overview import PERIODS, SERIES
from django_webhook_guard.models import WebhookCount, WebhookReceipt
from django_webhook_guard.sources import DECISIONS
from tests.test_admin import EVIL, LIST, make, person, viewer  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db

PAGE = f"{LIST}overview/"


def counted(source, decision, number, minutes=0):
    """Count deliveries of some minutes ago."""
    minute = int(timezone.now().timestamp()) // 60 - minutes
    WebhookCount.objects.create(minute=minute, source=source, decision=decision, count=number)


def panels(client, period="day"):
    page = client.get(PAGE, {"period": period}).context["page"]
    return {panel.name: panel for panel in page.panels}


def totals(panel):
    return {each.name: number for each, number in panel.chart.totals}


def only_stripe(request):
    return WebhookReceipt.objects.filter(source="stripe")


def test_every_decision_is_drawn_once():
    drawn = [decision for each in SERIES for decision in each.decisions]
    assert sorted(drawn) == sorted(DECISIONS)


def test_sources_that_are_configured_and_what_reached_none(viewer):  # noqa: F811
    counted("stripe", "processed", 5)
    counted("stripe", "late", 2, minutes=1)
    counted("stripe", "rejected", 40, minutes=2)
    counted("", "not_found", 7)
    counted("long gone", "processed", 3)
    found = panels(viewer)
    assert list(found) == ["stripe", "github", "partner", ""]
    assert totals(found["stripe"]) == {"processed": 5, "rejected": 42}
    assert totals(found["github"]) == {}
    assert totals(found[""]) == {"processed": 3, "rejected": 7}


@pytest.mark.parametrize(("period", "number"), [("hour", 1), ("day", 11), ("week", 111), ("nonsense", 11)])
def test_the_period_says_how_far_back(viewer, period, number):  # noqa: F811
    for count, minutes in ((1, 3), (10, 180), (100, 3 * 1440), (1000, 8 * 1440)):
        counted("stripe", "processed", count, minutes)
    panel = panels(viewer, period)["stripe"]
    assert totals(panel) == {"processed": number}
    assert sum(sum(numbers) for _, numbers in panel.chart.rows) == number
    wanted = PERIODS.get(period, PERIODS["day"])
    assert len(panel.chart.rows) * wanted.step == wanted.minutes


def test_a_former_name_counts_for_the_source_of_today(viewer, sources):  # noqa: F811
    sources(stripe={"FORMERLY": ["payments"]})
    counted("payments", "processed", 3)
    counted("stripe", "processed", 4)
    assert totals(panels(viewer)["stripe"]) == {"processed": 7}


def test_the_parts_of_a_bar_stand_on_each_other(viewer):  # noqa: F811
    counted("stripe", "processed", 30)
    counted("stripe", "failed", 10)
    parts = panels(viewer, "week")["stripe"].chart.parts
    assert [(part.series, part.y, part.height) for part in parts] == [
        ("processed", "25.00", "75.00"), ("failed", "0.00", "25.00"),
    ]  # fmt: skip


def test_facts_of_a_source(viewer):  # noqa: F811
    now = timezone.now()
    for number, skew in enumerate((-1, -2, -3)):
        came = now - timedelta(minutes=number)
        make(received_at=came, signed_at=came + timedelta(seconds=skew), key_id=f"key{number}")
    make(status="failed", due_at=now - timedelta(hours=2), received_at=now - timedelta(hours=3))
    make(status="failed", due_at=now - timedelta(hours=1), received_at=now - timedelta(hours=3))
    make(status="quarantined", received_at=now - timedelta(days=3))
    panel = panels(viewer)["stripe"]
    assert (panel.dead, panel.held, panel.skew) == (3, 0, "-2.0")
    assert list(panel.keys) == ["key0", "key1", "key2"]
    assert abs((now - timedelta(hours=2) - panel.due).total_seconds()) < 1
    assert abs((now - panel.last).total_seconds()) < 1
    assert panels(viewer, "week")["stripe"].held == 1
    assert panels(viewer)["github"].last is None


# -- whose numbers -----------------------------------------------------------------------------------------------------


def test_who_may_see_no_receipt_sees_no_overview(client):
    assert client.get(PAGE).status_code == 302
    nobody = person("nora")
    assert nobody.get(PAGE).status_code == 403
    assert "overview" not in nobody.get("/admin/").content.decode()


def test_only_reading(viewer):  # noqa: F811
    assert viewer.post(PAGE).status_code == 405


def test_links_lead_there(viewer):  # noqa: F811
    assert f'href="{LIST}overview/"' in viewer.get(LIST).content.decode()
    assert PAGE in viewer.get("/admin/django_webhook_guard/").content.decode()


def test_who_sees_some_receipts_sees_no_counter_of_others(viewer, settings):  # noqa: F811
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_overview.only_stripe"}
    counted("stripe", "rejected", 777)
    counted("", "not_found", 777)
    make(status="processed")
    make(status="dead")
    make(source="github", status="dead")
    response = viewer.get(PAGE)
    found = {panel.name: panel for panel in response.context["page"].panels}
    assert list(found) == ["stripe", "github", "partner"]
    assert totals(found["stripe"]) == {"processed": 1, "dead": 1}
    assert totals(found["github"]) == {}
    assert (found["github"].dead, found["github"].last) == (0, None)
    assert b"777" not in response.content
    assert b"You see some of the receipts" in response.content


def test_an_admin_that_narrows_its_queryset_counts_as_limited(viewer, monkeypatch):  # noqa: F811
    class Narrow(WebhookReceiptAdmin):
        def get_queryset(self, request):
            return super().get_queryset(request).filter(source="github")

    monkeypatch.setitem(admin.site._registry, WebhookReceipt, Narrow(WebhookReceipt, admin.site))
    request_page = viewer.get(PAGE)
    assert request_page.status_code == 200
    counted("stripe", "rejected", 777)
    page = Narrow(WebhookReceipt, admin.site).overview_view(request_page.wsgi_request)
    assert page.context_data["page"].limited


# -- what it is made of ------------------------------------------------------------------------------------------------


def test_no_script_no_style_and_nothing_of_a_stranger(viewer, client, post):  # noqa: F811
    client.post(f"/webhooks/{EVIL.replace('/', '')}/", b"{}", content_type="application/json")
    post("stripe", {"id": EVIL}, headers={"Stripe-Signature": EVIL})
    for key, number in counting.held().items():
        minute, source, decision = key
        WebhookCount.objects.create(minute=minute, source=source, decision=decision, count=number)
    make(key_id=EVIL[:60], event_type=EVIL)
    text = viewer.get(PAGE).content.decode()
    content = text[text.index('id="content-main"') :]
    assert "<img" not in content
    assert not re.search(r"<style|<script|<[^>]+\s(style|on[a-z]+)=", content)
    assert 'role="img"' in content
    assert "<details>" in content


def test_numbers_of_the_drawing_are_the_same_in_every_language(viewer, settings):  # noqa: F811
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    counted("stripe", "processed", 30_000)
    counted("stripe", "failed", 7_777)
    text = viewer.get(PAGE).content.decode()
    assert re.findall(r'(?:width|height|viewBox|\by)="[^"]*,[^"]*"', text) == []

"""At three in the morning, in a real Chromium: what failed, why, try one, retry the others, see that it worked."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_webhook_guard.effects import effect_digest
from django_webhook_guard.models import WebhookAttempt, WebhookBulkAction, WebhookEffect, WebhookReceipt
from django_webhook_guard.sweeper import sweep
from tests.test_admin import LIST, make
from tests.test_admin_browser import browser, fits, photograph, server, visit

__all__ = ["browser", "server", "visit"]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, databases=["default", "other"])]


@pytest.fixture
def night(handler):
    """500 failed events of one kind, some of others; the handlers work again."""
    runs = []
    handler("stripe", "invoice.*", name="billing.handlers:create_invoice")(lambda event: runs.append(event.event_id))
    now = timezone.now()
    kinds = [
        (
            "a" * 16,
            500,
            "requests.exceptions.ConnectionError",
            "billing.tax:rate_of:41",
            "tax service: connection refused",
        ),
        ("b" * 16, 3, "builtins.KeyError", "billing.handlers:create_invoice:17", "'customer'"),
    ]
    for key, count, error, place, message in kinds:
        for number in range(count):
            receipt = make(
                status="dead" if number % 3 else "failed", event_type="invoice.paid",
                handlers=["billing.handlers:create_invoice"], received_at=now - timedelta(hours=3, seconds=-number),
                due_at=None if number % 3 else now + timedelta(hours=1),
            )  # fmt: skip
            WebhookAttempt.objects.create(
                receipt=receipt, number=3, trigger="sweeper", outcome=receipt.status, error_group=key,
                handler="billing.handlers:create_invoice", error_class=error, place=place, message=message,
                release="2026.11.3", started_at=now - timedelta(minutes=20, seconds=number), duration_ms=1204,
            )  # fmt: skip
    make()
    return runs


def test_from_the_failure_to_green(visit, night):
    page = visit(LIST)
    page.get_by_role("link", name="What fails").click()
    page.wait_for_selector(".webhook-group")
    photograph(page, "oncall-errors")
    assert page.locator(".webhook-group").count() == 3
    first = page.locator(".webhook-group").first
    assert "requests.exceptions.ConnectionError" in first.inner_text()
    assert "333 dead" in first.inner_text() and "167 failed" in first.inner_text()

    first.get_by_role("button", name="Retry one, to see").click()
    page.wait_for_selector(".messagelist li")
    assert "It ran: processed." in page.locator(".messagelist").inner_text()
    assert len(night) == 1

    page.goto(page.url.partition("/admin/")[0] + f"{LIST}errors/")
    page.locator(".webhook-group").first.get_by_role("link", name="Retry all…").click()
    page.wait_for_selector("#webhook-rate")
    photograph(page, "oncall-confirm")
    assert "499 failed or dead receipts" in page.locator("#content").inner_text()
    page.get_by_label("Receipts a second:").fill("1000")
    page.get_by_label("Reason, kept in the history:").fill("the tax service is back")
    page.get_by_role("button", name="Retry all").click()
    page.wait_for_selector("progress")
    photograph(page, "oncall-begun")
    for _ in range(12):
        sweep()
        WebhookBulkAction.objects.update(next_at=timezone.now())
        if WebhookBulkAction.objects.get().state == "done":
            break
    page.reload()
    photograph(page, "oncall-done")
    assert "499 of 499 done" in page.locator("#content").inner_text()
    assert WebhookReceipt.objects.filter(status="processed").count() == 500
    assert len(night) == 500
    page.goto(page.url.partition("/admin/")[0] + f"{LIST}errors/")
    assert page.locator(".webhook-group").count() == 2


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390), ("dark", 390)])
def test_the_pages_fit(visit, night, scheme, width):
    page = visit(f"{LIST}errors/", scheme=scheme, width=width)
    photograph(page, f"oncall-errors-{scheme}-{width}")
    assert fits(page)
    page = visit(f"{LIST}bulk/retry/?error={'a' * 16}", scheme=scheme, width=width)
    photograph(page, f"oncall-confirm-{scheme}-{width}")
    assert fits(page)
    page.get_by_label("Reason, kept in the history:").fill("the tax service is back")
    page.get_by_role("button", name="Retry all").click()
    page.wait_for_selector("progress")
    photograph(page, f"oncall-progress-{scheme}-{width}")
    assert fits(page)
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".messagelist li")
    assert WebhookBulkAction.objects.get().state == "stopped"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_source_is_paused_and_resumed(visit, night, scheme, width):
    page = visit(f"{LIST}sources/", scheme=scheme, width=width)
    photograph(page, f"sources-{scheme}-{width}")
    assert fits(page)
    first = page.locator(".webhook-sources > li").first
    first.get_by_label("Reason:").fill("the bank is down")
    first.get_by_role("button", name="Pause").click()
    page.wait_for_selector(".messagelist li")
    photograph(page, f"sources-paused-{scheme}-{width}")
    assert fits(page)
    page = visit(LIST, scheme=scheme, width=width)
    assert page.locator(".errornote").count() == 1
    photograph(page, f"list-paused-{scheme}-{width}")
    page.get_by_role("link", name="Who, why, and how to resume").click()
    page.get_by_role("button", name="Resume").first.click()
    page.wait_for_selector(".messagelist li")
    assert page.locator(".webhook-problem").count() == 0


@pytest.fixture
def charged():
    """A dead receipt with an effect of unknown outcome, and one that is done."""
    body = b'{"id": "evt_1", "customer": {"email": "ada@example.org", "name": "Ada"}, "lines": [{"n": 1}, {"n": 2}]}'
    receipt = make(reason="effect_unknown", object_key="in_17", body=body)
    now = timezone.now()
    for name, state, result in (("charge", "unknown", "null"), ("mail", "done", '{"id": "msg_1"}')):
        WebhookEffect.objects.create(
            digest=effect_digest(receipt.fingerprint, "pay", name), fingerprint=receipt.fingerprint, handler="pay",
            name=name, state=state, calls=1, result=result,
            key="2f1b9e9a-43a1-4f0e-9a51-0d6f7c1b2a3c", attempt=3, started_at=now - timedelta(days=2),
            key_since=now - timedelta(days=2), finished_at=now if state == "done" else None,
        )  # fmt: skip
    return receipt


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_an_effect_is_settled(visit, charged, handler, scheme, width):
    handler("stripe", "invoice.*", name="pay", atomic=False)(lambda event: "paid")
    page = visit(f"{LIST}{charged.pk}/change/", scheme=scheme, width=width)
    page.locator(".webhook-tree > summary").click()
    photograph(page, f"effects-{scheme}-{width}")
    assert fits(page)
    assert page.get_by_role("button", name="Copy").count() == 1
    page.get_by_role("link", name="Settle it").click()
    page.wait_for_selector("#webhook-result")
    photograph(page, f"settle-{scheme}-{width}")
    assert fits(page)
    page.get_by_label("It happened", exact=True).check()
    page.get_by_role("button", name="Settle an effect").click()
    page.wait_for_selector(".messagelist li")
    assert "It ran: processed." in page.locator(".messagelist").inner_text()
    page.get_by_role("link", name="Run handlers again…").click()
    page.wait_for_selector("input[name=handler]")
    photograph(page, f"rerun-{scheme}-{width}")
    assert fits(page)
    page.get_by_label("pay", exact=True).check()
    page.get_by_role("button", name="Run handlers again").click()
    page.wait_for_selector(".messagelist li")
    assert WebhookReceipt.objects.get().attempts == 5

"""The admin in a real Chromium: under a strict policy, in light and dark, wide and narrow."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from django.utils import timezone

from django_webhook_guard.admin.overview import SERIES
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.models import WebhookAttempt, WebhookCount, WebhookReceipt, WebhookRejected
from django_webhook_guard.statements import insert_checkpoint
from tests.test_admin import EVIL, LIST, make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, databases=["default", "other"])]

SCREENSHOTS = Path(__file__).parent.parent / "screenshots"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; form-action 'self'"
_one_at_a_time = threading.Lock()


def strict_policy(get_response):
    """Middleware: the strictest policy that the stock admin lives with."""

    def middleware(request):
        response = get_response(request)
        response.setdefault("Content-Security-Policy", POLICY)
        return response

    return middleware


def one_at_a_time(get_response):
    """Middleware: requests one after another, because SQLite in memory is one connection for all threads."""

    def middleware(request):
        with _one_at_a_time:
            return get_response(request)

    return middleware


def missing(what):
    """Skip, or fail where the run was told that there must be a browser."""
    if "chromium" in os.environ.get("WEBHOOK_GUARD_REQUIRE", ""):
        pytest.fail(f"{what}, and WEBHOOK_GUARD_REQUIRE asks for chromium")
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("there is no chromium")
    SCREENSHOTS.mkdir(exist_ok=True)
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright has an event loop in this thread
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()
    os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")
    if before is not None:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def server(settings):
    """A server of this process, started when the test's middleware is set."""
    shared = {
        each.alias: each for each in connections.all() if each.vendor == "sqlite" and each.is_in_memory_db()
    }  # fmt: skip
    extra = ["tests.test_admin_browser.strict_policy"]
    if "default" in shared:
        extra.insert(0, "tests.test_admin_browser.one_at_a_time")
    settings.MIDDLEWARE = [*extra, *settings.MIDDLEWARE]
    for each in shared.values():
        each.inc_thread_sharing()
    thread = LiveServerThread("127.0.0.1", StaticFilesHandler, connections_override=shared)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    assert thread.error is None, thread.error
    yield f"http://127.0.0.1:{thread.port}"
    thread.terminate()
    for each in threading.enumerate():
        if "process_request_thread" in each.name:
            each.join(5)  # they close their connections at the end, as long as these may be shared
    for each in shared.values():
        each.dec_thread_sharing()


@pytest.fixture
def visit(browser, server):
    """Open a page as the operator: ``visit(path, scheme="dark", width=390)``; every violation fails the test."""
    user = User.objects.create_user("otto", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="django_webhook_guard", codename__endswith="_webhookreceipt"),
    )
    session = Client()
    session.force_login(user)
    cookie = session.cookies["sessionid"].value
    contexts, complaints = [], []

    def heard(message):
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            complaints.append(message.text)

    def open_page(path, *, scheme="light", width=1280):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": server}])
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(server + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def photograph(page, name):
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def fits(page):
    """Whether the page itself scrolls sideways nowhere."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture
def receipts(handler):
    """One receipt of every status, a few of which are long or hostile."""

    @handler("stripe", "invoice.*", name="billing.handlers:create_invoice")
    def create_invoice(event):
        return "created invoice 17"

    @handler("stripe", "invoice.*", name="mailing.handlers:send_receipt")
    def send_receipt(event):
        return "queued"

    names = ["billing.handlers:create_invoice", "mailing.handlers:send_receipt"]
    body = (
        b'{"id": "evt_1Q8sX2", "type": "invoice.payment_failed", "livemode": false, "created": 1764541200, "data": '
        b'{"object": {"id": "in_1Q8", "customer": "cus_QfA91kLm", "amount_due": 12900, "currency": "eur", "lines": '
        b'[{"description": "Pro \xe2\x80\x94 monthly", "amount": 12900}, {"description": "", "amount": 0}]}}}'
    )
    rows = {
        status: make(status=status, reason="", handlers=names, body=body, object_key="cus_QfA91kLm", due_at=None)
        for status in ("processed", "received", "processing", "quarantined", "ignored", "discarded")
    }
    rows["replay"] = make(
        status="quarantined", reason="replayed", handlers=names, body=body, attempts=0, due_at=None, processed_at=None,
        result=f"first came as {rows['processed'].fingerprint}",
    )  # fmt: skip
    rows["unfit"] = make(
        status="quarantined", reason="schema", handlers=names, body=body, attempts=0, due_at=None, processed_at=None,
        result="does not fit the schema: data.object.amount_due: invalid; data.object.lines.1.description: blank",
    )  # fmt: skip
    rows["failed"] = make(
        status="failed", reason="retry_later", source="github", event_type="push", tenant="acme-industries", attempts=2,
    )  # fmt: skip
    rows["evil"] = make(
        event_type=EVIL, event_id=EVIL, tenant="x\u202ey", object_key=EVIL, headers={"user-agent": EVIL},
        body=b'{"n": "' + EVIL.encode() + b'", "huge": "' + b"y" * 90_000 + b'"}', status="failed",
    )  # fmt: skip
    rows["dead"] = make(
        event_type="invoice.payment_failed", event_id="evt_1Q8sX2LkdIwHu7ixa9", object_key="cus_QfA91kLm", body=body,
        handlers=[*names, "reports.handlers:old_name"], reason="gave_up", attempts=3, deliveries=5,
        tenant="acme-industries", headers={
            "content-type": "application/json; charset=utf-8",
            "user-agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
        },
    )  # fmt: skip
    insert_checkpoint("default", rows["dead"].fingerprint, names[0], "done", "created invoice 17", 1)
    insert_checkpoint("default", rows["dead"].fingerprint, names[1], "gave_up", "address unknown", 3)
    trace = "\n".join(
        f'  File "/srv/app/billing/handlers.py", line {line}, in step_{line}\n    call({line})' for line in range(9)
    )
    for number in (1, 2, 3):
        WebhookAttempt.objects.create(
            receipt=rows["dead"], number=number, trigger="delivery" if number == 1 else "sweeper",
            outcome="failed" if number < 3 else "dead",
            handler=names[1], error_class="requests.exceptions.ConnectionError", release="2026.11.3",
            message="HTTPSConnectionPool(host='mail.example.org', port=443): Max retries exceeded with url: /v1/send",
            traceback=f"Traceback (most recent call last):\n{trace}\nrequests.exceptions.ConnectionError: no route",
            started_at=rows["dead"].received_at, duration_ms=1_204,
        )  # fmt: skip
    WebhookAttempt.objects.create(
        receipt=rows["evil"], number=3, trigger="delivery", outcome="failed", error_class="builtins.ValueError",
        message=EVIL, traceback=EVIL, started_at=rows["evil"].received_at, duration_ms=1,
    )  # fmt: skip
    return rows


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_list_and_detail_look_right(visit, receipts, scheme, width):
    page = visit(LIST, scheme=scheme, width=width)
    assert page.locator("#result_list tbody tr").count() == len(receipts)
    photograph(page, f"list-{scheme}-{width}")
    assert fits(page)
    page.locator("tr", has_text="evt_1Q8sX2LkdIwHu7ixa9").locator("th a, td a").first.click()
    page.wait_for_selector(".webhook-retry")
    page.locator(".webhook-attempts details summary").last.click()
    photograph(page, f"detail-{scheme}-{width}")
    assert fits(page)
    assert page.locator("li", has_text="billing.handlers:create_invoice is done").count() == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_what_is_held_looks_right_and_is_released_or_discarded(visit, receipts, scheme, width):
    for name in ("replay", "unfit"):
        page = visit(f"{LIST}{receipts[name].pk}/change/", scheme=scheme, width=width)
        photograph(page, f"held-{name}-{scheme}-{width}")
        assert fits(page)
    page.get_by_role("button", name="Release and run").click()
    page.wait_for_selector(".messagelist li")
    assert "It ran: processed." in page.locator(".messagelist").inner_text()
    page = visit(f"{LIST}{receipts['replay'].pk}/change/", scheme=scheme, width=width)
    page.get_by_role("button", name="Discard").click()
    page.wait_for_selector(".messagelist li")
    photograph(page, f"discarded-{scheme}-{width}")
    assert WebhookReceipt.objects.get(pk=receipts["replay"].pk).status == "discarded"
    page = visit(f"{LIST}{receipts['replay'].pk}/change/")
    assert page.get_by_role("button", name="Discard").count() == 0


def test_colours_differ_by_status_and_by_scheme(visit, receipts):
    def colours(page):
        return {
            status: page.locator(f"#result_list .webhook-status-{status}").first.evaluate(
                "chip => [getComputedStyle(chip).backgroundColor, getComputedStyle(chip).color].join()"
            )
            for status in ("processed", "failed", "dead")
        }

    light, dark = colours(visit(LIST)), colours(visit(LIST, scheme="dark"))
    assert len(set(light.values())) == 3
    assert len({*light.values(), *dark.values()}) == 6


def test_a_payload_runs_nowhere(visit, receipts):
    evil = receipts["evil"]
    page = visit(LIST)
    assert page.locator("#result_list", has_text="onerror=alert(1)").count() == 1
    for path in (f"{LIST}{evil.pk}/change/", f"{LIST}{evil.pk}/history/", f"{LIST}?q={evil.pk}"):
        page = visit(path)
        assert page.locator("img[src=x]").count() == 0
    page = visit(f"{LIST}{evil.pk}/change/")
    page.locator(".webhook-attempts details summary").last.click()
    assert "onerror=alert(1)" in page.locator(".webhook-payload").inner_text()
    photograph(page, "detail-evil")
    page.get_by_role("button", name="Retry now").click()
    page.wait_for_selector(".messagelist")
    assert page.locator("img[src=x]").count() == 0


def test_the_raw_bytes_are_downloaded_not_shown(visit, receipts, tmp_path):
    page = visit(f"{LIST}{receipts['evil'].pk}/change/")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download the raw bytes").click()
    assert Path(started.value.path()).read_bytes() == bytes(receipts["evil"].body)


def test_the_button_runs_it_and_the_history_says_who_and_why(visit, receipts, handler):
    runs = []
    handler("partner", "*", name="count")(lambda event: runs.append(event.attempt))
    receipt = make(source="partner", handlers=["count"])
    page = visit(f"{LIST}{receipt.pk}/change/")
    page.get_by_label("Reason, kept in the history:").fill("the bank is back")
    page.get_by_role("button", name="Retry now").click()
    page.wait_for_selector(".messagelist li")
    photograph(page, "retried")
    assert "It ran: processed." in page.locator(".messagelist").inner_text()
    assert WebhookReceipt.objects.get(pk=receipt.pk).status == "processed"
    assert runs == [4]
    page.get_by_role("link", name="History").click()
    assert page.get_by_text("the bank is back").count() == 1
    photograph(page, "history")


def test_a_second_click_while_the_first_one_runs_does_nothing_and_says_so(visit, receipts, handler):
    runs, posts, go_on = [], [], threading.Event()

    @handler("partner", "*", name="slow")
    def slow(event):
        runs.append(event.attempt)
        go_on.wait(20)
        raise GiveUp("dead again, so that a second retry would be possible")

    receipt = make(source="partner", handlers=["slow"])
    page = visit(f"{LIST}{receipt.pk}/change/")
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)

    # Timers of the page click: two clicks at once Chromium makes one request, and Playwright waits for the first's end.
    page.evaluate(
        "() => [0, 2000].forEach(wait => setTimeout("
        "() => document.querySelector('.webhook-retry input[type=submit]').click(), wait))"
    )
    for _ in range(100):
        if runs and len(posts) == 2:
            break
        page.wait_for_timeout(100)
    go_on.set()
    assert (runs, len(posts)) == ([4], 2)
    page.wait_for_selector(".messagelist li")
    photograph(page, "clicked-twice")
    assert "moved on since the page was shown" in page.locator(".messagelist").inner_text()
    for _ in range(100):
        if WebhookReceipt.objects.get(pk=receipt.pk).status == "dead":
            break
        page.wait_for_timeout(100)
    assert len(posts) == 2
    assert runs == [4]
    assert WebhookReceipt.objects.get(pk=receipt.pk).attempts == 4


def test_the_action_on_the_list(visit, receipts, handler):
    def unlucky(event):
        raise GiveUp("the mail server does not know the address")

    handler("partner", "*", name="unlucky")(unlucky)
    make(source="partner", handlers=["unlucky"])
    make(source="elsewhere")
    page = visit(LIST)
    page.locator("#action-toggle").check()
    page.select_option("select[name=action]", "retry_selected")
    page.locator("button[name=index]").first.click()
    page.wait_for_selector(".messagelist li")
    photograph(page, "action")
    text = page.locator(".messagelist").inner_text()
    assert "receipts were made due." in text
    assert "they are neither failed nor dead" in text
    assert "no source “elsewhere”" in text


# -- the overview ------------------------------------------------------------------------------------------------------


@pytest.fixture
def counts(receipts):
    """A day in which everything happened, once in a storm."""
    now = int(timezone.now().timestamp()) // 60
    decisions = (
        "processed", "accepted", "duplicate", "declined", "quarantined", "failed", "gave_up", "rejected",
    )  # fmt: skip
    for hour in range(24):
        for number, decision in enumerate(decisions):
            much = (hour * 7 + number * 3) % 11 * (8 - number)
            WebhookCount.objects.create(minute=now - hour * 60, source="stripe", decision=decision, count=much)
    WebhookCount.objects.create(minute=now - 200, source="", decision="not_found", count=48_211)


LUMINANCE = """colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(each => each / 255)
        .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


def contrast(page, one, other):
    first, second = (page.evaluate(LUMINANCE, each) for each in (one, other))
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def style(page, selector, name):
    return page.locator(selector).first.evaluate(f"each => getComputedStyle(each).{name}")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_looks_right(visit, counts, server, scheme, width):
    page = visit(f"{LIST}overview/", scheme=scheme, width=width)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    photograph(page, f"overview-{scheme}-{width}")
    assert asked
    assert all(url.startswith(server) for url in asked)
    assert fits(page)
    assert page.locator(".webhook-chart svg").count() == 2
    assert page.locator(".webhook-legend li").count() == 9
    background = style(page, "body", "backgroundColor")
    for series in SERIES:
        fill = style(page, f".webhook-fill-{series.name}", "fill")
        assert contrast(page, fill, background) >= 3, (series.name, fill)
    for selector in (".webhook-legend li", ".webhook-chart figcaption", ".webhook-facts dt"):
        assert contrast(page, style(page, selector, "color"), background) >= 4.5, selector
    page.locator("details summary").first.click()
    assert page.locator("details[open] tbody tr").count() == 24
    assert fits(page)


def test_the_overview_is_reached_from_the_list_and_chooses_its_time(visit, counts):
    page = visit(LIST)
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="last 7 days").click()
    page.wait_for_url("**/overview/?period=week")
    assert page.locator("strong[aria-current]").inner_text() == "last 7 days"
    assert "rejected" in page.locator(".webhook-chart svg").first.get_attribute("aria-label")
    photograph(page, "overview-week")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_sample_of_a_stranger_looks_right_and_runs_nowhere(visit, scheme, width):
    row = WebhookRejected.objects.create(
        source="stripe", slot=0, received_at=timezone.now(), decision="rejected", reason="bad_signature: " + EVIL,
        method="POST", path="/webhooks/stripe/?" + "a=***&" * 60, headers={"x-" + EVIL: EVIL, "cookie": "***"},
        body=EVIL.encode() + b"\x00\xff" + b"y" * 3_000, body_size=3_039,
    )  # fmt: skip
    otto = User.objects.get(username="otto")
    otto.user_permissions.add(Permission.objects.get(codename="view_webhookrejected"))
    page = visit("/admin/django_webhook_guard/webhookrejected/", scheme=scheme, width=width)
    photograph(page, f"samples-{scheme}-{width}")
    assert page.locator("#result_list tbody tr").count() == 1
    page = visit(f"/admin/django_webhook_guard/webhookrejected/{row.pk}/change/", scheme=scheme, width=width)
    photograph(page, f"sample-{scheme}-{width}")
    assert fits(page)
    assert page.locator("img[src=x]").count() == 0
    assert "onerror=alert(1)" in page.locator(".webhook-pre").inner_text()

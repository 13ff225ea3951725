"""What fails, and what is done to many receipts at once, in the admin."""

from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from django_webhook_guard.admin import WebhookReceiptAdmin
from django_webhook_guard.models import WebhookBulkAction, WebhookPause, WebhookReceipt
from django_webhook_guard.sweeper import sweep
from tests.test_admin import EVIL, LIST, make, person

pytestmark = pytest.mark.django_db(databases=["default", "other"])
ERRORS = f"{LIST}errors/"
RETRY = ("view_webhookreceipt", "retry_webhookreceipt")


@pytest.fixture
def operator():
    return person("otto", *RETRY)


@pytest.fixture
def broken(handler, post):
    """Ten events whose handler fails until ``broken.mended``."""
    state = type("State", (), {"mended": False, "runs": []})

    def pay(event):
        state.runs.append(event.event_id)
        if not state.mended:
            raise KeyError(f"no price for {event.event_id}")

    handler("stripe", "invoice.*", name="pay")(pay)
    for number in range(10):
        post("stripe", {"id": f"evt_{number}", "type": "invoice.paid"})
    state.runs.clear()
    return state


def the_group(client):
    (group,) = client.get(ERRORS).context["rows"]
    return group


def test_from_what_fails_to_a_probe_to_all_of_them(operator, broken, django_capture_on_commit_callbacks):
    group = the_group(operator)
    row = group["row"]
    assert (row.title, row.failed, row.dead, row.handler) == ("KeyError", 10, 0, "pay")
    assert "no price for evt_9" in row.message
    assert row.place.startswith("tests.test_admin_bulk:broken.<locals>.pay:")
    assert row.event == "stripe invoice.paid"

    assert len(operator.get(group["list_url"]).context["cl"].result_list) == 10
    assert operator.get(group["example_url"]).status_code == 200

    broken.mended = True
    with django_capture_on_commit_callbacks(execute=True):
        operator.post(group["probe_url"], {"shown": group["shown"]})
    assert broken.runs == ["evt_9"]

    page = operator.get(group["retry_url"])
    assert page.context["count"] == 9
    assert "9 failed or dead receipts are retried" in page.content.decode()
    answer = operator.post(
        group["retry_url"], {"until": page.context["until"], "rate": "1000", "reason": "prices are back"}, follow=True
    )
    action = WebhookBulkAction.objects.get()
    assert (action.total, action.actor, action.reason, action.rate) == (9, "otto", "prices are back", 1000)
    assert f"error={row.key}" in action.about
    assert "0 of 9 done" in answer.content.decode()
    assert sweep() == {"processed": 9}
    WebhookBulkAction.objects.update(next_at=timezone.now())
    sweep()
    assert "9 of 9 done, 0 left alone, 0 to come." in operator.get(answer.wsgi_request.path).content.decode()
    assert "Nothing fails" in operator.get(ERRORS).content.decode()


@pytest.mark.parametrize(
    ("wish", "permission", "states"),
    [
        ("retry", "retry", {"dead"}),
        ("missing", "retry", {"dead", "processed"}),
        ("rerun", "rerun", {"dead", "processed"}),
        ("release", "release", {"quarantined"}),
        ("discard", "discard", {"dead", "quarantined"}),
    ],
)
def test_each_wish_takes_its_own_permission(handler, wish, permission, states):
    handler("stripe", "*", name="pay")(lambda event: None)
    for status in ("dead", "processed", "quarantined"):
        make(status=status)
    url = f"{LIST}bulk/{wish}/"
    every = ("retry", "rerun", "release", "discard")
    others = [f"{name}_webhookreceipt" for name in every if name != permission]
    for permissions in (
        [],
        ["view_webhookreceipt"],
        ["view_webhookreceipt", *others],
        [f"{permission}_webhookreceipt"],
    ):
        nobody = person(f"nobody-{len(permissions)}-{wish}-{'-'.join(permissions)[:40]}", *permissions)
        assert nobody.get(url).status_code == 403
        assert nobody.post(url, {"rate": "10", "reason": "x"}).status_code == 403
    somebody = person("somebody", "view_webhookreceipt", f"{permission}_webhookreceipt")
    page = somebody.get(url)
    assert page.context["count"] == len(states)
    assert page.context["handlers"] == (["pay"] if wish in ("missing", "rerun") else [])
    assert somebody.post(url, {"rate": "10", "reason": "x"}).status_code == 302
    assert WebhookBulkAction.objects.get().total == len(states)


def test_a_filter_of_the_list_is_kept(operator):
    make(source="stripe"), make(source="github"), make(source="github", status="processed")
    links = dict(operator.get(f"{LIST}?source=github").context["tools"])
    url = links["Retry all"]
    assert parse_qs(urlsplit(url).query) == {"source": ["github"]}
    page = operator.get(url)
    assert (page.context["count"], page.context["about"]) == (1, "source=github")
    assert set(links) == {"Overview", "What fails", "Sources", "Retry all"}


def test_what_came_after_the_page_was_shown_is_not_meant(operator):
    make()
    url = f"{LIST}bulk/retry/"
    until = operator.get(url).context["until"]
    make(received_at=timezone.now())
    operator.post(url, {"until": until, "rate": "10", "reason": "x"})
    assert WebhookBulkAction.objects.get().total == 1


@pytest.mark.parametrize(
    "data",
    [
        {"rate": "10", "reason": " "}, {"rate": "0", "reason": "x"}, {"rate": "nan", "reason": "x"}, {"reason": "x"},
        {"rate": "1e9", "reason": "x"}, {"rate": "ten", "reason": "x"}, {},
    ],
)  # fmt: skip
def test_rate_and_reason_are_asked_for(operator, data):
    make()
    answer = operator.post(f"{LIST}bulk/retry/", data)
    assert answer.status_code == 200
    assert answer.context["errors"]
    assert not WebhookBulkAction.objects.exists()


@pytest.mark.parametrize(
    "query", ["error=zzz", "error=%00", "error=" + "a" * 10_000, "status=nonsense", "p=999", "x=1"]
)
def test_an_address_that_makes_no_sense_finds_nothing(operator, query):
    make()
    answer = operator.get(f"{LIST}bulk/retry/?{query}")
    assert answer.status_code in (400, 404) or answer.context["count"] == (0 if "=" in query[5:] else 1)


def test_an_unknown_wish_is_not_found(operator):
    assert operator.get(f"{LIST}bulk/destroy/").status_code == 404


def test_it_is_stopped_by_who_may_wish_it(operator):
    for _ in range(3):
        make()
    operator.post(f"{LIST}bulk/retry/", {"rate": "1", "reason": "x"})
    action = WebhookBulkAction.objects.get()
    page = f"/admin/django_webhook_guard/webhookbulkaction/{action.pk}/"
    viewer = person("vera", "view_webhookreceipt")
    assert "Stop" not in viewer.get(f"{page}change/").content.decode()
    assert viewer.post(f"{page}stop/").status_code == 403
    assert operator.get(f"{page}stop/").status_code == 405
    answer = operator.post(f"{page}stop/", follow=True)
    assert "no further receipt is touched" in answer.content.decode()
    assert WebhookBulkAction.objects.get().state == "stopped"
    assert "had ended before" in operator.post(f"{page}stop/", follow=True).content.decode()
    assert LogEntry.objects.get(object_id=str(action.pk)).get_change_message() == "Stopped."
    assert person("nobody").get(f"{page}change/").status_code == 403
    assert person("nobody2").post(f"{page}stop/").status_code == 403


def test_where_views_are_limited_only_own_actions_are_seen(operator, settings):
    operator.post(f"{LIST}bulk/retry/", {"rate": "1", "reason": "x"})
    make()
    operator.post(f"{LIST}bulk/retry/", {"rate": "1", "reason": "x"})
    other = person("olga", *RETRY)
    url = "/admin/django_webhook_guard/webhookbulkaction/"
    assert other.get(url).context["cl"].result_count == 2
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_scope.own"}
    assert other.get(url).context["cl"].result_count == 0
    assert operator.get(url).context["cl"].result_count == 2


def test_the_pages_are_for_who_may_see_receipts():
    for url in (ERRORS, "/admin/django_webhook_guard/webhookbulkaction/"):
        assert person(f"nobody{len(url)}").get(url).status_code == 403
        assert person(f"viewer{len(url)}", "view_webhookreceipt").get(url).status_code == 200


def test_who_may_not_retry_gets_no_buttons(broken):
    viewer = person("vera", "view_webhookreceipt")
    group = the_group(viewer)
    assert (group["probe_url"], group["retry_url"]) == ("", "")
    assert "Retry" not in viewer.get(ERRORS).content.decode().split("webhook-group", 1)[1]


def test_hostile_text_is_shown_harmlessly(operator, handler, post):
    handler("stripe", "*", name=f"pay {EVIL}"[:200])(lambda event: {}[EVIL])
    post("stripe", {"id": "evt_1", "type": f"invoice{EVIL}"[:100]})
    page = operator.get(ERRORS).content.decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_receipts_whose_run_was_killed_have_a_row_without_an_example(operator):
    make(), make()
    group = the_group(operator)
    assert (group["row"].dead, group["example_url"], group["probe_url"]) == (2, "", "")
    assert operator.get(group["retry_url"]).context["count"] == 2
    assert operator.get(ERRORS).status_code == 200
    assert WebhookReceipt.objects.filter(status="dead").count() == 2


# -- pause and resume --------------------------------------------------------------------------------------------------

SOURCES = f"{LIST}sources/"


@pytest.fixture
def chief(handler):
    handler("stripe", "invoice.*", name=f"pay {EVIL}"[:200])(lambda event: None)
    return person("anna", "view_webhookreceipt", "pause_webhookreceipt")


def test_a_source_is_paused_and_resumed_by_who_may(chief, operator, post):
    assert "Pause" not in operator.get(SOURCES).content.decode().split("webhook-sources", 1)[1]
    assert operator.post(SOURCES, {"source": "stripe", "pause": "1"}).status_code == 403
    assert person("nobody").get(SOURCES).status_code == 403
    answer = chief.post(SOURCES, {"source": "stripe", "handler": "", "reason": "bank", "pause": "1"}, follow=True)
    assert "“stripe” is paused" in answer.content.decode()
    pause = WebhookPause.objects.get()
    assert (pause.source, pause.handler, pause.actor, pause.reason) == ("stripe", "", "anna", "bank")
    for client in (chief, operator):
        page = client.get(LIST).content.decode()
        assert 'class="errornote"' in page and "<bdi>stripe</bdi>" in page
    assert post("stripe", {"id": "evt_1", "type": "invoice.paid"}).status_code == 202
    answer = chief.post(SOURCES, {"source": "stripe", "handler": "", "rate": "5", "resume": "1"}, follow=True)
    assert "goes on" in answer.content.decode()
    assert not WebhookPause.objects.exists()
    assert sweep() == {"processed": 1}
    assert 'class="errornote"' not in chief.get(LIST).content.decode()


def test_a_handler_is_paused_whatever_its_name(chief):
    name = f"pay {EVIL}"[:200]
    page = chief.post(SOURCES, {"source": "stripe", "handler": name, "pause": "1"}, follow=True).content.decode()
    assert WebhookPause.objects.get().handler == name
    assert "<script>alert" not in page
    assert "was paused before" in chief.post(
        SOURCES, {"source": "stripe", "handler": name, "pause": "1"}, follow=True
    ).content.decode()  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        {"source": "nonsense", "pause": "1"}, {"pause": "1"}, {"source": "stripe", "handler": "\0", "pause": "1"},
        {"source": "stripe", "handler": "x" * 9999, "pause": "1"},
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_paused(chief, data):
    assert "no such source" in chief.post(SOURCES, data, follow=True).content.decode()
    assert not WebhookPause.objects.exists()


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "x", "1e9"])
def test_a_rate_that_makes_no_sense_resumes_nothing(chief, rate):
    chief.post(SOURCES, {"source": "stripe", "pause": "1"})
    answer = chief.post(SOURCES, {"source": "stripe", "rate": rate, "resume": "1"}, follow=True)
    assert "Give a rate" in answer.content.decode()
    assert WebhookPause.objects.exists()


def test_the_pause_of_a_source_that_is_gone_can_be_ended(chief, sources):
    chief.post(SOURCES, {"source": "github", "pause": "1"})
    sources(github=None)
    assert "goes on" in chief.post(SOURCES, {"source": "github", "resume": "1"}, follow=True).content.decode()


class Narrowed(WebhookReceiptAdmin):
    def has_retry_permission(self, request, obj=None):
        return super().has_retry_permission(request, obj) and (obj is None or obj.tenant == "acme")


def test_where_a_subclass_asks_for_each_receipt_none_is_wished_for_many(rf, django_user_model):
    make(tenant="globex")
    request = rf.get(f"{LIST}bulk/retry/")
    request.user = django_user_model.objects.create_superuser("anna")
    narrowed = Narrowed(WebhookReceipt, site)
    with pytest.raises(PermissionDenied):
        narrowed.bulk_view(request, "retry")
    assert narrowed.bulk_view(request, "discard").status_code == 200
    assert WebhookReceiptAdmin(WebhookReceipt, site).bulk_view(request, "retry").status_code == 200

"""Who may see which receipts, and what of them, in the admin."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.test import RequestFactory
from django.utils.timezone import now

from django_webhook_guard import scope
from django_webhook_guard.models import WebhookAttempt, WebhookBatch, WebhookBulkAction, WebhookPause, WebhookReceipt
from tests.test_admin import LIST, make, page_of, person, selection

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def own(request):
    """Users see the receipts of the tenant that they are named after."""
    if request.user.is_superuser:
        return WebhookReceipt.objects.all()
    return WebhookReceipt.objects.filter(tenant=request.user.get_username())


def with_more(request):
    return own(request).order_by("pk").select_related("batch").distinct()


def sliced(request):
    return own(request)[:1]


def joined(request):
    """Each receipt as often as it has attempts."""
    return own(request).filter(attempt_rows__number__gt=0)


def united(request):
    return own(request).union(WebhookReceipt.objects.filter(tenant="umbrella"))


def counted(request):
    return own(request).annotate(tries=Count("attempt_rows")).values("pk", "tries")


def elsewhere(request):
    return own(request).using("other")


def nobody(request):
    return WebhookReceipt.objects.none()


def without_manager(request):
    return QuerySet(WebhookReceipt).none()


def distinct_on_a_field(request):
    return own(request).order_by("source").distinct("source")


def crossing(request):
    """A condition that one database cannot ask another."""
    return WebhookReceipt.objects.filter(pk__in=WebhookReceipt.objects.using("other").values("pk"))


def broken(request):
    raise LookupError(request.user)


def nonsense(request):
    return [1, 2]


def of_another_model(request):
    return WebhookBulkAction.objects.all()


@pytest.fixture
def limit(settings):
    def to(function):
        settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": f"tests.test_scope.{function.__name__}"}

    return to


EVERY = [f"{name}_webhookreceipt" for name in ("view", "retry", "release", "discard", "rerun", "settle", "pause")]


@pytest.fixture
def acme(limit):
    limit(own)
    return person("acme", *EVERY)


@pytest.fixture
def theirs():
    return make(tenant="globex", event_id="evt_secret", object_key="obj_secret", status="dead")


def test_the_list_holds_ones_own(acme, theirs):
    mine = make(tenant="acme")
    assert [row.pk for row in acme.get(LIST).context["cl"].result_list] == [mine.pk]
    for term in ("evt_secret", "obj_secret", theirs.pk, theirs.fingerprint, theirs.fingerprint[:16]):
        assert len(acme.get(LIST, {"q": term}).context["cl"].result_list) == 0


def test_anothers_receipt_is_not_there_whatever_is_asked_for(acme, theirs):
    shown = f"{theirs.pk}:{theirs.status}:{theirs.attempts}"
    nothing = acme.get(f"{LIST}{theirs.pk + 999}/change/")
    assert acme.get(page_of(theirs)).status_code == nothing.status_code
    for name in ("body", "rerun", "settle"):
        assert acme.get(f"{LIST}{theirs.pk}/{name}/").status_code == 404
    for name in ("retry", "release", "discard", "rerun", "settle"):
        assert acme.post(f"{LIST}{theirs.pk}/{name}/", {"shown": shown}).status_code == 404
    for action in ("retry_selected", "release_selected", "discard_selected"):
        data = {"action": action, "_selected_action": [theirs.pk], "shown": [shown], "confirmed": "yes"}
        acme.post(LIST, data)
    theirs.refresh_from_db()
    assert theirs.status == "dead"


def test_a_selection_of_all_is_of_ones_own(acme, theirs):
    mine = make(tenant="acme")
    acme.post(LIST, {**selection(acme, mine, theirs, across=True), "action": "retry_selected"})
    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert (mine.status, theirs.status) == ("received", "dead")
    assert not LogEntry.objects.filter(object_id=str(theirs.pk)).exists()


def test_what_was_done_to_anothers_receipt_cannot_be_read(acme, theirs, admin_client):
    admin_client.post(f"{LIST}{theirs.pk}/retry/", {"shown": f"{theirs.pk}:dead:3", "reason": "secret words"})
    assert LogEntry.objects.get().object_id == str(theirs.pk)
    for address in ("/admin/", f"{LIST}{theirs.pk}/history/"):
        page = acme.get(address, follow=True).content.decode()
        assert "secret words" not in page
        assert theirs.reference not in page


def test_a_failure_of_others_is_found_by_no_filter(acme, theirs, admin_client):
    WebhookAttempt.objects.create(
        receipt=theirs, number=theirs.attempts, trigger="admin", outcome="failed", error_class="SecretError",
        error_group="a" * 16, started_at=now(), duration_ms=1,
    )  # fmt: skip
    assert len(admin_client.get(LIST, {"error": "a" * 16}).context["cl"].result_list) == 1
    for key in ("a" * 16, "none"):
        assert len(acme.get(LIST, {"error": key}).context["cl"].result_list) == 0
    assert "SecretError" not in acme.get(f"{LIST}errors/").content.decode()


def test_groups_and_bulk_actions_count_ones_own(acme, theirs):
    assert acme.get(f"{LIST}errors/").context["rows"] == []
    assert acme.get(f"{LIST}bulk/retry/").context["count"] == 0
    acme.post(f"{LIST}bulk/retry/", {"rate": "10", "reason": "x"})
    assert WebhookBulkAction.objects.get().total == 0


def test_a_replay_of_anothers_receipt_does_not_name_it(acme, theirs):
    held = make(
        tenant="acme", status="quarantined", reason="replayed", result=f"first came as {theirs.fingerprint}",
    )  # fmt: skip
    page = acme.get(page_of(held)).content.decode()
    assert f"#{theirs.pk}" not in page
    assert theirs.fingerprint[:16] not in page


def test_a_superuser_may_be_let_see_all(limit, theirs, admin_client):
    limit(own)
    assert len(admin_client.get(LIST).context["cl"].result_list) == 1


@pytest.mark.parametrize("function", [with_more, joined, united, counted, elsewhere])
def test_any_queryset_without_a_slice_is_fine(limit, function):
    limit(function)
    mine = make(tenant="acme")
    for receipt in (mine, make(tenant="globex")):
        for number in (1, 2):
            WebhookAttempt.objects.create(
                receipt=receipt, number=number, trigger="admin", outcome="failed", started_at=now(), duration_ms=1
            )
    assert [row.pk for row in person("acme", *EVERY).get(LIST).context["cl"].result_list] == [mine.pk]


@pytest.mark.parametrize("function", [sliced, broken, nonsense, of_another_model, distinct_on_a_field, crossing])
def test_a_hook_that_fails_shows_nothing(limit, caplog, function):
    limit(function)
    make(tenant="acme")
    assert len(person("acme", *EVERY).get(LIST).context["cl"].result_list) == 0
    assert "RECEIPTS_FOR failed: nobody sees a receipt" in caplog.messages


@pytest.mark.parametrize("function", [nobody, without_manager])
def test_a_hook_may_let_somebody_see_nothing(limit, caplog, function):
    limit(function)
    make(tenant="acme")
    request = RequestFactory().get("/")
    assert not scope.receipts_of(request).due().exists()
    assert not scope.sees_all(request)
    assert caplog.messages == []


def test_a_condition_on_columns_is_asked_as_one(acme):
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="acme")
    assert "IN (SELECT" not in str(scope.receipts_of(request).query)


def test_who_sees_all_is_said_by_the_hook(limit, acme, admin_user):
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="acme")
    assert not scope.sees_all(request)
    request.user = admin_user
    assert scope.sees_all(request)


def test_a_source_is_paused_only_by_who_sees_all_of_it(acme, admin_client):
    assert acme.post(f"{LIST}sources/", {"source": "stripe", "pause": "yes", "reason": "x"}).status_code == 403
    assert 'name="pause"' not in acme.get(f"{LIST}sources/").content.decode()
    assert not WebhookPause.objects.exists()
    admin_client.post(f"{LIST}sources/", {"source": "stripe", "pause": "yes", "reason": "x"})
    assert WebhookPause.objects.exists()


@pytest.fixture
def shared(sources):
    """Two receipts of one body: acme's and globex's."""
    sources(stripe={"PROVIDER": "tests.test_batches.MANY"})
    moment = now()
    body = b'[{"id": "evt_1", "of": "acme"}, {"id": "evt_2", "of": "globex"}]'
    batch = WebhookBatch.objects.create(
        source="stripe", received_at=moment, items=2, body=body, body_digest="d" * 64, body_size=len(body)
    )
    about = {"batch": batch, "body": None, "received_at": moment, "body_size": len(body)}
    return make(tenant="acme", item=0, **about), make(tenant="globex", item=1, **about)


def test_of_a_body_that_brought_others_events_ones_own_are_shown(acme, shared):
    page = acme.get(page_of(shared[0])).content.decode()
    assert "&quot;acme&quot;" in page
    assert "&quot;globex" not in page
    assert "/body/" not in page
    assert acme.get(f"{LIST}{shared[0].pk}/body/").status_code == 403


def test_who_sees_every_event_of_a_body_may_have_it(acme, shared, admin_client):
    assert b"evt_2" in admin_client.get(f"{LIST}{shared[0].pk}/body/").content
    WebhookReceipt.objects.update(tenant="acme")
    assert b"evt_2" in acme.get(f"{LIST}{shared[0].pk}/body/").content
    shared[1].delete()  # nobody can say any more whose it was
    assert acme.get(f"{LIST}{shared[0].pk}/body/").status_code == 403


def test_without_a_hook_everybody_sees_all():
    make()
    request = RequestFactory().get("/")
    assert scope.receipts_of(request).count() == 1


# -- personal values ---------------------------------------------------------------------------------------------------

BODY = b'{"id": "evt_1", "customer": {"email": "ada@example.org"}, "amount": 1.50}'


@pytest.fixture
def personal(sources):
    sources(stripe={"PERSONAL": ["customer.email"]})


@pytest.mark.parametrize("more", [[], ["view_webhookreceipt_payload"]])
def test_personal_values_are_for_who_may_see_them(personal, more):
    client = person("vera", "view_webhookreceipt", *more)
    receipt = make(body=BODY)
    page = client.get(page_of(receipt)).content.decode()
    assert ("ada@example.org" in page) is bool(more)
    assert "1.5" in page
    assert client.get(f"{LIST}{receipt.pk}/body/").status_code == (200 if more else 403)
    assert ("/body/" in page) is bool(more)


@pytest.mark.parametrize(
    "body", [b"not json ada@example.org", b'{"customer": "' + b"x" * 70_000 + b'ada@example.org"}', b'{"a": NaN}', b""]
)
def test_what_cannot_be_masked_is_not_shown(personal, body):
    page = person("vera", "view_webhookreceipt").get(page_of(make(body=body))).content.decode()
    assert "ada@example.org" not in page
    assert "•••" in page


def test_an_expired_body_has_expired(personal):
    page = person("vera", "view_webhookreceipt").get(page_of(make(body=None))).content.decode()
    assert "has expired" in page


def test_of_a_source_that_is_not_configured_any_more_nothing_is_shown(personal):
    page = person("vera", "view_webhookreceipt").get(page_of(make(source="gone", body=BODY))).content.decode()
    assert "ada@example.org" not in page


def test_without_personal_paths_everybody_sees_the_body():
    receipt = make(body=BODY)
    client = person("vera", "view_webhookreceipt")
    assert "ada@example.org" in client.get(page_of(receipt)).content.decode()
    assert client.get(f"{LIST}{receipt.pk}/body/").status_code == 200

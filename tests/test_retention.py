"""What is let go, what stays, and why."""

import json
from datetime import timedelta
from hashlib import sha256
from threading import Barrier, Thread

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_webhook_guard import processing, retention, statements
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models import (
    WebhookAttempt,
    WebhookBatch,
    WebhookCheckpoint,
    WebhookCount,
    WebhookReceipt,
    WebhookSeen,
    WebhookVersion,
    receipts,
)
from django_webhook_guard.models.receipts import FINISHED, Status
from django_webhook_guard.retention import Kept, prune
from django_webhook_guard.secrets import Secret
from tests import senders
from tests.project.models import Effect, Note

pytestmark = pytest.mark.django_db(databases=["default", "other"])
STRIPE_KEY = Secret(senders.STRIPE_SECRET).key_id
GITHUB_KEY = Secret(senders.GITHUB_SECRET).key_id
PARTNER_KEY = Secret(senders.PARTNER_SECRET).key_id
OPEN = sorted(set(Status.values) - set(FINISHED))
#: Days for which Stripe sends again by itself or by hand, and the window.
STRIPE_SPAN = 33 + 600 / 86_400


@pytest.fixture(autouse=True)
def _nothing_of_the_projects_refers_to_receipts(monkeypatch, request):
    if "referring" not in request.keywords:
        monkeypatch.setattr(receipts, "_referring", lambda: ())


def at(days):
    return timezone.now() - timedelta(days=days)


def fingerprint(text):
    return sha256(text.encode()).hexdigest()


def unsaved(days, name="evt_1", **values):
    """A finished receipt of an event that came so many days ago."""
    moment = at(days)
    known = {
        "fingerprint": fingerprint(name), "event_id": name, "source": "stripe", "event_type": "x", "key_origin": "id",
        "key_id": STRIPE_KEY, "status": "processed", "attempts": 1, "signed_at": moment, "received_at": moment,
        "processed_at": moment, "last_delivered_at": moment, "budget_from": moment, "headers": {"content-type": "text"},
        "body": b"{}", "body_size": 2, "body_digest": "d", "handlers": ["h"], "result": "done",
    }  # fmt: skip
    return WebhookReceipt(**{**known, **values})


def make(days, name="evt_1", **values):
    receipt = unsaved(days, name, **values)
    receipt.save()
    return receipt


def unstamped(days, name="evt_1", **values):
    """A receipt of GitHub, which signs no time."""
    return make(days, name, **{"source": "github", "key_id": GITHUB_KEY, "signed_at": None, **values})


def names():
    return sorted(WebhookReceipt.objects.values_list("event_id", flat=True))


def told(done):
    return done.bodies, done.headers, done.rows, done.seen


def both(**options):
    """Prune, after a dry run that must count the same and change nothing."""
    before = everything()
    counted = prune(dry_run=True, **options)
    assert everything() == before
    done = prune(**options)
    assert done == counted
    return done


def everything():
    models = (WebhookReceipt, WebhookBatch, WebhookAttempt, WebhookCheckpoint, WebhookSeen)
    return [list(model.objects.order_by("pk").values()) for model in models]


# -- what expires ------------------------------------------------------------------------------------------------------


def test_nothing_goes_before_its_time():
    make(29.9)
    assert told(both()) == (0, 0, 0, 0)


def test_a_body_goes_and_the_row_stays():
    kept = WebhookReceipt.objects.values().get(pk=make(30.1).pk)
    assert told(both()) == (1, 1, 0, 0)
    assert WebhookReceipt.objects.values().get() == {**kept, "body": None, "headers": {}}
    assert told(both()) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("days", "expired"),
    [
        ({"body": 7}, (1, 0)),
        ({"headers": 7}, (0, 1)),
        ({"body": None, "headers": 0}, (0, 1)),
        ({"body": 0.5, "headers": None}, (1, 0)),
        ({"body": 9}, (0, 0)),
    ],
)
def test_body_and_headers_have_days_of_their_own(sources, days, expired):
    sources(stripe={"RETENTION": days})
    make(8)
    assert told(both())[:2] == expired


@pytest.mark.parametrize("body", [b"", b"\0\xff" * 9])
def test_a_body_of_any_kind_goes_once(body):
    make(31, body=body, headers={})
    assert told(both()) == (1, 0, 0, 0)
    assert told(both()) == (0, 0, 0, 0)


def test_the_age_counts_from_the_end():
    make(40, "ended lately", processed_at=at(1))
    make(40, "never said when", status="ignored", processed_at=None)
    assert told(both()) == (1, 1, 0, 0)
    assert WebhookReceipt.objects.get(body=None).event_id == "never said when"


def test_none_keeps_for_ever(sources):
    sources(stripe={"RETENTION": {"body": None, "headers": None, "row": None}})
    make(9_000)
    assert told(both()) == (0, 0, 0, 0)


def test_where_all_is_kept_nothing_is_read(settings, django_assert_num_queries):
    keep = {"body": None, "headers": None, "row": None}
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RETENTION": keep}
    make(9_000)
    with django_assert_num_queries(3):  # expired messages, old counts and samples alone
        assert prune().read == 0


# -- which rows go -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", FINISHED)
def test_a_finished_row_goes(status):
    make(400.1, status=status)
    make(399.9, "evt_2", status=status)
    assert told(both()) == (1, 1, 1, 0)
    assert names() == ["evt_2"]


@pytest.mark.parametrize("status", OPEN)
def test_what_is_not_finished_stays_as_it_is(status):
    make(9_000, status=status)
    before = WebhookReceipt.objects.values().get()
    done = both()
    assert told(done) == (0, 0, 0, 0)
    assert done.kept == {Kept.UNFINISHED: 1}
    assert WebhookReceipt.objects.values().get() == before


@pytest.mark.parametrize(("days", "goes"), [(STRIPE_SPAN - 0.001, False), (STRIPE_SPAN + 0.001, True)])
@pytest.mark.parametrize("row", [0, 7])
def test_no_row_goes_while_its_sender_may_send_again(sources, row, days, goes):
    sources(stripe={"RETENTION": {"row": row}})
    make(days)
    done = both()
    assert done.rows == goes
    assert done.kept == ({} if goes else {Kept.COMES_AGAIN: 1})


def test_without_a_window_only_the_sender_counts(sources):
    sources(stripe={"TOLERANCE": None, "RETENTION": {"unstamped_row": 1}})
    make(33.001)
    make(32.999, "evt_2")
    assert both().kept == {Kept.COMES_AGAIN: 1}
    assert names() == ["evt_2"]


def test_each_source_has_its_own_days(sources):
    sources(stripe={"RETENTION": {"row": 50}}, partner={"RETENTION": {"row": None}})
    make(60, "stripe")
    make(9_000, "partner", source="partner", key_id=PARTNER_KEY)
    unstamped(60, "github")
    assert told(both()) == (2, 2, 1, 0)
    assert names() == ["github", "partner"]


def test_a_former_name_goes_by_its_source(sources):
    sources(stripe={"FORMERLY": ["pay"], "RETENTION": {"row": 50}})
    make(60, source="pay")
    assert both().rows == 1


# -- the only guard against a replay -----------------------------------------------------------------------------------

ROTATED = [senders.GITHUB_SECRET, {"id": "old", "secret": "0ld-0123456789abcdef", "not_after": "2020-01-01"}]


def test_an_unstamped_row_stays_while_its_key_is_accepted(sources):
    sources(github={"SECRETS": ROTATED})
    unstamped(9_000, "live")
    unstamped(9_000, "rotated", key_id="old")
    unstamped(9_000, "removed", key_id="0a0b0c0d")
    unstamped(9_000, "unknown", key_id="")
    unstamped(399, "young", key_id="old")
    done = both()
    assert done.rows == 2
    assert names() == ["live", "unknown", "young"]
    assert done.kept == {Kept.KEY_LIVES: 1, Kept.KEY_UNKNOWN: 1}
    assert (done.bodies, done.headers) == (3, 3)  # of those that stay


@pytest.mark.parametrize("options", [{"TOLERANCE": None}, {"LATE": "quarantine"}])
def test_a_stamp_that_keeps_nothing_out_counts_for_none(sources, options):
    sources(stripe={**options, "RETENTION": {"row": 50}})
    make(60)
    make(60, "evt_2", key_id="gone")
    assert both().kept == {Kept.KEY_LIVES: 1}
    assert names() == ["evt_1"]


def secrets_for(source, tenant):
    return [Secret(senders.GITHUB_SECRET)]


def test_with_a_look_up_nobody_can_know_whether_the_key_is_gone(sources):
    sources(github={"SECRETS": "tests.test_retention.secrets_for"})
    unstamped(9_000, key_id="gone")
    assert both().kept == {Kept.KEY_UNKNOWN: 1}


def test_a_key_that_another_source_of_the_namespace_accepts_is_not_gone(sources):
    shared = {"PROVIDER": "github", "NAMESPACE": "code"}
    other = {**shared, "SECRETS": [senders.GITHUB_SECRET]}
    sources(github={**shared, "SECRETS": ["0ther-0123456789abcdef"]}, second=other)
    unstamped(9_000)
    assert both().kept == {Kept.KEY_LIVES: 1}
    sources(second={"NAMESPACE": "other"})
    assert both().rows == 1


@pytest.mark.parametrize("days", [50, 50.5])
def test_days_of_its_own_decide_alone(sources, days):
    sources(github={"RETENTION": {"row": 2_000, "unstamped_row": days}})
    unstamped(51)
    unstamped(49, "evt_2")
    assert told(both()) == (1, 1, 1, 0)
    assert names() == ["evt_2"]


def test_an_unstamped_row_may_be_kept_for_ever(sources):
    sources(github={"RETENTION": {"unstamped_row": None}})
    unstamped(9_000, key_id="gone")
    assert told(both()) == (1, 1, 0, 0)


def test_days_of_unstamped_rows_are_not_those_of_stamped_ones(sources):
    sources(stripe={"RETENTION": {"row": None, "unstamped_row": 50}})
    make(9_000)
    assert both().rows == 0


def test_a_replay_meets_the_row_that_stayed(post, handler):
    handler("github", "*", name="h")(lambda event: Effect.objects.create(name=event.event_id))
    body = {"a": 1}
    headers = senders.github(senders.dumps(body))
    assert post("github", body, headers=headers).json()["status"] == "processed"
    old = at(9_000)
    WebhookReceipt.objects.update(received_at=old, processed_at=old)
    assert told(both()) == (1, 1, 0, 0)
    assert post("github", body, headers=headers).json()["status"] == "duplicate"
    other = {**headers, "X-GitHub-Delivery": "11111111-2222-3333-4444-555555555555"}
    assert post("github", body, headers=other).json()["status"] == "quarantined"
    assert Effect.objects.count() == 1


def test_of_a_source_that_is_gone_age_alone_counts(sources, settings):
    sources(github=None, stripe=None)
    unstamped(401)
    make(399, "evt_2")
    make(401, "evt_3", status="failed")
    assert told(both()) == (1, 1, 1, 0)
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RETENTION": {"row": 3}}
    make(4, "evt_4")
    assert both().rows == 2
    assert names() == ["evt_3"]


# -- counts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry", [True, False])
def test_counts_go_after_35_days(dry):
    now = int(timezone.now().timestamp()) // 60
    for days in (34.9, 35.1, 36):
        WebhookCount.objects.create(minute=now - int(days * 1440), source="stripe", decision="rejected", count=7)
    assert prune(dry_run=dry, batch=1).counts == 2
    assert WebhookCount.objects.count() == (3 if dry else 1)


# -- what hangs on a row -----------------------------------------------------------------------------------------------


def hang(receipt, using="default", seen=True):
    """Give a receipt one row of everything."""
    statements.insert_checkpoint(using, receipt.fingerprint, "h", "done", "", 1)
    if using == "default":
        WebhookAttempt.objects.create(
            receipt=receipt, number=1, trigger="sweeper", outcome="failed", started_at=at(1), duration_ms=1
        )
    if using == "default" and seen:
        statements.insert_seen(using, fingerprint(f"seen {receipt.event_id}"), receipt.fingerprint, None)


def hanging(using="default"):
    """Names of receipts' fingerprints that have rows somewhere, by table."""
    marks = WebhookCheckpoint.objects.using(using).values_list("fingerprint", flat=True)
    if using != "default":
        return sorted(marks)
    seen = WebhookSeen.objects.values_list("fingerprint", flat=True)
    return sorted(marks), sorted(seen), sorted(WebhookAttempt.objects.values_list("receipt_id", flat=True))


def test_with_a_row_goes_all_that_hangs_on_it():
    old, young = make(401), make(399, "evt_2")
    hang(old)
    hang(young)
    assert told(both()) == (1, 1, 1, 1)
    assert hanging() == ([young.fingerprint], [young.fingerprint], [young.pk])


def test_every_table_that_names_a_fingerprint_or_a_receipt_is_cleaned():
    tables = apps.get_app_config("django_webhook_guard").get_models()
    columns = {model: {field.name for field in model._meta.fields} for model in tables if model is not WebhookReceipt}
    named = {model for model in columns if "fingerprint" in columns[model]}
    assert named - {WebhookVersion} == set(retention.BY_FINGERPRINT)  # how an object stands outlives the event
    assert {model for model in columns if "receipt" in columns[model]} == {WebhookAttempt}


@pytest.mark.referring
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_rows_of_the_project_that_refer_to_a_receipt_are_treated_as_they_say():
    old, moved = make(401), make(401, "evt_2")
    note, other = Note.objects.create(receipt=old), Note.objects.create(receipt=moved)
    hang(old)
    chosen = WebhookReceipt.objects.filter(pk__in=[old.pk, moved.pk], attempts=1)
    WebhookReceipt.objects.filter(pk=moved.pk).update(attempts=2)
    assert chosen.remove() == 1
    note.refresh_from_db()
    other.refresh_from_db()
    assert (note.receipt, other.receipt) == (None, moved)
    WebhookReceipt.objects.filter(pk=moved.pk).update(attempts=1)
    assert prune().rows == 1
    assert Note.objects.filter(receipt=None).count() == 2


def test_marks_on_databases_of_handlers_go_as_well(handler):
    handler("stripe", "*", name="h", using="other")(lambda event: None)
    old, young = make(401), make(399, "evt_2")
    hang(old, "other")
    hang(young, "other")
    assert prune(dry_run=True).rows == 1
    assert len(hanging("other")) == 2
    assert prune().rows == 1
    assert hanging("other") == [young.fingerprint]


@pytest.mark.parametrize("away", ["nowhere", "other"])
def test_a_database_that_is_away_is_a_warning(handler, monkeypatch, caplog, away):
    handler("stripe", "*", name="h", using=away)(lambda event: None)
    real = retention._delete_of

    def fails(using, *args):
        if using == "other":
            raise OperationalError("away")
        return real(using, *args)

    monkeypatch.setattr(retention, "_delete_of", fails)
    make(401)
    assert prune().rows == 1
    (line,) = [record.getMessage() for record in caplog.records if "webhook_prune" in record.msg]
    assert f"'{away}'" in line and "1 deleted receipts" in line


def test_an_event_whose_receipt_is_gone_is_a_new_one(post, handler):
    handler("partner", "*", name="h")(lambda event: Effect.objects.create(name=event.event_id))
    post("partner", {"type": "x"}, key="order-1")
    post("partner", {"type": "x"}, key="order-2")
    old = at(401)
    WebhookReceipt.objects.update(received_at=old, processed_at=old)
    WebhookSeen.objects.update(expires_at=old)
    assert told(both()) == (0, 0, 2, 2)
    assert post("partner", {"type": "x"}, key="order-1").json()["status"] == "processed"
    assert Effect.objects.count() == 3


# -- seen messages -----------------------------------------------------------------------------------------------------


def see(number, expires_at):
    return WebhookSeen(digest=fingerprint(f"d{number}"), fingerprint=fingerprint(f"f{number}"), expires_at=expires_at)


def test_seen_messages_go_when_they_are_over(sources):
    now = timezone.now()
    times = [now - timedelta(seconds=310), now - timedelta(seconds=10), now + timedelta(days=1), None]
    WebhookSeen.objects.bulk_create(see(number, moment) for number, moment in enumerate(times))
    assert told(both()) == (0, 0, 0, 1)  # the window, 300 seconds, may have been shorter when they were seen
    assert WebhookSeen.objects.count() == 3
    sources(stripe={"TOLERANCE": None}, github={"TOLERANCE": None}, partner={"TOLERANCE": 5})
    assert told(both()) == (0, 0, 0, 1)
    assert WebhookSeen.objects.filter(expires_at__lt=now).count() == 0


def test_seen_messages_go_in_batches():
    WebhookSeen.objects.bulk_create(see(number, at(1)) for number in range(25))
    assert prune(batch=10).seen == 25


def test_a_seen_message_counts_once():
    old = make(401)
    WebhookSeen.objects.create(digest=fingerprint("a"), fingerprint=old.fingerprint, expires_at=at(300))
    WebhookSeen.objects.create(digest=fingerprint("b"), fingerprint=old.fingerprint)
    assert told(both()) == (0, 0, 1, 2)


# -- batches -----------------------------------------------------------------------------------------------------------


def batch_of(days, *items, body=b"[{}]"):
    """A webhook batch whose items are (status, days since its end)."""
    moment = at(days)
    batch = WebhookBatch.objects.create(
        source="stripe", received_at=moment, items=len(items), body=body, body_digest="d", body_size=4
    )
    for number, (status, ended) in enumerate(items):
        make(
            days, f"item {batch.pk} {number}", batch=batch, item=number, status=status, body=None,
            processed_at=at(ended), received_at=moment, headers={},
        )  # fmt: skip
    return batch


@pytest.mark.parametrize(
    ("items", "expires"),
    [
        ([("processed", 31), ("ignored", 31), ("discarded", 40)], True),
        ([("processed", 31), ("processed", 29)], False),
        ([("processed", 31), ("dead", 31)], False),
        ([("failed", 31)], False),
    ],
)
def test_the_body_of_a_batch_goes_when_all_of_it_is_finished(items, expires):
    batch = batch_of(40, *items)
    other = batch_of(41, ("received", 41))
    assert told(both()) == (expires, 0, 0, 0)
    batch.refresh_from_db()
    other.refresh_from_db()
    assert (batch.body is None) is expires
    assert other.body is not None and batch.body_size == 4
    assert told(both()) == (0, 0, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_batch_goes_with_its_last_receipt(size):
    batch_of(450, *[("processed", 401)] * 5)
    rest = batch_of(451, *[("processed", 401)] * 3, ("failed", 401))
    assert told(both(batch=size)) == (0, 0, 8, 0)
    assert list(WebhookBatch.objects.all()) == [rest]
    assert rest.own_receipts().get().raw_body == b"[{}]"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_dry_run_counts_batches_whose_younger_items_would_go(sources, size):
    sources(stripe={"RETENTION": {"body": 60, "row": 0}})
    batch_of(90, ("processed", 34), ("failed", 90), ("processed", 70))
    both(batch=size)
    WebhookReceipt.objects.filter(status="failed").update(status="processed", processed_at=at(1))
    both(batch=size)
    sources(stripe={"RETENTION": {"body": 20, "row": 40}})
    batch_of(80, ("processed", 39), ("processed", 41), ("processed", 25))
    both(batch=size)


# -- the walk ----------------------------------------------------------------------------------------------------------


def test_many_receipts_go_in_batches():
    plan = [(401, "processed"), (31, "ignored"), (1, "processed"), (401, "dead"), (500, "discarded")]
    WebhookReceipt.objects.bulk_create(
        unsaved(plan[each % 5][0], f"evt_{each}", status=plan[each % 5][1]) for each in range(2_500)
    )
    reported = []
    assert told(both()) == (500, 500, 1_000, 0)
    assert WebhookReceipt.objects.count() == 1_500
    done = prune(report=lambda last, total: reported.append((last, total.read)))
    assert [read for _, read in reported] == [1_000, 1_500]
    assert reported[-1][0] == WebhookReceipt.objects.latest("pk").pk
    assert done.kept == {Kept.UNFINISHED: 500}


def test_the_walk_ends_where_all_are_young():
    for number, days in enumerate([401, 35, 29, 28, 27, 26, 35]):
        make(days, f"evt_{number}")
    assert prune(batch=2, dry_run=True).read == 2
    assert prune(batch=3, dry_run=True).read == 3
    assert prune(batch=1000, dry_run=True).read == 7


def test_a_batch_can_not_be_too_large_for_a_database(monkeypatch):
    monkeypatch.setattr(retention, "MAX_BATCH", 2)
    for number in range(5):
        hang(make(401, f"evt_{number}"))
    assert told(prune(batch=10**6)) == (0, 0, 5, 5)
    assert hanging() == ([], [], [])


def test_bodies_are_not_read():
    make(31, body=b"x" * 1000)
    with CaptureQueriesContext(connection) as queries:
        prune()
    read = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    assert read and not any('"body",' in sql or "`body`," in sql for sql in read)


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"RETENTION": {"row": -1}},
        {"SECRETS": "no.such.callable"},
        {"SECRETS": ["short"]},
        {"PROVIDER": "no.such.PROVIDER"},
    ],
)
def test_nothing_goes_while_the_setting_is_wrong(sources, options):
    make(9_000)
    sources(stripe=options)
    with pytest.raises(Misconfigured, match=r"'stripe'.*Nothing was pruned"):
        prune()
    assert names() == ["evt_1"]


def test_nothing_goes_while_the_default_is_wrong(settings):
    make(9_000, source="gone")
    settings.WEBHOOK_GUARD = {"RETENTION": {"days": 3}, "SOURCES": {}}
    with pytest.raises(Misconfigured, match=r"RETENTION is \{'days': 3\}"):
        prune()


# -- others at the same time -------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something between the reading and the deleting of a batch."""

    def arrange(work):
        carry_out = retention._carry_out

        def late(job, plan):
            monkeypatch.setattr(retention, "_carry_out", carry_out)
            work()
            return carry_out(job, plan)

        monkeypatch.setattr(retention, "_carry_out", late)

    return arrange


@pytest.mark.parametrize("change", [{"status": "processing"}, {"attempts": 2}, {"status": "received"}])
def test_a_receipt_that_moves_on_is_left_alone_with_all_it_has(meanwhile, change):
    moved, other = make(401, status="ignored"), make(401, "evt_2", status="ignored")
    hang(moved)
    hang(other)
    meanwhile(lambda: WebhookReceipt.objects.filter(pk=moved.pk).update(**change))
    done = prune()
    assert told(done) == (0, 0, 1, 1)
    assert done.kept == {Kept.MOVED_ON: 1}
    assert hanging() == ([moved.fingerprint], [moved.fingerprint], [moved.pk])
    assert WebhookReceipt.objects.get().raw_body == b"{}"


def test_a_body_that_is_needed_again_stays(meanwhile):
    make(31, status="ignored")
    meanwhile(lambda: WebhookReceipt.objects.update(status="processing", attempts=2))
    assert told(prune()) == (0, 0, 0, 0)
    assert WebhookReceipt.objects.get().raw_body == b"{}"


def test_the_body_of_a_batch_that_is_needed_again_stays(meanwhile):
    batch = batch_of(40, ("ignored", 31))
    meanwhile(lambda: WebhookReceipt.objects.update(status="processing", attempts=2))
    assert told(prune()) == (0, 0, 0, 0)
    batch.refresh_from_db()
    assert batch.body is not None


def test_an_event_that_came_anew_meanwhile_keeps_what_is_its_own(meanwhile):
    old = make(401)

    def anew():
        WebhookReceipt.objects.all().delete()
        hang(make(0))

    meanwhile(anew)
    assert prune().rows == 0
    assert hanging() == ([old.fingerprint], [old.fingerprint], [WebhookReceipt.objects.get().pk])


def test_a_pass_that_another_one_overtakes_counts_nothing_twice(meanwhile):
    hang(make(401))
    make(31, "evt_2")
    overtaken = []
    meanwhile(lambda: overtaken.append(told(prune())))
    assert told(prune()) == (0, 1, 0, 0)  # headers are written again
    assert overtaken == [(1, 1, 1, 1)]
    assert hanging() == ([], [], [])


@pytest.mark.django_db(transaction=True)
def test_two_passes_and_deliveries_at_once_do_no_harm(post, handler):
    if connection.vendor == "sqlite":
        pytest.skip("threads on one database in memory lock each other out")
    handler("partner", "*", name="h")(lambda event: Effect.objects.create(name=event.event_id))
    WebhookReceipt.objects.bulk_create(unsaved(401, f"evt_{each}") for each in range(300))
    WebhookSeen.objects.bulk_create(see(f"evt_{each}", None) for each in range(300))
    WebhookSeen.objects.bulk_create(
        WebhookSeen(digest=fingerprint(f"s{each}"), fingerprint=fingerprint(f"evt_{each}")) for each in range(300)
    )
    barrier, done, answers = Barrier(3), [], []

    def pruning():
        barrier.wait()
        done.append(prune(batch=20))
        connections.close_all()

    def delivering():
        barrier.wait()
        for each in range(60):
            answers.append(post("partner", {"type": "x"}, key=f"order-{each}").status_code)
        connections.close_all()

    threads = [Thread(target=work) for work in (pruning, pruning, delivering)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 60
    assert sum(each.rows for each in done) == 300 and sum(each.seen for each in done) == 300
    assert Effect.objects.count() == WebhookReceipt.objects.count() == 60
    assert WebhookSeen.objects.count() == 300 + 60


@pytest.mark.django_db(transaction=True)
def test_an_error_in_the_middle_leaves_whole_batches_done(monkeypatch):
    for number in range(6):
        hang(make(401, f"evt_{number}"))
    present, calls = statements.present, []

    def fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OperationalError("gone away")
        return present(*args)

    monkeypatch.setattr(statements, "present", fails)
    with pytest.raises(OperationalError):
        prune(batch=2)
    assert names() == ["evt_2", "evt_3", "evt_4", "evt_5"]
    assert [len(rows) for rows in hanging()] == [4, 4, 4]
    assert prune(batch=2).rows == 4


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("days", [31, 401])
def test_a_pass_refuses_an_outer_transaction(days):
    make(days)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        prune()


# -- what comes after --------------------------------------------------------------------------------------------------


def test_an_ignored_event_whose_body_has_expired_does_not_run_without_it(post, handler):
    assert post("github", {"a": 1}, headers=(signed := senders.github(b'{"a": 1}'))).json()["status"] == "ignored"
    WebhookReceipt.objects.update(received_at=at(31), processed_at=at(31))
    assert told(both()) == (1, 1, 0, 0)
    called = []
    handler("github", "*", name="one")(called.append)
    handler("github", "*", name="two", atomic=False)(called.append)
    assert post("github", {"a": 1}, headers=signed).json()["status"] == "gave_up"
    receipt = WebhookReceipt.objects.get()
    assert (receipt.status, receipt.reason, called) == ("dead", "gave_up", [])
    assert set(WebhookCheckpoint.objects.values_list("handler", "mark")) == {("one", "gave_up"), ("two", "gave_up")}
    assert "The body has expired" in WebhookAttempt.objects.get().message
    assert both().kept == {}  # dead: it waits for a person


def test_an_empty_body_has_not_expired(post, handler):
    receipt = make(1, status="received", body=b"", attempts=0)
    seen = []
    handler("stripe", "*", name="h")(lambda event: seen.append(event.body))
    assert processing.run(receipt.pk, "sweeper").status == "processed"
    assert seen == [b""]


def test_d10_only_finished_receipts_go_and_the_key_outlives_the_body(post, handler, sources):
    """Purge older than 30 days, with old receipts in several states; then redeliver what was purged."""
    sources(stripe={"RETENTION": {"body": 30, "headers": 30, "row": 30}})
    handler("stripe", "*", name="h")(lambda event: Effect.objects.create(name=event.event_id))
    for name in ("evt_processed", "evt_failed", "evt_processing"):
        assert post("stripe", {"id": name, "type": "x"}).status_code == 200

    def age(days):
        WebhookReceipt.objects.update(received_at=at(days), processed_at=at(days))
        for status in ("failed", "processing"):
            WebhookReceipt.objects.filter(event_id=f"evt_{status}").update(status=status, due_at=at(-1))

    age(31)
    done = both()
    assert told(done) == (1, 1, 0, 0)  # the row has to outlive what the sender may send again
    assert done.kept == {Kept.COMES_AGAIN: 1, Kept.UNFINISHED: 2}
    assert post("stripe", {"id": "evt_processed", "type": "x"}).json()["status"] == "duplicate"
    age(34)
    assert told(both()) == (0, 0, 1, 0)
    assert names() == ["evt_failed", "evt_processing"]
    assert {bytes(receipt.body)[:1] for receipt in WebhookReceipt.objects.all()} == {b"{"}
    assert Effect.objects.count() == 3
    assert post("stripe", {"id": "evt_processed", "type": "x"}).json()["status"] == "processed"
    assert Effect.objects.count() == 4  # past every guard: nothing is left that could know it


def test_handlers_results_and_answers_stay(post, handler):
    handler("stripe", "*", name="h")(lambda event: "made invoice 7")
    content = {"id": "evt_1", "type": "x"}
    first = post("stripe", content).json()
    WebhookReceipt.objects.update(received_at=at(100), processed_at=at(100))
    assert told(both()) == (1, 1, 0, 0)
    assert post("stripe", content).json() == {**first, "status": "duplicate"}
    receipt = WebhookReceipt.objects.get()
    assert (receipt.handlers, receipt.result) == (["h"], "made invoice 7")
    assert receipt.body_digest == sha256(json.dumps(content).encode()).hexdigest()


def test_the_migrations_need_no_change():
    call_command("makemigrations", "django_webhook_guard", check=True, dry_run=True, verbosity=0)

"""``event.supersedes``, ``object_key=`` and ``version=``: events that come out of order. And ``fetch=``."""

from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.utils import timezone

from django_webhook_guard import ordering, processing
from django_webhook_guard.exceptions import GiveUp, RetryLater
from django_webhook_guard.handlers import unregister, webhook_handler
from django_webhook_guard.models import WebhookAttempt, WebhookCheckpoint, WebhookReceipt, WebhookVersion
from django_webhook_guard.models.effects import VersionQuerySet
from django_webhook_guard.transactions import Conflict
from tests.project.models import Effect

pytestmark = pytest.mark.django_db


def at(seconds):
    return timezone.now() + timedelta(seconds=seconds)


@pytest.fixture
def deliver(post):
    def send(event_id, version, object_key="order-1", source="stripe"):
        content = {"id": event_id, "type": "x", "version": version, "order": object_key}
        return post(source, content)

    return send


def latest(event):
    """Write the version, if it is not stale."""
    if event.supersedes(event.data["order"], event.data["version"]):
        Effect.objects.create(name=str(event.data["version"]))
    return None


def strictly(event):
    if event.supersedes(event.data["order"], event.data["version"], strict=True):
        Effect.objects.create(name=str(event.data["version"]))


def effects():
    return list(Effect.objects.order_by("pk").values_list("name", flat=True))


@pytest.mark.parametrize("atomic", [True, False])
def test_an_older_version_after_a_newer_one_does_not_take_effect(handler, deliver, atomic):
    handler("stripe", "*", name="h", atomic=atomic)(latest)
    for number, version in enumerate([1, 3, 2, 4]):
        assert deliver(f"evt_{number}", version).status_code == 200
    assert effects() == ["1", "3", "4"]


def test_two_events_of_one_second_both_take_effect(handler, deliver):
    handler("stripe", "*", name="h")(latest)
    deliver("evt_1", 1_700_000_000)
    deliver("evt_2", 1_700_000_000)
    assert len(effects()) == 2


def test_of_true_sequence_numbers_an_equal_one_is_stale(handler, deliver):
    handler("stripe", "*", name="h")(strictly)
    deliver("evt_1", 7)
    deliver("evt_2", 7)
    assert effects() == ["7"]


@pytest.mark.parametrize("work", [latest, strictly])
def test_a_receipt_is_never_superseded_by_itself(handler, deliver, work):
    def fails_first(event):
        work(event)
        if event.attempt == 1:
            raise ValueError

    handler("stripe", "*", name="h", atomic=False)(fails_first)
    deliver("evt_1", 7)
    WebhookReceipt.objects.update(due_at=at(-1))
    assert processing.run(WebhookReceipt.objects.get().pk, "sweeper").status == "processed"
    assert len(effects()) == 2


def test_a_failed_attempt_of_an_atomic_handler_leaves_no_mark(handler, deliver):
    def fails_first(event):
        assert event.supersedes("order-1", event.data["version"])
        if event.attempt == 1:
            raise ValueError

    handler("stripe", "*", name="h")(fails_first)
    deliver("evt_1", 7)
    assert not WebhookVersion.objects.exists()


def test_handlers_and_objects_decide_for_themselves(handler, deliver):
    handler("stripe", "*", name="a")(latest)
    deliver("evt_1", 3)
    handler("stripe", "*", name="b")(lambda event: latest(event))
    deliver("evt_2", 2)
    deliver("evt_3", 2, "order-2")
    assert effects() == ["3", "2", "2", "2"]


def test_namespaces_and_tenants_decide_for_themselves(handler, deliver, sources):
    secret = "whsec_fourth6789abcdef0123"
    sources(stripe={"TENANT": "shop"}, fourth={"PROVIDER": "stripe", "SECRETS": [secret], "TENANT": "shop"})
    handler(["stripe", "fourth"], "*", name="a")(latest)
    from tests import senders

    def send(source, event_id, version, shop, **signing):
        content = {"id": event_id, "type": "x", "version": version, "order": "o", "shop": shop}
        body = senders.dumps(content)
        from django.test import Client

        headers = senders.SIGNERS["stripe"](body, **signing)
        return Client().post(f"/webhooks/{source}/", body, content_type="application/json", headers=headers)

    assert send("stripe", "e1", 3, "one").status_code == 200
    assert send("stripe", "e2", 2, "two").status_code == 200
    assert send("fourth", "e3", 1, "one", secret=secret).status_code == 200
    assert send("stripe", "e4", 2, "one").status_code == 200
    assert effects() == ["3", "2", "1"]


def test_a_renamed_handler_keeps_its_marks(handler, deliver):
    def old(event):
        latest(event)

    handler("stripe", "*", name="old")(old)
    deliver("evt_1", 3)
    unregister(old)
    handler("stripe", "*", name="new", formerly="old")(latest)
    deliver("evt_2", 2)
    deliver("evt_3", 4)
    assert effects() == ["3", "4"]
    assert WebhookVersion.objects.count() == 1


def test_times_are_kept_to_the_microsecond(handler, post):
    moments = {
        "evt_1": datetime(2026, 12, 1, 12, 0, 0, 500, tzinfo=UTC),
        "evt_2": datetime(2026, 12, 1, 12, 0, 0, 499, tzinfo=UTC),
        "evt_3": datetime(1969, 12, 1, tzinfo=UTC),
    }
    answers = []
    handler("stripe", "*", name="h")(lambda event: answers.append(event.supersedes("o", moments[event.event_id])))
    for event_id in moments:
        post("stripe", {"id": event_id, "type": "x"})
    assert answers == [True, False, False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, datetime(2026, 12, 1, tzinfo=UTC)),
        (1, datetime(2026, 12, 1)),
        (1, 2**63),
        (1, True),
        (1, 1.5),
        (1, "2"),
    ],
)
def test_what_is_no_version_is_a_failed_attempt(handler, post, first, second):
    versions = [first, second]
    handler("stripe", "*", name="h")(lambda event: event.supersedes("o", versions.pop(0)))
    post("stripe", {"id": "evt_1", "type": "x"})
    assert post("stripe", {"id": "evt_2", "type": "x"}).status_code == 500
    assert "ersion" in WebhookAttempt.objects.get().message


def test_an_object_without_a_name_is_a_failed_attempt(handler, post):
    handler("stripe", "*", name="h")(lambda event: event.supersedes("", 1))
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 500


@pytest.mark.parametrize("key", ["x" * 1000, "a\0b", "\ud800", "ABC"])
def test_any_object_has_a_mark_of_its_own(handler, post, key):
    answers = []
    handler("stripe", "*", name="h")(
        lambda event: answers.append(event.supersedes(key if event.event_id == "1" else key.lower() + " ", 1))
    )
    for event_id in "12":
        assert post("stripe", {"id": event_id, "type": "x"}).status_code == 200
    assert WebhookVersion.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_the_newest_wins(handler, deliver, post):
    if connection.vendor == "sqlite":
        pytest.skip("threads share the one connection of SQLite in memory")
    seen = []
    handler("stripe", "*", name="h")(
        lambda event: seen.append(event.data["version"]) if event.supersedes("o", event.data["version"]) else None
    )
    for round_ in range(5):
        barrier = Barrier(8)

        def send(index, round_=round_, barrier=barrier):
            try:
                barrier.wait()
                answer = post("stripe", {"id": f"evt_{round_}_{index}", "type": "x", "version": round_ * 8 + index})
                assert answer.status_code == 200
            finally:
                connections.close_all()

        threads = [Thread(target=send, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert WebhookVersion.objects.get().version == round_ * 8 + 7
    assert WebhookReceipt.objects.filter(status="processed").count() == 40


# -- declared ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(
    "options", [{"object_key": "order", "version": "version"}, {"version": lambda event: event.data["version"]}]
)
def test_a_stale_event_ends_as_superseded(handler, deliver, sources, atomic, options):
    sources(stripe={"OBJECT": "order"})
    handler("stripe", "*", name="h", atomic=atomic, **options)(
        lambda event: Effect.objects.create(name=str(event.data["version"])).name
    )
    for number, version in enumerate([1, 3, 2]):
        assert deliver(f"evt_{number}", version).status_code == 200
    assert effects() == ["1", "3"]
    stale = WebhookReceipt.objects.get(event_id="evt_2")
    assert (stale.status, stale.reason) == ("ignored", "superseded")
    assert WebhookCheckpoint.objects.get(fingerprint=stale.fingerprint).mark == "superseded"
    assert deliver("evt_2", 2).json()["status"] == "duplicate"


def test_a_receipt_with_one_stale_handler_of_two_is_processed(handler, deliver):
    handler("stripe", "*", name="a", object_key="order", version="version")(lambda event: None)
    deliver("evt_1", 3)
    handler("stripe", "*", name="b")(lambda event: Effect.objects.create(name="b").name)
    deliver("evt_2", 2)
    assert WebhookReceipt.objects.get(event_id="evt_2").status == "processed"
    assert effects() == ["b"]


def test_a_version_may_be_a_time_as_text(handler, deliver):
    handler("stripe", "*", name="h", object_key="order", version="version")(
        lambda event: Effect.objects.create(name=event.data["version"]).name
    )
    deliver("evt_1", "2026-12-01T12:00:00Z")
    deliver("evt_2", "2026-12-01T12:30:00+01:00")
    assert effects() == ["2026-12-01T12:00:00Z"]


@pytest.mark.parametrize("content", [{}, {"version": "soon"}, {"version": "2026-12-01T12:00:00"}, {"version": [1]}])
def test_an_event_without_its_declared_version_is_a_failed_attempt(handler, post, content):
    handler("stripe", "*", name="h", object_key="id", version="version")(lambda event: None)
    assert post("stripe", {"id": "evt_1", "type": "x", **content}).status_code == 500
    assert "ersion" in WebhookAttempt.objects.get().message


def test_an_object_without_a_version_is_a_mistake():
    with pytest.raises(ImproperlyConfigured, match="version="):
        webhook_handler("stripe", "*", object_key="order")(lambda event: None)


# -- fetch -------------------------------------------------------------------------------------------------------------


def test_what_is_fetched_is_handed_to_the_handler(handler, post):
    seen = []
    handler("stripe", "*", name="h", fetch=lambda event: {"state of": event.event_id})(
        lambda event: seen.append(event.fetched)
    )
    handler("stripe", "*", name="other")(lambda event: seen.append(event.fetched))
    post("stripe", {"id": "evt_1", "type": "x"})
    assert seen == [{"state of": "evt_1"}, None]


async def _fetch(event):
    return "from afar"


def test_fetch_may_be_a_coroutine(handler, post):
    seen = []
    handler("stripe", "*", name="h", fetch=_fetch)(lambda event: seen.append(event.fetched))
    post("stripe", {"id": "evt_1", "type": "x"})
    assert seen == ["from afar"]


@pytest.mark.django_db(transaction=True)
def test_fetch_runs_outside_the_transaction(handler, post):
    seen = []
    handler("stripe", "*", name="h", fetch=lambda event: seen.append(connection.in_atomic_block))(
        lambda event: seen.append(connection.in_atomic_block)
    )
    post("stripe", {"id": "evt_1", "type": "x"})
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("error", "decision"),
    [(ConnectionError("away"), "failed"), (RetryLater(9), "retry_later"), (GiveUp("gone"), "gave_up")],
)
def test_an_error_of_fetch_is_the_handlers(handler, post, error, decision):
    def fetch(event):
        raise error

    handler("stripe", "*", name="h", fetch=fetch)(lambda event: Effect.objects.create(name="x"))
    assert post("stripe", {"id": "evt_1", "type": "x"}).json()["status"] == decision
    assert not Effect.objects.exists()


@pytest.mark.parametrize("atomic", [True, False])
def test_a_mark_that_is_not_visible_yet_begins_the_transaction_anew(handler, deliver, monkeypatch, atomic):
    advance, calls = ordering.advance, []

    def blind(*arguments, **options):
        calls.append(1)
        if len(calls) == 1:
            raise Conflict("not visible")
        return advance(*arguments, **options)

    monkeypatch.setattr(ordering, "advance", blind)
    handler("stripe", "*", name="h", atomic=atomic)(latest)
    assert deliver("evt_1", 7).status_code == 200
    assert (effects(), len(calls)) == (["7"], 2)


def test_an_object_with_a_mark_under_each_name_goes_by_the_newest(handler, deliver):
    """While a handler is being renamed, old processes make marks under the old name, new ones under the new."""
    for name in ("old", "new"):
        handler("stripe", "*", name=name)(work := lambda event: latest(event))
        deliver(f"evt_{name}", 3 if name == "old" else 9)
        unregister(work)
    assert WebhookVersion.objects.count() == 2
    handler("stripe", "*", name="new", formerly="old")(latest)
    for number, version in enumerate([5, 9, 10, 9]):
        deliver(f"evt_{number}", version)
    assert effects() == ["3", "9", "9", "10"]
    assert set(WebhookVersion.objects.values_list("version", flat=True)) == {10}


def test_a_run_that_is_over_moves_no_mark(handler, deliver):
    def overtaken(event):
        if event.attempt == 1:
            WebhookReceipt.objects.update(attempts=5)
        latest(event)

    handler("stripe", "*", name="h", atomic=False)(overtaken)
    deliver("evt_1", 7)
    assert (effects(), WebhookVersion.objects.count()) == ([], 0)


@pytest.mark.parametrize("other", [5, 9, 12])
@pytest.mark.parametrize("strict", [False, True])
def test_a_mark_that_another_event_makes_at_this_moment_is_compared_and_not_taken_for_newer(
    handler, deliver, monkeypatch, other, strict
):
    """Between looking for a mark to move and looking whether there is one."""
    advance, calls = VersionQuerySet.advance, []

    def late(rows, digests, kind, version, fingerprint, *, strict):
        moved = advance(rows, digests, kind, version, fingerprint, strict=strict)
        if not calls:
            rows.first_seen(
                digest=digests[0], handler="h", object_key="order-1", kind=kind, version=other, fingerprint="another",
            )  # fmt: skip
        calls.append(moved)
        return moved

    monkeypatch.setattr(VersionQuerySet, "advance", late)
    handler("stripe", "*", name="h")(strictly if strict else latest)
    deliver("evt_1", 9)
    wins = other < 9 or (other == 9 and not strict)
    assert effects() == (["9"] if wins else [])
    mark = WebhookVersion.objects.get()
    assert (mark.version, mark.fingerprint == "another") == (9 if wins else other, not wins)

"""Failed and dead receipts by what went wrong."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_webhook_guard import groups, processing
from django_webhook_guard.exceptions import GiveUp
from django_webhook_guard.handlers import unregister
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.recording import group_of
from tests.test_admin import make

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def fails_here(event):
    raise ValueError(f"no such customer {event.event_id}")


def fails_there(event):
    int(event.event_id)


def fails_in_a_library(event):
    return timezone.make_aware(timezone.now())


@pytest.fixture
def fail(handler, post):
    """Deliver an event to a handler that fails as told."""

    def deliver(work, event_id, source="stripe", event_type="x"):
        handler(source, event_type, name="h")(work)
        post(source, {"id": event_id, "type": event_type})
        unregister(work)

    return deliver


def all_of():
    return groups.found(WebhookReceipt.objects.all())


def told():
    return [(group.total, group.last.error_class, group.last.place) for group in all_of().groups if group.last]


def test_failures_of_one_kind_are_one_group_whatever_their_messages(fail):
    for number in range(3):
        fail(fails_here, f"evt_{number}")
    fail(fails_there, "evt_9")
    first, second = all_of().groups
    assert (first.failed, first.dead, first.total) == (3, 0, 3)
    assert first.last.place.startswith("tests.test_groups:fails_here:")
    assert first.last.error_class == "builtins.ValueError"
    assert (second.total, second.last.handler) == (1, "h")
    assert second.last.place.startswith("tests.test_groups:fails_there:")


def test_the_place_is_the_innermost_of_the_projects_own_code(fail):
    fail(fails_in_a_library, "evt_1")
    ((_, _, place),) = told()
    assert place.startswith("tests.test_groups:fails_in_a_library:")


def test_source_and_type_tell_groups_apart(fail):
    fail(fails_here, "evt_1")
    fail(fails_here, "evt_2", event_type="y")
    fail(fails_here, "evt_3", source="partner", event_type="x")
    assert len(all_of().groups) == 3


def test_another_line_of_the_same_function_is_the_same_group(fail):
    fail(fails_here, "evt_1")
    key = WebhookAttempt.objects.get().error_group
    lease = type("Lease", (), {"source": type("Source", (), {"name": "stripe"}), "event_type": "x"})
    assert group_of(lease, "h", "builtins.ValueError", "tests.test_groups:fails_here:999") == key


def test_what_works_at_last_leaves_its_group(fail, handler):
    fail(fails_here, "evt_1")
    handler("stripe", "x", name="h")(lambda event: None)
    WebhookReceipt.objects.update(due_at=timezone.now())
    assert processing.run(WebhookReceipt.objects.get().pk, "sweeper").status == "processed"
    assert all_of().groups == ()


def test_a_receipt_stands_in_the_group_of_its_last_failure(fail, handler):
    fail(fails_here, "evt_1")
    handler("stripe", "x", name="h")(fails_there)
    WebhookReceipt.objects.update(due_at=timezone.now())
    processing.run(WebhookReceipt.objects.get().pk, "sweeper")
    ((total, error, place),) = told()
    assert (total, error) == (1, "builtins.ValueError")
    assert "fails_there" in place


def test_dead_ones_are_told_from_those_that_run_again(fail):
    def give_up(event):
        raise GiveUp("unknown currency")

    fail(give_up, "evt_1")
    (group,) = all_of().groups
    assert (group.failed, group.dead) == (0, 1)
    assert group.last.error_class == "django_webhook_guard.exceptions.GiveUp"


def test_receipts_whose_process_was_killed_are_a_group_of_their_own(fail):
    make(), make(status="failed", reason="")
    fail(fails_here, "evt_1")
    first, second = all_of().groups
    assert (first.key, first.failed, first.dead, first.last) == (groups.NO_ERROR, 1, 1, None)
    assert second.total == 1


def test_a_group_leads_to_its_receipts_and_to_no_other(fail):
    killed = make()
    for number in range(2):
        fail(fails_here, f"evt_{number}")
    fail(fails_there, "evt_9")
    everything = WebhookReceipt.objects.all()
    found = {group.key: set(groups.failing(everything, group.key)) for group in all_of().groups}
    assert found.pop(groups.NO_ERROR) == {killed}
    assert sorted(map(len, found.values())) == [1, 2]
    assert not groups.failing(everything, "0123456789abcdef").exists()


def test_who_sees_only_some_receipts_sees_only_their_groups(fail):
    fail(fails_here, "evt_1")
    fail(fails_here, "evt_2")
    seen = WebhookReceipt.objects.filter(event_id="evt_1")
    (group,) = groups.found(seen).groups
    assert group.total == 1
    assert group.last.receipt.event_id == "evt_1"
    assert groups.found(WebhookReceipt.objects.none()).groups == ()


def test_since_and_last_seen(fail):
    fail(fails_here, "evt_1")
    fail(fails_here, "evt_2")
    WebhookReceipt.objects.filter(event_id="evt_1").update(received_at=timezone.now() - timedelta(hours=5))
    (group,) = all_of().groups
    assert timezone.now() - group.since > timedelta(hours=4)
    assert timezone.now() - group.last_seen < timedelta(minutes=1)


def test_of_very_many_the_newest_are_looked_at(fail, monkeypatch):
    for number in range(4):
        fail(fails_here, f"evt_{number}")
        hours = timedelta(hours=9 - number)
        WebhookReceipt.objects.filter(event_id=f"evt_{number}").update(received_at=timezone.now() - hours)
    assert not all_of().more
    monkeypatch.setattr(groups, "REACH", 2)
    assert all_of().more
    assert sum(group.total for group in all_of().groups) == 3

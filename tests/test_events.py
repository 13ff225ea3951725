import pytest

from django_webhook_guard import statements
from django_webhook_guard.conf import get_source
from django_webhook_guard.events import WebhookEvent, lease_seconds, marks, named, owed, wanted
from django_webhook_guard.handlers import DRILL
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.signals import webhook_received
from tests import senders

EVENT = {"id": "evt_1", "type": "x", "list": [1]}


@pytest.fixture
def stored(db, post):
    post("stripe", EVENT)
    return WebhookEvent.stored(WebhookReceipt.objects.get(), get_source("stripe"), 3)


def test_an_event_is_what_the_receipt_keeps(stored):
    assert (stored.source, stored.event_id, stored.event_type, stored.attempt) == ("stripe", "evt_1", "x", 3)
    assert stored.data == EVENT
    assert stored.body == senders.dumps(EVENT)
    assert stored.signed == {"timestamp", "body"}
    assert stored.headers["content-type"] == "application/json"


def test_a_fresh_event_has_data_of_its_own(stored):
    stored.data["list"].append(2)
    fresh = stored.fresh()
    assert fresh == stored
    assert fresh.data == EVENT


def test_neither_body_nor_headers_show_in_a_repr(stored):
    assert "list" not in repr(stored)
    assert "application/json" not in repr(stored)


def test_the_signal_is_a_handler_while_somebody_listens(handler):
    handler("stripe", "*", name="h")(lambda event: None)
    webhook_received.connect(test_the_signal_is_a_handler_while_somebody_listens)
    try:
        assert [each.name for each in wanted("stripe", "")] == ["h", "signal"]
        assert wanted("stripe", DRILL) == ()
        assert set(named("github", ["signal", "h"])) == {"signal"}
    finally:
        webhook_received.disconnect(test_the_signal_is_a_handler_while_somebody_listens)
    assert [each.name for each in wanted("stripe", "")] == ["h"]


def test_a_name_is_known_for_its_own_source_only(handler):
    stripe = handler("stripe", "*", name="h", formerly="g")(lambda event: "stripe")
    github = handler("github", "*", name="h", formerly="g")(lambda event: "github")
    for source, function in (("stripe", stripe), ("github", github)):
        assert {name: each.function for name, each in named(source, "gh?").items()} == {"g": function, "h": function}
    assert named("partner", ["h", "g"]) == {}


def test_what_is_owed_are_the_matching_then_the_kept_handlers(handler):
    for name, pattern in (("a", "old"), ("b", "x"), ("c", "other"), ("d", "*")):
        handler("stripe", pattern, name=name)(lambda event: None)
    assert [each.name for each in owed("stripe", "x", ["a", "b"])] == ["b", "d", "a"]


def test_while_a_kept_name_is_not_known_nothing_is_owed_that_is_not_kept(handler):
    """The unknown one may be another name of what is known here, in a process before or after a deploy."""
    for name, pattern in (("a", "old"), ("b", "x"), ("c", "other"), ("d", "*")):
        handler("stripe", pattern, name=name)(lambda event: None)
    assert [each.name for each in owed("stripe", "x", ["a", "b", "unknown"])] == ["b", "a"]


def test_a_renamed_handler_goes_by_the_name_that_the_receipt_keeps(handler):
    handler("stripe", "*", name="new", formerly=["older", "old"])(lambda event: None)
    for kept, name in ((["old"], "old"), (["new"], "new"), (["old", "new"], "new"), (["other"], "new"), ([], "new")):
        (found,) = owed("stripe", "x", kept) or owed("stripe", "x", [])
        assert found.name == name
        assert set(found.names) == {"new", "older", "old"}


def test_a_lease_is_the_longest_of_all(handler):
    source = get_source("stripe")
    handler("stripe", "*", name="a", lease=5)(lambda event: None)
    assert lease_seconds(wanted("stripe", "x"), source) == source.lease == 60
    handler("stripe", "*", name="b", lease=500)(lambda event: None)
    assert lease_seconds(wanted("stripe", "x"), source) == 500


@pytest.mark.django_db(databases=["default", "other"])
def test_marks_come_from_every_database(handler):
    handler("stripe", "*", name="a", using="other")(lambda event: None)
    handler("stripe", "*", name="b")(lambda event: None)
    statements.insert_checkpoint("other", "f", "a", "skipped", "", 1)
    statements.insert_checkpoint("default", "f", "b", "gave_up", "", 1)
    found = marks("f", wanted("stripe", "x"), "default", "c")
    assert found == {"a": "skipped", "b": "gave_up", "c": "done"}

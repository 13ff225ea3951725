"""What a source says about events that are late, unwanted, or not as they should be."""

import logging
import time

import pytest
from django.db import DataError, OperationalError
from django.utils import timezone
from rest_framework import serializers

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.schemas import SchemaMismatch
from django_webhook_guard.signals import webhook_quarantined, webhook_rejected
from django_webhook_guard.sweeper import sweep

pytestmark = pytest.mark.django_db
EVENT = {"id": "evt_1", "type": "order.paid", "amount": "5"}


class Order(serializers.Serializer):
    amount = serializers.IntegerField()


def is_live(event):
    return event.data.get("livemode", True)


def broken(event):
    raise LookupError


@pytest.fixture
def runs(handler):
    seen = []
    handler(["stripe", "partner", "github"], "*", name="h")(lambda event: seen.append(event) or "done")
    return seen


@pytest.fixture
def told():
    found = []

    def onlooker(signal, **about):
        found.append({name: value for name, value in about.items() if name != "sender"})

    for signal in (webhook_quarantined, webhook_rejected):
        signal.connect(onlooker)
    yield found
    for signal in (webhook_quarantined, webhook_rejected):
        signal.disconnect(onlooker)


def receipt():
    return WebhookReceipt.objects.get()


def ago(seconds):
    return int(time.time()) - seconds


# -- LATE --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["stripe", "partner"])
def test_an_unknown_late_event_is_held_where_the_source_says_so(post, sources, runs, told, source):
    sources(**{source: {"LATE": "quarantine"}})
    for _ in range(2):
        response = post(source, EVENT, at=ago(1000), **({"key": "k"} if source == "partner" else {}))
        assert response.json()["status"] == "quarantined"
    assert (receipt().status, receipt().reason, receipt().processed_at, receipt().due_at) == (
        "quarantined", "late", None, None,
    )  # fmt: skip
    assert runs == [] and sweep() == {}
    assert [each["reason"] for each in told] == ["late"]


@pytest.mark.parametrize("source", ["stripe", "partner"])
def test_a_held_late_event_that_comes_in_time_is_run_with_a_new_budget(post, sources, runs, source):
    sources(**{source: {"LATE": "quarantine"}})
    more = {"key": "k"} if source == "partner" else {}
    post(source, EVENT, at=ago(1000), **more)
    WebhookReceipt.objects.update(budget_from=timezone.now() - timezone.timedelta(days=30))
    assert post(source, EVENT, **more).json()["status"] == "processed"
    assert (receipt().status, receipt().reason, receipt().attempts, len(runs)) == ("processed", "", 1, 1)
    assert (timezone.now() - receipt().budget_from).total_seconds() < 60
    assert post(source, EVENT, at=ago(1000), **more).status_code == 400


def test_a_held_late_event_that_fails_in_time_keeps_its_attempts(post, sources, handler):
    sources(stripe={"LATE": "quarantine"})
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    post("stripe", EVENT, at=ago(1000))
    WebhookReceipt.objects.update(budget_from=timezone.now() - timezone.timedelta(days=30))
    assert post("stripe", EVENT).status_code == 500
    assert receipt().status == "failed"


def test_a_late_event_too_far_in_the_future_is_never_held(post, sources):
    sources(stripe={"LATE": "quarantine"})
    assert post("stripe", EVENT, at=ago(-1000)).status_code == 400
    assert not WebhookReceipt.objects.exists()


def test_a_message_is_remembered_for_ever_where_late_ones_are_held(post, sources, runs):
    sources(partner={"LATE": "quarantine"})
    post("partner", EVENT, key="k")
    assert WebhookSeen.objects.get().expires_at is None


def test_a_captured_late_message_under_another_key_is_a_replay(post, sources, runs):
    sources(partner={"LATE": "quarantine"})
    signed = {"at": ago(1000), "nonce": "one"}
    post("partner", EVENT, key="k", **signed)
    assert post("partner", EVENT, key="other", **signed).json()["status"] == "quarantined"
    assert sorted(WebhookReceipt.objects.values_list("reason", flat=True)) == ["late", "replayed"]


# -- SCHEMA, INVALID ---------------------------------------------------------------------------------------------------


def with_schema(**options):
    return {"SCHEMA": "tests.test_policies.Order", **options}


def test_a_handler_gets_validated_data_in_the_first_run_and_in_later_ones(post, sources, handler):
    sources(stripe=with_schema())
    seen = []

    def fails_once(event):
        seen.append(event.validated)
        if event.attempt == 1:
            raise RuntimeError

    handler("stripe", "*", name="h")(fails_once)
    assert [post("stripe", EVENT).status_code for _ in range(2)] == [500, 200]
    assert seen == [{"amount": 5}] * 2


def test_without_a_schema_nothing_is_validated(post, runs):
    post("stripe", EVENT)
    assert runs[0].validated is None


def test_what_does_not_fit_is_held_and_the_receipt_says_why(post, sources, runs, told):
    sources(stripe=with_schema())
    assert post("stripe", {**EVENT, "amount": "private"}).status_code == 202
    assert (receipt().status, receipt().reason) == ("quarantined", "schema")
    assert receipt().result == "does not fit the schema: amount: invalid"
    assert runs == []
    assert [each["reason"] for each in told] == ["schema"]
    # What is stored stands: a fitting delivery of the same event does not change it, a person decides.
    assert post("stripe", EVENT).json()["status"] == "quarantined"
    assert runs == []


def test_late_and_unfit_is_held_as_unfit(post, sources, runs):
    sources(stripe=with_schema(LATE="quarantine"))
    post("stripe", {**EVENT, "amount": "x"}, at=ago(1000))
    assert receipt().reason == "schema"
    assert post("stripe", EVENT).json()["status"] == "quarantined"
    assert runs == []


def test_what_does_not_fit_may_be_refused(post, sources, runs, told):
    sources(stripe=with_schema(INVALID="reject"))
    response = post("stripe", {"id": "evt_1", "type": "order.paid"})
    assert (response.status_code, response.content) == (400, b'{"status": "malformed"}')
    assert not WebhookReceipt.objects.exists()
    assert told == [
        {"signal": webhook_rejected, "source": "stripe", "decision": "malformed", "reason": ""}
    ] or told == [{"source": "stripe", "decision": "malformed", "reason": ""}]


def test_schemas_go_by_type(post, sources, runs):
    sources(stripe={"SCHEMA": {"order.*": "tests.test_policies.Order"}})
    assert post("stripe", {"id": "evt_1", "type": "other", "amount": "x"}).json()["status"] == "processed"
    assert post("stripe", {"id": "evt_2", "type": "order.paid", "amount": "x"}).json()["status"] == "quarantined"


def test_released_all_the_same_its_validated_data_is_an_error_and_its_data_is_not(post, sources, handler):
    sources(stripe=with_schema())
    post("stripe", {**EVENT, "amount": "x"})
    WebhookReceipt.objects.update(status="received", reason="", due_at=timezone.now())
    seen = []

    def work(event):
        seen.append(event.data["amount"])
        with pytest.raises(SchemaMismatch):
            event.validated  # noqa: B018

    handler("stripe", "*", name="h")(work)
    assert sweep() == {"processed": 1}
    assert seen == ["x"]
    assert issubclass(SchemaMismatch, MalformedContent)


# -- ACCEPT ------------------------------------------------------------------------------------------------------------


def test_the_project_declines_an_event_without_a_row(post, sources, runs, caplog):
    caplog.set_level(logging.INFO, "django_webhook_guard")
    sources(stripe={"ACCEPT": "tests.test_policies.is_live"})
    response = post("stripe", {**EVENT, "livemode": False})
    assert (response.status_code, response.content) == (200, b'{"status": "declined"}')
    assert not WebhookReceipt.objects.exists()
    assert [record.decision for record in caplog.records if hasattr(record, "decision")] == ["declined"]
    assert post("stripe", {**EVENT, "livemode": True}).json()["status"] == "processed"


def test_an_error_of_the_projects_own_is_503(post, sources, caplog):
    sources(stripe={"ACCEPT": "tests.test_policies.broken"})
    response = post("stripe", EVENT)
    assert (response.status_code, "Retry-After" in response) == (503, True)
    assert not WebhookReceipt.objects.exists()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info[0] is LookupError


# -- UNHANDLED ---------------------------------------------------------------------------------------------------------


def test_what_nobody_wants_is_dropped_where_the_source_says_so(post, sources):
    sources(stripe={"UNHANDLED": "drop", "LATE": "quarantine"})
    assert post("stripe", EVENT).json() == {"status": "declined"}
    assert post("stripe", EVENT, at=ago(1000)).json() == {"status": "declined"}
    assert not WebhookReceipt.objects.exists()


def test_what_is_stored_already_is_never_dropped(post, sources, handler):
    sources(stripe={"UNHANDLED": "drop"})
    post("stripe", EVENT)
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    assert post("stripe", EVENT).status_code == 500
    # An old process, which does not know the handler, must not tell the sender that all is well.
    from django_webhook_guard import handlers

    known = handlers._registry[:]
    handlers._registry.clear()
    handlers.matching.cache_clear()
    try:
        assert post("stripe", EVENT).status_code == 500
    finally:
        handlers._registry[:] = known
        handlers.matching.cache_clear()
    assert receipt().status == "failed"


class Surprised(serializers.Serializer):
    amount = serializers.JSONField()

    def validate_amount(self, value):
        return value + 1


class Refused(serializers.Serializer):
    def validate(self, data):
        raise DataError("the database refuses the value")


class Away(serializers.Serializer):
    def validate(self, data):
        raise OperationalError("the database is away")


@pytest.mark.parametrize("schema", ["Surprised", "Refused"])
@pytest.mark.parametrize("invalid", ["quarantine", "reject"])
def test_a_schema_that_fails_itself_loses_no_event(post, sources, runs, caplog, schema, invalid):
    sources(stripe={"SCHEMA": f"tests.test_policies.{schema}", "INVALID": invalid})
    for _ in range(2):
        assert post("stripe", {**EVENT, "amount": "x"}).status_code == 202
    assert (receipt().status, receipt().reason) == ("quarantined", "schema")
    assert receipt().result.startswith("the schema failed with ")
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert {each.name for each in errors} == {"django_webhook_guard.handlers"} and errors[0].exc_info


def test_a_schema_whose_database_is_away_is_our_fault(post, sources):
    sources(stripe={"SCHEMA": "tests.test_policies.Away"})
    assert post("stripe", EVENT).status_code == 503
    assert not WebhookReceipt.objects.exists()


def says_nothing(event):
    pass


async def is_awaited(event):
    return False


def test_a_project_that_says_neither_yes_nor_no_declines_nothing(post, sources, caplog):
    sources(stripe={"ACCEPT": "tests.test_policies.says_nothing"})
    assert post("stripe", EVENT).status_code == 503
    assert "ACCEPT" in caplog.text and "NoneType" in caplog.text

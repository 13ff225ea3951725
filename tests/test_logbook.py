"""One structured record per delivery."""

import json
import logging

import pytest

from django_webhook_guard import logbook
from django_webhook_guard.outcomes import answer
from tests import senders

EVENT = {"id": "evt_1", "type": "invoice.paid", "account": "acct_1"}


@pytest.fixture
def records(caplog):
    """The records of the deliveries so far."""
    caplog.set_level(logging.DEBUG)
    return lambda: [record for record in caplog.records if record.name == "django_webhook_guard"]


@pytest.mark.django_db
def test_a_delivery_is_one_record_with_everything_that_finds_it_again(post, handler, records, sources):
    sources(stripe={"TENANT": True})
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", EVENT, extra={"X-Request-ID": "req-0123456789"})
    (record,) = records()
    told = {name: getattr(record, name) for name in (
        "request_id", "source", "tenant", "event_id", "event_type", "idempotency_key", "key_origin", "decision",
        "http_status", "reason",
    )}  # fmt: skip
    assert told == {
        "request_id": "req-0123456789", "source": "stripe", "tenant": "acct_1", "event_id": "evt_1",
        "event_type": "invoice.paid", "idempotency_key": "evt_1", "key_origin": "id", "decision": "processed",
        "http_status": 200, "reason": "",
    }  # fmt: skip
    assert record.duration_ms > 0
    assert record.getMessage() == "webhook of source stripe: processed (200)"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "signing", "decision", "level"),
    [
        (EVENT, {}, "ignored", logging.INFO),
        (EVENT, {"secret": "whsec_another_0123456789"}, "rejected", logging.WARNING),
        (EVENT, {"at": 1_700_000_000}, "late", logging.WARNING),
        (EVENT, {"at": 4_000_000_000}, "late", logging.WARNING),
        ({"type": "x"}, {}, "malformed", logging.WARNING),
        (b"{", {}, "malformed", logging.WARNING),
        (b"x" * 1_100_000, {}, "too_large", logging.WARNING),
    ],
)
def test_every_decision_has_its_level_and_one_record(post, records, content, signing, decision, level):
    post("stripe", content, **signing)
    assert [(record.decision, record.levelno) for record in records()] == [(decision, level)]


@pytest.mark.django_db
def test_a_failed_attempt_is_one_error_with_every_traceback(post, handler, caplog):
    handler("stripe", "*", name="a")(lambda event: 1 / 0)
    handler("stripe", "*", name="b")(lambda event: {}["missing"])
    post("stripe", EVENT)
    (error,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert error.name == "django_webhook_guard.handlers"
    assert [type(each) for each in error.exc_info[1].exceptions] == [ZeroDivisionError, KeyError]
    assert (error.source, error.attempt, error.handler) == ("stripe", 1, "a, b")


@pytest.mark.parametrize(
    "given", [None, "", "short", "x" * 129, "a b c d e f", "req\nforged-line", "é" * 12, "-0123456789"]
)
def test_a_request_id_is_made_where_none_is_given_or_it_does_not_look_like_one(given):
    assert len(logbook.request_id(given)) == 32
    assert logbook.request_id(given) != logbook.request_id(given)


def test_a_request_id_of_a_proxy_is_kept():
    assert logbook.request_id("7f3a-0123_456.789") == "7f3a-0123_456.789"


def write(decision="rejected", source="stripe", reason="bad_signature"):
    logbook.write(answer(decision, reason=reason), source=source, request_id="r" * 32, seconds=0.001)


def test_refusals_are_held_back_per_source_and_reason(monkeypatch, records):
    clock = [1000.0]
    monkeypatch.setattr(logbook, "refusals", logbook._Throttle())
    monkeypatch.setattr(logbook, "REFUSALS_EVERY", 60)
    monkeypatch.setattr(logbook, "monotonic", lambda: clock[0])
    for _ in range(1000):
        write()
    write(source="github")
    write(reason="signature_missing")
    assert len(records()) == 3
    clock[0] += 61
    write()
    assert records()[-1].getMessage() == "webhook of source stripe: rejected (401) (and 999 more like it)"


def test_what_is_genuine_is_never_held_back(monkeypatch, records):
    monkeypatch.setattr(logbook, "refusals", logbook._Throttle())
    monkeypatch.setattr(logbook, "REFUSALS_EVERY", 60)
    for decision in ("late", "malformed", "duplicate", "unavailable"):
        write(decision, reason="")
        write(decision, reason="")
    assert len(records()) == 8


@pytest.mark.django_db
def test_a_type_made_of_control_characters_breaks_no_line(post, records):
    post("stripe", {"id": "evt_1\x1b[31m", "type": "a\r\nforged: line"})
    (record,) = records()
    assert (record.event_id, record.event_type) == ("evt_1\\x1b[31m", "a\\r\\nforged: line")


@pytest.mark.django_db
def test_structlog_takes_the_record_as_it_comes(post):
    structlog = pytest.importorskip("structlog")
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()], processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer(),
        ],
    )  # fmt: skip
    lines = []
    stream = logging.StreamHandler()
    stream.emit = lambda record: lines.append(formatter.format(record))
    logger = logging.getLogger("django_webhook_guard")
    level = logger.level
    logger.addHandler(stream)
    logger.setLevel(logging.INFO)
    try:
        post("stripe", EVENT)
    finally:
        logger.removeHandler(stream)
        logger.setLevel(level)
    (line,) = map(json.loads, lines)
    assert (line["source"], line["decision"], line["event_id"]) == ("stripe", "ignored", "evt_1")
    assert senders.STRIPE_SECRET not in str(line)


@pytest.mark.django_db
def test_sentry_gets_a_failed_attempt_once_with_its_traceback(post, handler):
    sentry = pytest.importorskip("sentry_sdk")
    events = []
    integrations = [pytest.importorskip("sentry_sdk.integrations.logging").LoggingIntegration()]
    sentry.init(
        dsn="https://k@localhost/1",
        before_send=lambda event, hint: events.append(event),  # and sends none
        integrations=integrations,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    try:
        handler("stripe", "*", name="h")(lambda event: 1 / 0)
        post("stripe", EVENT)
    finally:
        sentry.init(default_integrations=False)
    (event,) = events
    assert event["logger"] == "django_webhook_guard.handlers"
    assert event["exception"]["values"][-1]["type"] == "ZeroDivisionError"
    assert senders.STRIPE_SECRET not in json.dumps(event, default=repr)

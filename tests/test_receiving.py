import logging

import pytest
from django.db import DataError, InterfaceError, InternalError, OperationalError
from django.test import RequestFactory

from django_webhook_guard import processing, receiving, statements
from django_webhook_guard.conf import get_source
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.secrets import Secret
from django_webhook_guard.sources import DECISIONS, STATUS
from django_webhook_guard.views import WebhookView
from tests import senders

pytestmark = pytest.mark.django_db
EVENT = {"id": "evt_1", "type": "x"}


def caused(name, value, kind=OperationalError):
    error = kind("busy")
    error.__cause__ = type("Cause", (Exception,), {name: value})()
    return error


def broken_secrets(source, tenant):
    raise LookupError(f"vault said {senders.STRIPE_SECRET}")


def secrets_of_a(source, tenant):
    return [Secret(senders.GITHUB_SECRET, tenant="a"), Secret("tenantless-0123456789")]


def own_lines(caplog):
    return [record for record in caplog.records if record.name.startswith("django_webhook_guard")]


@pytest.fixture
def failing(monkeypatch):
    """Make the claim's first statement fail."""

    def fail(error):
        calls = []

        def insert(*args):
            calls.append(args)
            raise error

        monkeypatch.setattr(statements, "insert", insert)
        return calls

    return fail


# -- a database that is away or busy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("could not connect"),
        OperationalError(2006, "Server has gone away"),
        InterfaceError("connection already closed"),
        DataError("value too long"),
        InternalError("unexpected"),
        RuntimeError("anything"),
    ],
)
def test_a_database_that_is_away_is_503_with_one_error_line(post, failing, caplog, error):
    calls = failing(error)
    response = post("stripe", EVENT)
    assert (response.status_code, response["Retry-After"]) == (503, "10")
    assert response.json() == {"status": "unavailable"}
    (record,) = own_lines(caplog)
    assert record.levelno == logging.ERROR
    assert len(calls) == 1


BUSY = [
    (caused("sqlite_errorname", "SQLITE_BUSY"), 1),
    (caused("sqlite_errorname", "SQLITE_LOCKED"), 1),
    (OperationalError(1213, "deadlock"), 5),
    (OperationalError(1205, "lock wait"), 5),
    (OperationalError(1020, "changed"), 5),
    (caused("sqlstate", "40P01"), 5),
    (caused("sqlstate", "40001"), 5),
    (caused("sqlstate", "55P03"), 5),
]


@pytest.mark.parametrize(("error", "tries"), BUSY)
def test_a_busy_database_is_503_with_a_warning(post, failing, caplog, error, tries):
    calls = failing(error)
    response = post("stripe", EVENT)
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert [record.levelno for record in own_lines(caplog)] == [logging.WARNING]
    assert len(calls) == tries


@pytest.mark.parametrize("error", [error for error, tries in BUSY if tries == 5])
def test_a_conflict_at_the_claim_is_repeated(post, monkeypatch, error):
    insert, left = statements.insert, [error] * 4

    def sometimes(*args):
        if left:
            raise left.pop()
        return insert(*args)

    monkeypatch.setattr(statements, "insert", sometimes)
    assert post("stripe", EVENT).json()["status"] == "ignored"


def test_a_database_that_goes_away_while_it_counts_is_503(post, monkeypatch):
    post("stripe", EVENT)
    monkeypatch.setattr(statements, "read", lambda *args: (_ for _ in ()).throw(OperationalError("away")))
    monkeypatch.setattr(statements, "insert", lambda *args: statements.Inserted(None, None))
    assert post("stripe", EVENT).status_code == 503


# -- faults on our side ------------------------------------------------------------------------------------------------


def test_a_look_up_that_fails_is_503_and_tells_no_secret(post, sources, caplog):
    sources(stripe={"SECRETS": "tests.test_receiving.broken_secrets"})
    response = post("stripe", EVENT)
    assert (response.status_code, response["Retry-After"]) == (503, "10")
    (record,) = own_lines(caplog)
    assert record.levelno == logging.ERROR
    assert senders.STRIPE_SECRET not in caplog.text


def test_two_handlers_of_one_name_accept_nothing(post, handler, caplog):
    handler("stripe", "*", name="h")(lambda event: None)
    handler("stripe", "x", name="h")(lambda event: None)
    assert post("stripe", EVENT).status_code == 503
    assert not WebhookReceipt.objects.exists()
    assert [record.levelno for record in own_lines(caplog)] == [logging.ERROR]


def test_an_unexpected_error_of_a_run_is_no_server_error(post, handler, monkeypatch):
    handler("stripe", "*", name="h")(lambda event: None)
    monkeypatch.setattr(processing, "carry_out", lambda *args: 1 / 0)
    assert post("stripe", EVENT).status_code == 503


@pytest.mark.parametrize(("tenant", "status"), [("a", 200), ("b", 401)])
def test_a_secret_of_one_tenant_proves_nothing_for_another(post, sources, tenant, status):
    sources(shops={"PROVIDER": "github", "SECRETS": secrets_of_a, "TENANT": "url"})
    headers = senders.github(b"{}")
    assert post("shops", b"{}", path=f"/webhooks/shops/{tenant}/", headers=headers).status_code == status


# -- outcomes ----------------------------------------------------------------------------------------------------------


def test_every_decision_has_a_status():
    assert set(STATUS) == DECISIONS
    assert not [status for status in STATUS.values() if 300 <= status < 400]


@pytest.mark.parametrize(("given", "told"), [(0.2, 1), (1.01, 2), (-5, 1), (1e9, 86_400), (None, 10)])
def test_retry_after_is_whole_seconds_of_at_least_one(given, told):
    outcome = receiving.answer("busy", retry_after=given)
    assert (outcome.retry_after, outcome.headers["Retry-After"]) == (told, str(told))


def test_responses_come_before_the_providers_answers_and_the_table(post, sources, handler):
    assert post("stripe", EVENT).status_code == 200
    sources(stripe={"RESPONSES": {"duplicate": 208, "rejected": 403}})
    assert post("stripe", EVENT).status_code == 208
    assert post("stripe", EVENT, headers={}).status_code == 403
    assert receiving.answer("quarantined", get_source("partner")).http_status == 200
    sources(partner={"RESPONSES": {"quarantined": 203}})
    assert receiving.answer("quarantined", get_source("partner")).http_status == 203


def test_a_failed_run_tells_when_it_may_come_again(post, handler, sources):
    sources(stripe={"RETRY": {"base": 50, "jitter": 0}})
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    response = post("stripe", EVENT)
    assert (response.status_code, response["Retry-After"]) == (500, "50")


def test_the_log_holds_neither_secret_nor_signature_nor_content(post, handler, caplog):
    caplog.set_level(logging.DEBUG)
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    body = senders.dumps({**EVENT, "private": "content of the payload"})
    headers = senders.stripe(body)
    for sent in (headers, {"Stripe-Signature": headers["Stripe-Signature"] + "x\r\nforged line"}):
        post("stripe", body, headers=sent)
    signature = headers["Stripe-Signature"].rpartition("=")[2]
    for private in (senders.STRIPE_SECRET, signature, "content of the payload", "\nforged"):
        assert private not in caplog.text


def test_the_first_run_parses_the_body_once(post, handler, monkeypatch):
    source, calls = get_source("stripe"), []
    parse = type(source.provider).parse
    monkeypatch.setattr(type(source.provider), "parse", lambda *args: calls.append(1) or parse(*args))
    handler("stripe", "*", name="h")(lambda event: event.data["id"])
    assert post("stripe", EVENT).status_code == 200
    assert calls == [1]


def test_options_is_answered_without_a_delivery():
    response = WebhookView.as_view(source="stripe")(RequestFactory().options("/"))
    assert (response.status_code, response["Allow"]) == (200, "POST, OPTIONS")

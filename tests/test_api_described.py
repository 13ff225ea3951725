"""The description of the REST interface, and whatever it allows sent to it."""

import base64
from collections import Counter

import pytest
from django.contrib.auth.models import User
from django.urls import include, path
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.models.receipts import Status
from tests.test_admin import make
from tests.test_api import unknown_effect

generators = pytest.importorskip("drf_spectacular.generators")
drainage = pytest.importorskip("drf_spectacular.drainage")
schemathesis = pytest.importorskip("schemathesis")

pytestmark = pytest.mark.django_db(databases=["default", "other"])
urlpatterns = [path("api/webhooks/", include("django_webhook_guard.api.urls"))]
ROOT = {"Authorization": "Basic " + base64.b64encode(b"root:secret").decode()}
EXAMPLES = 25


@pytest.fixture(autouse=True)
def _urls(request):
    request.getfixturevalue("settings").ROOT_URLCONF = __name__


def described():
    return generators.SchemaGenerator(patterns=urlpatterns).get_schema(request=None, public=True)


def test_it_is_described_without_a_warning(capsys):
    drainage.reset_generator_stats()
    found = described()
    emitted = [*drainage.GENERATOR_STATS._warn_cache, *drainage.GENERATOR_STATS._error_cache]
    assert (emitted, capsys.readouterr().err) == ([], "")
    names = ("", "attempts/", "body/", "discard/", "release/", "rerun/", "retry/", "settle/")
    expected = {"receipts/", "stats/", *(f"receipts/{{id}}/{name}" for name in names)}
    assert {address.removeprefix("/api/webhooks/") for address in found["paths"]} == expected


def test_query_body_and_answers_are_described():
    paths, schemas = described()["paths"], described()["components"]["schemas"]
    listed = paths["/api/webhooks/receipts/"]["get"]
    assert {each["name"] for each in listed["parameters"]} == {
        "source", "status", "type", "event_id", "object", "tenant", "since", "until", "reference", "cursor", "limit",
    }  # fmt: skip
    rerun = paths["/api/webhooks/receipts/{id}/rerun/"]["post"]
    assert list(rerun["requestBody"]["content"]) == ["application/json"]
    assert set(rerun["responses"]) == {"200", "400", "401", "403", "404", "409", "413", "503"}
    assert set(schemas["SeenAndHandlers"]["required"]) == {"status", "attempts", "handlers"}
    assert {"payload", "marks", "effects", "retry", "acts"} <= set(schemas["Detail"]["properties"])
    assert (
        "application/octet-stream" in paths["/api/webhooks/receipts/{id}/body/"]["get"]["responses"]["200"]["content"]
    )


@pytest.fixture
def served(live_server):
    """A running server's operations, with receipts to act on."""
    User.objects.create_superuser("root", password="secret")
    for status in Status:
        receipt = make(status=status)
        unknown_effect(receipt)
        WebhookAttempt.objects.create(
            receipt=receipt, number=1, trigger="admin", outcome="failed", started_at=timezone.now(), duration_ms=1
        )
    schema = schemathesis.openapi.from_dict(described())
    return [(found.ok(), live_server.url) for found in schema.get_all_operations()]


@pytest.mark.slow
def test_whatever_is_sent_it_answers(served):
    """What fits the description and what does not; also with the number of a receipt that is there, as it is now."""
    statuses = Counter()
    for operation, url in served:
        for mode in schemathesis.GenerationMode:
            if mode.is_negative and not _may_be_wrong(operation):
                continue
            _send(operation, url, mode, statuses)
    assert not any(status >= 500 for _, status in statuses), statuses
    assert {status for _, status in statuses} >= {200, 400, 404, 409}, statuses


def _may_be_wrong(operation):
    return bool(operation.body) or bool(operation.query)


def _send(operation, url, mode, statuses):
    @given(case=operation.as_strategy(generation_mode=mode), other=st.integers(0, 9))
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def send(case, other):
        if "id" in case.path_parameters and other:
            receipt = WebhookReceipt.objects.order_by("pk")[other % len(Status)]
            case.path_parameters["id"] = receipt.pk
            if isinstance(case.body, dict) and other % 2:
                case.body |= {"status": receipt.status, "attempts": receipt.attempts}
        answer = case.call(base_url=url, headers=ROOT)
        statuses[operation.label, answer.status_code] += 1
        assert answer.status_code < 500, answer.text

    send()

"""The door for Django REST framework."""

import json

import pytest
from django.test import Client
from django.urls import path
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from django_webhook_guard.drf import SignedWebhookAPIMixin
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models import WebhookReceipt
from tests import senders

EVENT = {"id": "evt_1", "type": "x"}


class Order(serializers.Serializer):
    amount = serializers.IntegerField()


class Hook(SignedWebhookAPIMixin, APIView):
    source = "stripe"


class Reading(BaseThrottle):
    """Reads the body, as a throttle per account would, and lets some through."""

    seen = []

    def allow_request(self, request, view):
        self.seen.append(request.data)
        return len(self.seen) < 3

    def wait(self):
        return 7.2


class Never(BasePermission):
    def has_permission(self, request, view):
        return False


class Throttled(Hook):
    throttle_classes = [Reading]


class Forbidden(Hook):
    permission_classes = [Never]


class Declared(Hook):
    serializer_class = Order


class OwnInitial(Hook):
    def initial(self, request, *args, **kwargs):
        super().initial(request, *args, **kwargs)
        self.seen_user = request.user


class UsesUp:
    """A middleware that takes the stream away."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.read(3)
        return self.get_response(request)


urlpatterns = [
    path("hook/", Hook.as_view()),
    path("throttled/", Throttled.as_view()),
    path("forbidden/", Forbidden.as_view()),
    path("declared/", Declared.as_view()),
    path("initial/", OwnInitial.as_view()),
]


@pytest.fixture(autouse=True)
def _urls(settings):
    settings.ROOT_URLCONF = __name__
    Reading.seen.clear()


@pytest.mark.django_db
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
def test_a1_a_throttle_that_reads_the_data_changes_no_byte(post, content_type):
    body = b'{ "id":"e1","n":1.10,"a":"\\u00e9" } '
    response = post("stripe", body, path="/throttled/", content_type=content_type)
    assert (response.status_code, response.json()["status"]) == (200, "ignored")
    assert Reading.seen == [{"id": "e1", "n": 1.1, "a": "é"}]
    assert WebhookReceipt.objects.get().raw_body == body


@pytest.mark.django_db
def test_a1_a_stream_that_was_used_up_is_our_fault(post, settings, caplog):
    settings.MIDDLEWARE = [f"{__name__}.UsesUp"]
    response = post("stripe", EVENT, path="/hook/")
    assert (response.status_code, "Retry-After" in response) == (503, True)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "something read the request's body before the view" in record.getMessage()
    assert not WebhookReceipt.objects.exists()


@pytest.mark.django_db
def test_a2_multipart_is_read_raw_behind_the_door_too(post):
    body = b'--x\r\nContent-Disposition: form-data; name="json"\r\n\r\n{}\r\n--x--\r\n'
    response = post("stripe", body, path="/hook/", content_type="multipart/form-data; boundary=x")
    assert response.json()["status"] == "malformed"  # Stripe sends no forms; the signature was right


@pytest.mark.django_db
def test_a_throttle_of_the_views_own_asks_about_verified_deliveries_only(post):
    for _ in range(5):
        assert post("stripe", EVENT, path="/throttled/", secret="whsec_forged_0123456789").status_code == 401
    assert Reading.seen == []
    answers = [post("stripe", {"id": f"evt_{n}", "type": "x"}, path="/throttled/") for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 503]
    assert (answers[2]["Retry-After"], answers[2].json()) == ("8", {"status": "busy"})
    assert WebhookReceipt.objects.count() == 2


@pytest.mark.django_db
def test_a_permission_of_the_views_own_refuses_and_stores_nothing(post):
    response = post("stripe", EVENT, path="/forbidden/")
    assert (response.status_code, response.content) == (403, b'{"status": "rejected"}')
    assert not WebhookReceipt.objects.exists()


@pytest.mark.django_db
def test_an_own_initial_is_called_with_a_request_of_rest_framework(post):
    assert post("stripe", EVENT, path="/initial/").status_code == 200


@pytest.mark.django_db
def test_a_serializer_that_the_source_does_not_know_is_our_fault(post, sources, caplog):
    assert post("stripe", EVENT, path="/declared/").status_code == 503
    assert "say it in SCHEMA" in caplog.text
    sources(stripe={"SCHEMA": "tests.test_drf.Order"})
    assert post("stripe", {**EVENT, "amount": 1}, path="/declared/").status_code == 200


class Named(SignedWebhookAPIMixin, APIView):
    """Names its source by the request, and one of its serializers."""

    serializer_class = Order

    def get_source(self, request, **kwargs):
        return "stripe"


urlpatterns.append(path("named/", Named.as_view()))


@pytest.mark.django_db
def test_a_view_may_name_one_of_the_schemas_of_a_source_that_the_request_names(post, sources):
    sources(stripe={"SCHEMA": {"x": "tests.test_drf.Order", "y": "rest_framework.serializers.Serializer"}})
    assert post("stripe", {**EVENT, "amount": 1}, path="/named/").status_code == 200


def test_the_mixin_must_stand_before_apiview():
    with pytest.raises(Misconfigured, match="before APIView"):
        type("Wrong", (APIView, SignedWebhookAPIMixin), {})


def test_the_serializer_of_the_view_is_the_sources_schema(sources):
    assert Hook().serializer_class is None
    sources(stripe={"SCHEMA": "tests.test_drf.Order"})
    assert Hook().serializer_class is Order
    sources(stripe={"SCHEMA": {"a": "tests.test_drf.Order", "b": "rest_framework.serializers.Serializer"}})
    assert Hook().serializer_class is None


def test_a_described_api_names_the_schema_as_body(sources, settings):
    generators = pytest.importorskip("drf_spectacular.generators")
    sources(stripe={"SCHEMA": "tests.test_drf.Order"})
    Hook.schema = pytest.importorskip("drf_spectacular.openapi").AutoSchema()
    try:
        described = generators.SchemaGenerator(patterns=urlpatterns[:1]).get_schema(request=None, public=True)
    finally:
        del Hook.schema
    operation = described["paths"]["/hook/"]
    assert list(operation) == ["post"]
    assert "#/components/schemas/Order" in json.dumps(operation["post"]["requestBody"])
    assert described["components"]["schemas"]["Order"]["properties"] == {"amount": {"type": "integer"}}


def test_an_async_view_is_refused_at_start():
    class Async(SignedWebhookAPIMixin, APIView):
        source = "stripe"

        async def put(self, request):
            raise NotImplementedError

        post = put

    with pytest.raises(Misconfigured, match="no async views"):
        Async.as_view()


@pytest.mark.django_db
def test_nothing_of_rest_framework_answers(settings):
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": "tests.test_drf.nobody", "DEFAULT_METADATA_CLASS": None}
    client = Client(enforce_csrf_checks=True)
    body = senders.dumps(EVENT)
    response = client.post("/hook/", body, content_type="application/json", headers={"Stripe-Signature": "x"})
    assert (response.status_code, response["Content-Type"]) == (401, "application/json")
    assert client.options("/hook/").content == b'{"status": "wrong_method"}'


def test_a_serializer_given_to_as_view_is_refused_at_start():
    with pytest.raises(Misconfigured, match="SCHEMA"):
        Hook.as_view(serializer_class=Order)


@pytest.mark.django_db
def test_an_old_capture_uses_up_no_throttle(post):
    for _ in range(3):
        assert post("stripe", EVENT, path="/throttled/", at=1_700_000_000).status_code == 400
    assert Reading.seen == []
    assert post("stripe", EVENT, path="/throttled/").status_code == 200


class Found(BasePermission):
    def has_permission(self, request, view):
        raise Elsewhere


class Elsewhere(APIException):
    status_code = 302


class Moved(Hook):
    permission_classes = [Found]


class OwnFault(Hook):
    def initial(self, request, *args, **kwargs):
        raise LookupError("a fault of the view's own")


urlpatterns += [path("moved/", Moved.as_view()), path("fault/", OwnFault.as_view())]


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["/moved/", "/fault/"])
def test_what_is_no_refusal_is_our_fault_and_stores_nothing(post, caplog, where):
    response = post("stripe", EVENT, path=where)
    assert (response.status_code, "Retry-After" in response) == (503, True)
    assert not WebhookReceipt.objects.exists()
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1

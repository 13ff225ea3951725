import io
import logging
from datetime import timedelta

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.db import connections
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import include, path
from django.utils import timezone
from django.views.generic import View

from django_webhook_guard.exceptions import UnknownTenant
from django_webhook_guard.locators import Form, Header, Query
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import Provider
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import HMACVerifier
from django_webhook_guard.views import SignedWebhookMixin, WebhookView
from tests import senders

SECRET = "acme-s3cret-0123456789"
SIGNED_BODY = HMACVerifier(header="X-Acme", signed="{body}")
MULTIPART = Provider(name="acme-form", verifier=SIGNED_BODY, event_id=Form("id"), forms=True)
URL_SIGNED = Provider(
    name="acme-url",
    verifier=HMACVerifier(header="X-Acme", signed="{method} {url}\n{body}"),
    event_id=Query("id"),
)
HEADER_ID = Provider(name="acme-id", verifier=SIGNED_BODY, event_id=Header("X-Id"))


class OwnDispatch(SignedWebhookMixin, View):
    source = "stripe"

    def dispatch(self, request, *args, **kwargs):
        return super().dispatch(request, *args, **kwargs)


class OwnAnswer(WebhookView):
    def get_source(self, request, **kwargs):
        return "str" + kwargs["rest"]

    def get_response(self, outcome):
        return HttpResponse(f"{outcome.decision} {len(self.delivery.body) if self.delivery else None}", status=299)


class OwnTenant(WebhookView):
    source = "shops"

    def get_tenant(self, request, **kwargs):
        return request.headers["X-Shop"]


def secrets_for(source, tenant):
    if tenant not in ("a", "b"):
        raise UnknownTenant
    return [Secret(senders.GITHUB_SECRET)]


urlpatterns = [
    path("webhooks/", include("django_webhook_guard.urls")),
    path("own/", WebhookView.as_view(source="stripe")),
    path("dispatch/", OwnDispatch.as_view()),
    path("answer/<str:rest>/", OwnAnswer.as_view()),
    path("tenant/", OwnTenant.as_view()),
    path("unnamed/", WebhookView.as_view()),
    *i18n_patterns(path("inside/", WebhookView.as_view(source="stripe"))),
]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
EVENT = {"id": "evt_1", "type": "x"}


class ReadsPost:
    """A middleware that takes the body of a multipart form."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.POST  # noqa: B018
        return self.get_response(request)


class ReadsBody(ReadsPost):
    def __call__(self, request):
        request.body  # noqa: B018
        return self.get_response(request)


def errors(caplog):
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


def acme(body):
    return {"X-Acme": senders.hexmac(SECRET, body)}


BOUNDARY = b'--b\r\nContent-Disposition: form-data; name="id"\r\n\r\ne1\r\n--b--\r\n'


@pytest.fixture
def form(post, sources):
    sources(acme={"PROVIDER": "tests.test_views.MULTIPART", "SECRETS": [SECRET]})
    return lambda: post("acme", BOUNDARY, headers=acme(BOUNDARY), content_type="multipart/form-data; boundary=b")


# -- the body ----------------------------------------------------------------------------------------------------------


def test_a2_a_multipart_delivery_is_verified_and_stored_as_it_came(form):
    assert form().status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert receipt.raw_body == BOUNDARY
    assert receipt.event_id == "e1"


def test_a2_a_middleware_that_read_the_form_is_named_and_the_sender_comes_again(form, settings, caplog):
    settings.MIDDLEWARE = ["tests.test_views.ReadsPost", *settings.MIDDLEWARE]
    response = form()
    assert response.status_code == 503
    assert response["Retry-After"]
    assert WebhookReceipt.objects.count() == 0
    (record,) = errors(caplog)
    assert "middleware" in record.getMessage()
    assert record.exc_info is None


def test_a_body_that_a_middleware_read_whole_is_used(post, settings):
    settings.MIDDLEWARE = ["tests.test_views.ReadsBody", *settings.MIDDLEWARE]
    assert post("stripe", EVENT).status_code == 200


def test_the_body_may_be_read_again_behind_the_view(rf):
    body = senders.dumps(EVENT)
    request = rf.post("/own/", body, content_type="application/json", headers=senders.stripe(body))
    assert WebhookView.as_view(source="stripe")(request).status_code == 200
    assert request.body == body
    assert request.POST == {}


def test_a6_a_body_over_the_limit_is_413_with_limit_and_size(post, caplog):
    response = post("stripe", {**EVENT, "text": "x" * 2_700_000})
    assert response.status_code == 413
    assert WebhookReceipt.objects.count() == 0
    (record,) = [record for record in caplog.records if "MAX_BODY" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert "1048576" in record.getMessage()
    assert "2700" in record.getMessage()


def test_a6_a_raised_limit_needs_no_site_wide_setting(post, sources):
    sources(stripe={"MAX_BODY": 5_000_000})
    assert post("stripe", {**EVENT, "text": "x" * 2_700_000}).status_code == 200
    assert WebhookReceipt.objects.get().body_size > 2_700_000


def test_a_body_of_exactly_the_limit_is_taken(post, sources):
    sources(stripe={"MAX_BODY": len(senders.dumps(EVENT))})
    assert post("stripe", EVENT).status_code == 200
    sources(stripe={"MAX_BODY": len(senders.dumps(EVENT)) - 1})
    assert post("stripe", EVENT).status_code == 413


class Unread(io.BytesIO):
    def read(self, *args):
        raise AssertionError("the body was read")


@pytest.mark.parametrize("headers", [{}, {"Stripe-Signature": "t=1,v1=" + "0" * 64}])
def test_a_body_without_proof_or_over_the_limit_is_not_read(rf, headers):
    request = rf.generic("POST", "/own/", b"x" * 10, headers=headers)
    request.META["CONTENT_LENGTH"] = "10" if not headers else "2000000"
    request._stream = Unread()
    assert WebhookView.as_view(source="stripe")(request).status_code == (413 if headers else 401)


@pytest.mark.parametrize("terminated", [True, False])
def test_a_chunked_body_is_read_where_the_server_passes_it_on(terminated):
    body = senders.dumps(EVENT)
    headers = {**senders.stripe(body), "Transfer-Encoding": "chunked"}
    request = RequestFactory().generic("POST", "/own/", b"", headers=headers)
    request.environ.pop("CONTENT_LENGTH", None)
    request.environ |= {"wsgi.input": io.BytesIO(body), "wsgi.input_terminated": terminated}
    response = WebhookView.as_view(source="stripe")(request)
    assert response.status_code == (200 if terminated else 411)


def test_a_chunked_body_over_the_limit_is_413(sources):
    sources(stripe={"MAX_BODY": 100})
    headers = {**senders.stripe(b"x"), "Transfer-Encoding": "chunked"}
    request = RequestFactory().generic("POST", "/own/", b"", headers=headers)
    request.environ.pop("CONTENT_LENGTH", None)
    request.environ |= {"wsgi.input": io.BytesIO(b"x" * 5000), "wsgi.input_terminated": True}
    assert WebhookView.as_view(source="stripe")(request).status_code == 413
    assert len(request.body) == 101


class Gone(io.BytesIO):
    def read(self, *args):
        raise OSError("connection reset")


def test_a_client_that_goes_away_is_no_server_error(rf, caplog):
    request = rf.generic("POST", "/own/", b"x" * 10, headers=senders.stripe(b"x" * 10))
    request._stream = Gone()
    assert WebhookView.as_view(source="stripe")(request).status_code == 400
    assert not errors(caplog)


@pytest.mark.parametrize(
    ("length", "status"), [("", 400), ("abc", 400), ("-5", 400), ("²", 400), ("9" * 20, 413), ("9" * 5000, 413)]
)
def test_a_strange_content_length_is_no_server_error(rf, length, status):
    request = rf.generic("POST", "/own/", b"", headers=senders.stripe(b""))
    request.META["CONTENT_LENGTH"] = length
    assert WebhookView.as_view(source="stripe")(request).status_code == status


class BadChunk(Exception):
    """What a server raises in its own way for a chunk that is none; gunicorn's are no OSError."""


class Chunks:
    def read(self, size):
        raise BadChunk


def test_a_chunk_that_is_none_is_no_server_error(rf, caplog):
    request = rf.generic("POST", "/own/", b"", headers={**senders.stripe(b""), "Transfer-Encoding": "chunked"})
    request.environ.pop("CONTENT_LENGTH", None)
    request.environ |= {"wsgi.input": Chunks(), "wsgi.input_terminated": True}
    assert WebhookView.as_view(source="stripe")(request).status_code == 400
    assert not errors(caplog)


# -- the gates before the view -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/own/", "/dispatch/", "/webhooks/stripe/"])
def test_h1_no_view_asks_for_a_csrf_token_or_a_login(post, url):
    assert post("stripe", EVENT, path=url).status_code == 200


@pytest.mark.parametrize("view", [WebhookView.as_view(source="stripe"), OwnDispatch.as_view()])
def test_no_view_runs_inside_a_request_transaction(view):
    assert view._non_atomic_requests == set(connections)
    assert view.csrf_exempt
    assert view.login_required is False
    assert view.should_append_slash is False


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("url", ["/webhooks/stripe", "/webhooks/stripe/", "/own"])
def test_h3_no_spelling_is_redirected(post, settings, debug, url):
    settings.DEBUG = debug
    assert post("stripe", EVENT, path=url).status_code == (404 if url == "/own" else 200)


@pytest.mark.parametrize("language", ["fr", "en", ""])
@pytest.mark.parametrize("url", ["/own/", "/en/inside/", "/fr/inside/"])
def test_h4_a_webhook_has_no_language(post, settings, language, url):
    settings.LANGUAGES = [("en", "English"), ("fr", "French")]
    settings.LANGUAGE_CODE = "en"
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
    assert post("stripe", EVENT, path=url, extra={"Accept-Language": language}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "OPTIONS"])
@pytest.mark.parametrize("body", [b"", b'{"id": "evt_1"}'])
def test_h5_only_post_delivers(method, body):
    client = Client(enforce_csrf_checks=True)
    response = client.generic(method, "/webhooks/stripe/", body, headers=senders.stripe(body))
    assert response.status_code == (200 if method == "OPTIONS" else 405)
    assert "POST" in response["Allow"]
    assert WebhookReceipt.objects.count() == 0


# -- which source ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["/webhooks/unknown/", "/webhooks/stripe/tenant/", "/webhooks/%00/", "/webhooks/str%C3%AFpe"]
)
def test_an_unknown_source_or_a_tenant_path_of_a_tenantless_one_is_404(post, url):
    response = post("stripe", EVENT, path=url)
    assert response.status_code == 404
    assert response.json() == {"status": "not_found"}


def test_a_source_without_route_is_served_at_its_own_url_only(post, sources):
    sources(stripe={"ROUTE": False})
    assert post("stripe", EVENT).status_code == 404
    assert post("stripe", EVENT, path="/own/").status_code == 200


def test_a_view_without_source_is_our_fault(post, caplog):
    assert post("stripe", EVENT, path="/unnamed/").status_code == 503
    assert "set source" in errors(caplog)[0].getMessage()


def test_a_broken_source_accepts_nothing(post, sources, caplog):
    sources(stripe={"SECRETS": []})
    response = post("stripe", EVENT)
    assert response.status_code == 503
    assert response["Retry-After"] == "10"
    assert len(errors(caplog)) == 1
    assert senders.STRIPE_SECRET not in caplog.text


def test_only_our_line_is_logged_for_a_503(post, sources, caplog):
    sources(stripe={"SECRETS": []})
    assert post("stripe", EVENT).status_code == 503
    assert [record.name for record in caplog.records] == ["django_webhook_guard"]


def test_hooks_choose_the_source_and_the_answer(post):
    response = post("stripe", EVENT, path="/answer/ipe/")
    assert response.status_code == 299
    assert response.content == f"ignored {len(senders.dumps(EVENT))}".encode()
    assert post("stripe", EVENT, path="/answer/ange/").content == b"not_found None"


def test_the_url_names_the_tenant(post, sources):
    sources(shops={"PROVIDER": "github", "SECRETS": secrets_for, "TENANT": "url"})
    body = senders.dumps({"action": "a"})
    for number, tenant in enumerate(("a", "b")):
        body = senders.dumps({"number": number})
        assert post("shops", body, path=f"/webhooks/shops/{tenant}/", headers=senders.github(body)).status_code == 200
    assert set(WebhookReceipt.objects.values_list("tenant", flat=True)) == {"a", "b"}
    assert post("shops", body, path="/webhooks/shops/", headers=senders.github(body)).status_code == 404


@pytest.mark.parametrize(
    ("tenant", "status"), [("c", 401), ("%00", 404), ("a%00", 404), ("%20", 404), ("t" * 256, 404)]
)
def test_a_strangers_tenant_is_refused_quietly(post, sources, caplog, tenant, status):
    sources(shops={"PROVIDER": "github", "SECRETS": secrets_for, "TENANT": "url"})
    response = post("shops", b"{}", path=f"/webhooks/shops/{tenant}/", headers=senders.github(b"{}"))
    assert response.status_code == status
    assert not [record for record in caplog.records if record.levelno > logging.INFO and "webhook" in record.msg]


def test_a_hook_names_the_tenant_in_place_of_the_url(post, sources):
    sources(shops={"PROVIDER": "github", "SECRETS": secrets_for, "TENANT": "url", "ROUTE": False})
    headers = senders.github(b"{}")
    assert post("shops", b"{}", path="/tenant/", headers=headers, extra={"X-Shop": "b"}).status_code == 200
    assert WebhookReceipt.objects.get().tenant == "b"
    assert post("shops", b"{}", path="/webhooks/shops/a/", headers=headers).status_code == 404


# -- the signed URL ----------------------------------------------------------------------------------------------------


def signed_url(url, body=b"{}"):
    return {"X-Acme": senders.hexmac(SECRET, f"POST {url}\n".encode() + body)}


@pytest.mark.parametrize("extra", [{}, {"X-Forwarded-Host": "evil.example"}, {"X-Forwarded-Proto": "ftp"}])
def test_l4_the_public_url_is_what_is_signed(post, sources, extra):
    sources(
        acme={
            "PROVIDER": "tests.test_views.URL_SIGNED",
            "SECRETS": [SECRET],
            "PUBLIC_URL": "https://hooks.example.org",
        }
    )
    headers = signed_url("https://hooks.example.org/webhooks/acme/?id=7&a=%C3%A9")
    response = post("acme", b"{}", path="/webhooks/acme/?id=7&a=%C3%A9", headers=headers, extra=extra)
    assert response.status_code == 200
    assert post("acme", b"{}", path="/webhooks/acme/?id=8", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("extra", "status"),
    [({}, 200), ({"X-Forwarded-Host": "evil.example"}, 200), ({"Host": "evil.example"}, 400)],
)
def test_without_public_url_the_host_is_what_django_trusts(post, sources, extra, status):
    sources(acme={"PROVIDER": "tests.test_views.URL_SIGNED", "SECRETS": [SECRET]})
    headers = signed_url("http://testserver/webhooks/acme/?id=7")
    assert post("acme", b"{}", path="/webhooks/acme/?id=7", headers=headers, extra=extra).status_code == status


@pytest.mark.parametrize("host", ["evil.example", "a b", "[", "%00", "é"])
def test_a_junk_host_is_a_refusal_where_no_middleware_looks_at_it(post, sources, settings, host):
    settings.MIDDLEWARE = []
    sources(acme={"PROVIDER": "tests.test_views.URL_SIGNED", "SECRETS": [SECRET]})
    headers = signed_url("http://testserver/webhooks/acme/?id=7")
    response = post("acme", b"{}", path="/webhooks/acme/?id=7", headers=headers, extra={"Host": host})
    assert response.status_code == 401
    assert post("stripe", EVENT, extra={"Host": host}).status_code == 200


# -- refusals ----------------------------------------------------------------------------------------------------------


def old(body):
    return senders.stripe(body, at=int((timezone.now() - timedelta(hours=1)).timestamp()))


@pytest.mark.parametrize(
    ("content", "sign", "status", "decision"),
    [
        (EVENT, lambda body: {}, 401, "rejected"),
        (EVENT, lambda body: senders.stripe(body + b" "), 401, "rejected"),
        (EVENT, lambda body: {"Stripe-Signature": "t=é,v1=\x00"}, 401, "rejected"),
        (EVENT, old, 400, "late"),
        (b"{", senders.stripe, 400, "malformed"),
        ({"type": "x"}, senders.stripe, 400, "malformed"),
    ],
)
def test_a_refusal_has_a_constant_short_body(post, content, sign, status, decision):
    response = post("stripe", content, headers=sign(senders.dumps(content)))
    assert response.status_code == status
    assert response.json() == {"status": decision}
    assert response["Content-Type"] == "application/json"
    assert WebhookReceipt.objects.count() == 0


def test_an_accepted_delivery_is_told_its_reference(post):
    response = post("stripe", EVENT)
    assert response.json() == {"status": "ignored", "receipt": WebhookReceipt.objects.get().fingerprint[:16]}

"""Secrets are planted, everything is made to fail, and then they are looked for."""

import hmac
import json
import logging
import time

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import path
from django.utils import timezone
from django.utils.log import AdminEmailHandler
from django.views.debug import ExceptionReporter

from django_webhook_guard import conf
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import UnknownTenant
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.providers import Provider
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import HMACVerifier
from django_webhook_guard.views import WebhookView
from tests import senders

LISTED = "pl4nted-listed-0123456789"
LOOKED_UP = "pl4nted-looked-up-0123456789"
FLAWED = "pl4nted flawed with a space at the end "
PLANTED = "pl4nted"
EVENT = {"id": "evt_1", "type": "x"}


class Breaking(HMACVerifier):
    """A verifier with a fault, as a project may write one."""

    def verify(self, delivery, secrets):
        super().verify(delivery, secrets)
        raise RuntimeError("a fault in a verifier")


class BreakingEarly(HMACVerifier):
    def admit(self, delivery):
        raise RuntimeError("a fault in a verifier")


SCHEME = {"header": "X-Acme", "signed": "{body}"}
BREAKING = Provider(name="breaking", verifier=Breaking(**SCHEME), event_id="id")
BREAKING_EARLY = Provider(name="breaking-early", verifier=BreakingEarly(**SCHEME), event_id="id")


def looked_up(source, tenant):
    return [Secret(LOOKED_UP)]


def look_up_breaks(source, tenant):
    raise RuntimeError(f"the vault said {LOOKED_UP}")


def look_up_knows_nobody(source, tenant):
    raise UnknownTenant(f"no tenant {tenant}")


class AnswerBreaks(WebhookView):
    def get_response(self, outcome):
        secrets = conf.get_source(self.source).secrets
        raise RuntimeError(f"a fault with {len(secrets)} secrets on the stack")


urlpatterns = [path("webhooks/breaks/", AnswerBreaks.as_view(source="stripe"))]


@pytest.fixture
def planted(sources):
    sources(
        stripe={"SECRETS": [LISTED, {"id": "old", "secret": "pl4nted-old-0123456789"}]},
        looked={"PROVIDER": "stripe", "SECRETS": f"{__name__}.looked_up"},
        broken={"PROVIDER": "stripe", "SECRETS": f"{__name__}.look_up_breaks"},
        breaking={"PROVIDER": f"{__name__}.BREAKING", "SECRETS": ["pl4nted-breaking-0123456789"]},
        early={"PROVIDER": f"{__name__}.BREAKING_EARLY", "SECRETS": ["pl4nted-early-0123456789"]},
        flawed={"PROVIDER": "stripe", "SECRETS": [FLAWED, "pl4nted", "sk_test_pl4nted_0123456789"]},
        text={"PROVIDER": "stripe", "SECRETS": "pl4nted-text-0123456789"},
        dotted={"PROVIDER": "stripe", "SECRETS": "pl4nted.text.0123456789"},
        unknown={"PROVIDER": "stripe", "TENANT": "url", "SECRETS": f"{__name__}.look_up_knows_nobody"},
    )


@pytest.fixture
def everything(planted, handler, post):
    """Send what leads to every kind of outcome; return what was presented and what was expected."""

    @handler("stripe", "fails")
    def fails(event):
        secret = conf.get_source("stripe").secrets[0]
        raise RuntimeError(f"a handler that tells {secret.secret}")

    @handler("stripe", "breaks")
    def breaks(event):
        raise RuntimeError("a fault in a handler")

    def play():
        now, body = int(time.time()), json.dumps(EVENT).encode()
        forged = "fa" * 32
        expected = [senders.hexmac(secret, f"{now}.".encode() + body) for secret in (LISTED, LOOKED_UP)]
        post("stripe", body, headers={"Stripe-Signature": f"t={now},v1={forged}"})
        post("stripe", body, headers={"Stripe-Signature": "n0nsense\r\nwith a line break"})
        for at in (now, now, now - 9999, now + 9999):
            post("stripe", body, at=at, secret=LISTED)
        post("stripe", b"no json", secret=LISTED)
        for number, kind in ((2, "fails"), (3, "breaks")):
            post("stripe", {"id": f"evt_{number}", "type": kind}, secret=LISTED)
        for name in ("looked", "broken", "flawed", "text", "dotted"):
            post(name, body, headers=senders.stripe(body, at=now, secret=LOOKED_UP))
        for name in ("breaking", "early"):
            post(name, body, headers={"X-Acme": senders.hexmac(f"pl4nted-{name}-0123456789", body)})
        post("unknown", body, path="/webhooks/unknown/a%0Ab/", headers=senders.stripe(body))
        return [forged, "n0nsense", *expected]

    return play


def frames(error):
    """What a tracker keeps of a stack: the variables of our frames."""
    found, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("django_webhook_guard"):
            found.append({name: repr(value) for name, value in trace.tb_frame.f_locals.items()})
        trace = trace.tb_next
    return found


@pytest.mark.django_db(transaction=True)
def test_j5_no_log_line_holds_a_secret_or_a_signature(everything, caplog):
    caplog.set_level(logging.DEBUG)
    presented = everything()
    lines = [record.getMessage() for record in caplog.records if record.name == "django_webhook_guard"]
    assert len(lines) > 15
    # The project's own handler told one; its text is redacted in the rows, and no line of ours repeats it.
    text = "".join(lines)
    assert not any(secret in text for secret in (PLANTED, *presented))
    assert not any("\n" in line or "\r" in line for line in lines)


def faults(caplog):
    """The records of the three faults that tell nothing by themselves."""
    found = [record for record in caplog.records if record.exc_info and "a fault in a" in str(record.exc_info[1])]
    assert len(found) == 3
    return found


@pytest.mark.django_db(transaction=True)
def test_j6_no_traceback_and_no_frame_of_a_logged_error_holds_a_secret(everything, caplog):
    everything()
    for record in faults(caplog):
        dump = repr(frames(record.exc_info[1])) + caplog.handler.format(record)
        assert "Source(name=" in dump and "Traceback" in dump
        assert PLANTED not in dump


@pytest.mark.django_db(transaction=True)
def test_j6_no_error_mail_holds_a_secret(everything, caplog):
    everything()
    mails = []

    class Handler(AdminEmailHandler):
        def send_mail(self, subject, message, *args, html_message, **kwargs):
            mails.append((message, html_message))

    for record in faults(caplog):
        Handler(include_html=True).emit(record)
    assert len(mails) == 3
    for text, html in mails:
        assert "a fault in a" in html and "django_webhook_guard" in html
        assert PLANTED not in html and PLANTED not in text


@pytest.mark.django_db
def test_j6_the_debug_page_holds_no_secret(planted, settings):
    settings.DEBUG, settings.ROOT_URLCONF = True, __name__
    client = Client(raise_request_exception=False)
    body = json.dumps(EVENT).encode()
    for secret in (LISTED, "another-0123456789abcdef"):
        response = client.post(
            "/webhooks/breaks/", body, content_type="application/json", headers=senders.stripe(body, secret=secret)
        )
        page = response.content.decode()
        assert response.status_code == 500
        assert "secrets on the stack" in page and "WEBHOOK_GUARD" in page
        assert PLANTED not in page


@pytest.mark.django_db(transaction=True)
def test_j6_with_debug_on_a_failing_handler_shows_no_page(everything, settings, post):
    settings.DEBUG = True
    everything()
    response = post("stripe", {"id": "evt_4", "type": "fails"}, secret=LISTED)
    assert (response.status_code, response.json()["status"]) == (500, "failed")
    assert b"RuntimeError" not in response.content and PLANTED.encode() not in response.content


@pytest.mark.parametrize("name", ["broken", "flawed", "text", "dotted"])
def test_j6_no_frame_of_a_configuration_error_holds_a_secret(planted, name):
    with pytest.raises(conf.Misconfigured) as caught:
        conf.get_source(name).live_secrets(None, timezone.now())
    page = ExceptionReporter(None, type(caught.value), caught.value, caught.value.__traceback__).get_traceback_html()
    assert PLANTED not in repr(frames(caught.value))
    assert PLANTED not in str(caught.value)
    assert caught.value.__context__ is None
    assert "live_secrets" in page or "get_source" in page


def test_j6_no_frame_of_a_mac_that_fails_holds_the_key():
    secret = Secret("pl4nted-0123456789abcdef")
    with pytest.raises(TypeError) as caught:
        secret.mac("text instead of bytes", algorithm="sha256")
    assert PLANTED not in repr(frames(caught.value))


def test_j6_no_repr_holds_a_secret(planted):
    known = conf.configuration()
    source = known.sources["stripe"]
    delivery = Delivery(method="POST", url="/", headers={"authorization": "Bearer pl4nted"}, body=b"pl4nted")
    body = b"{}"
    signed = Delivery(method="POST", url="/", headers={"x-acme": senders.hexmac(LISTED, body)}, body=body)
    verification = HMACVerifier(**SCHEME).verify(signed, source.secrets)
    shown = repr(
        [known, source, source.secrets, delivery, verification, known.problems, conf._cache["WEBHOOK_GUARD"][1]]
    )
    assert "Secret(id='old'" in shown
    assert PLANTED not in shown


def test_j8_no_check_message_holds_a_secret(planted):
    messages = run_checks(tags=["django_webhook_guard"])
    assert {message.id[-4:] for message in messages} >= {"E012", "E013", "E014"}
    assert PLANTED not in repr([(message.msg, message.hint, message.obj) for message in messages])


def test_the_check_command_prints_no_secret(planted, capsys):
    with pytest.raises(Exception, match="E013") as caught:
        call_command("check", tags=["django_webhook_guard"])
    assert PLANTED not in str(caught.value) + "".join(capsys.readouterr())


@pytest.mark.django_db(transaction=True)
def test_no_row_holds_a_listed_secret_or_a_signature(everything):
    presented = everything()
    assert WebhookReceipt.objects.count() >= 3 and WebhookAttempt.objects.count() == 2
    with connection.cursor() as cursor:
        tables = [
            name for name in connection.introspection.table_names(cursor) if name.startswith("django_webhook_guard")
        ]
        assert len(tables) >= 3
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            rows = repr(
                [[bytes(cell) if isinstance(cell, memoryview) else cell for cell in row] for row in cursor.fetchall()]
            )
            assert not any(secret in rows for secret in (PLANTED, *presented)), table


def test_the_key_id_tells_nothing_of_the_secret():
    ids = {Secret(f"pl4nted-0123456789abcde{number}").key_id for number in range(9)}
    assert len(ids) == 9
    assert all(len(each) == 8 and int(each, 16) >= 0 for each in ids)
    assert hmac.new(LISTED.encode(), b"", "sha256").hexdigest()[:8] not in ids

"""``webhook_send``: what is sent, and what becomes of any answer over real HTTP."""

import io
import json
import socket
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from threading import Thread

import pytest
from django.core.management import CommandError, call_command

from django_webhook_guard.handlers import DRILL
from django_webhook_guard.management import sending
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from tests import senders

HERE = "http://127.0.0.1:1/webhooks/stripe/"
EVENT = {"id": "evt_1", "type": "x", "text": "é"}


def send(*arguments, **options):
    out = StringIO()
    call_command("webhook_send", *arguments, stdout=out, **options)
    return out.getvalue().splitlines()


def line_of(*arguments):
    out = StringIO()
    call_command("webhook_export", *arguments, stdout=out)
    return out.getvalue()


# -- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_made_up_event_is_accepted(sent):
    assert send(HERE, source="stripe")[0] == "200 OK"
    assert WebhookReceipt.objects.get().event_type == DRILL
    send(HERE, source="stripe", event_type="invoice.paid")
    assert WebhookReceipt.objects.get(event_type="invoice.paid").event_id.startswith("drill_")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("source", "signing"),
    [("stripe", {}), ("partner", {"key": "k1"}), ("github", {"guid": "g1", "event": "push"})],
)
def test_an_exported_event_is_signed_anew_and_is_the_same_event(post, sent, tmp_path, source, signing):
    post(source, EVENT, **signing)
    first = WebhookReceipt.objects.get()
    file = tmp_path / "line"
    file.write_text(line_of(f"--source={source}"))
    told = send(HERE.replace("stripe", source), event=str(file))
    assert json.loads(told[1]) == {"status": "duplicate", "receipt": first.reference}
    assert sent[0].body == senders.dumps(EVENT)
    WebhookReceipt.objects.all().delete()
    WebhookSeen.objects.all().delete()
    send(HERE.replace("stripe", source), event=str(file))
    again = WebhookReceipt.objects.get()
    assert (again.event_id, again.event_type, again.fingerprint) == (
        first.event_id,
        first.event_type,
        first.fingerprint,
    )


@pytest.mark.django_db
def test_it_comes_from_standard_input_and_for_another_source(post, sent, sources, monkeypatch):
    sources(second={"PROVIDER": "stripe", "SECRETS": ["whsec_second56789abcdef0123"]})
    post("stripe", EVENT)
    monkeypatch.setattr("sys.stdin", io.StringIO(line_of("--source=stripe")))
    send("http://127.0.0.1:1/webhooks/second/", event="-", source="second")
    assert WebhookReceipt.objects.get(source="second").event_id == "evt_1"


@pytest.mark.django_db
def test_a_receipt_of_a_tenant_is_sent_with_its_tenants_secret(sources, sent, tmp_path):
    sources(shops={"PROVIDER": "stripe", "TENANT": "url", "SECRETS": "tests.commands.test_webhook_drill.tenants"})
    send("http://127.0.0.1:1/webhooks/shops/north/", source="shops", tenant="north")
    (tmp_path / "line").write_text(line_of("--source=shops"))
    told = send("http://127.0.0.1:1/webhooks/shops/north/", event=str(tmp_path / "line"))
    assert json.loads(told[1])["status"] == "duplicate"


@pytest.mark.django_db
def test_what_was_exported_without_its_body_is_not_sent(post, sent, sources, tmp_path):
    sources(stripe={"PERSONAL": ["text"]})
    post("stripe", EVENT)
    (tmp_path / "line").write_text(line_of("--source=stripe"))
    with pytest.raises(CommandError, match="--with-personal"):
        send(HERE, event=str(tmp_path / "line"))
    assert sent == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", '{"body": 1}', '{"body": "e30="}', '{"body": "e30=", "headers": []}', "[" * 100_000,
        '{"body": "e30=", "headers": {}, "source": 1}', '{"body": "?", "headers": {}, "source": "stripe"}',
    ],
)  # fmt: skip
def test_what_is_no_exported_event_is_refused(sent, tmp_path, text):
    (tmp_path / "line").write_text(text)
    with pytest.raises(CommandError, match=r"no line of webhook_export|without its body"):
        send(HERE, event=str(tmp_path / "line"))
    assert sent == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([HERE], "Give --source"),
        ([HERE, "--source=strip"], "known: stripe, github, partner"),
        ([HERE, "--event=/no/such/file"], "cannot be read"),
        ([HERE, "--source=stripe", "--timeout=0"], "whole number"),
        (["ftp://example.org/", "--source=stripe"], "Give a URL such as"),
        (["file:///etc/passwd", "--source=stripe"], "Give a URL such as"),
        (["http:///x", "--source=stripe"], "Give a URL such as"),
        (["http://example.org:99999/", "--source=stripe"], "Give a URL such as"),
        (["http://example.org/\r\nX: y", "--source=stripe"], "Give a URL such as"),
        (["http://user:pass@example.org/", "--source=stripe"], "without user"),
        (["http://example.org/#x", "--source=stripe"], "without user"),
    ],
)
def test_what_cannot_be_sent_is_an_error(sent, arguments, told):
    with pytest.raises(CommandError, match=told):
        call_command("webhook_send", *arguments, stdout=StringIO())
    assert sent == []


def test_a_header_of_an_export_cannot_break_the_request(tmp_path):
    line = {"body": "e30=", "headers": {"x-evil": "a\r\nX-Other: b", "host": "evil"}, "source": "stripe"}
    (tmp_path / "line").write_text(json.dumps(line))
    with answering(b"HTTP/1.0 200 OK\r\n\r\n") as url, pytest.raises(CommandError, match="No answer"):
        send(url, event=str(tmp_path / "line"))


# -- what is answered --------------------------------------------------------------------------------------------------


@contextmanager
def answering(raw, *, slowly=0.0):
    """Answer one request with raw bytes, over a real socket; yield the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        try:
            connection, _ = listener.accept()
            with connection:
                request = b""
                while not request.endswith(b"}"):
                    part = connection.recv(65_536)
                    request += part or b"}"
                for byte in [raw] if not slowly else [raw[:40], *(raw[i : i + 1] for i in range(40, len(raw)))]:
                    connection.sendall(byte)
                    time.sleep(slowly)
        except OSError:
            pass  # the client went away, or never came

    thread = Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/in/?a=1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # wakes it where nobody came
        thread.join(5)
        listener.close()


def test_it_prints_status_and_body():
    with answering(b"HTTP/1.0 202 Accepted\r\n\r\nthanks\nline two") as url:
        assert send(url, source="stripe") == ["202 Accepted", "thanks", "line two"]


def test_what_comes_over_the_wire_is_signed():
    received = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.handle_request, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/in/?a=1"
        assert send(url, source="stripe") == ["204 No Content"]
        thread.join(5)
    ((path, headers, body),) = received
    assert path == "/in/?a=1"
    given = {name.lower(): value for name, value in headers.items()}
    at = int(given["stripe-signature"].partition(",")[0][2:])
    assert given["stripe-signature"] == senders.stripe(body, at=at)["Stripe-Signature"]
    assert given["user-agent"] == "django-webhook-guard"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.0 401 Unauthorized\r\n\r\n",
        b"HTTP/1.0 500 Oops\r\n\r\n",
    ],
)
def test_what_is_no_2xx_ends_in_an_error_and_no_redirect_is_followed(raw):
    with answering(raw) as url, pytest.raises(CommandError, match="no 2xx"):
        send(url, source="stripe")


def test_an_answer_is_made_visible_and_cut():
    evil = "\x1b[2J\u202e\x9b".encode() + b"\xff" + b"x" * 200_000
    with answering(b"HTTP/1.0 200 \x1b[2J\r\n\r\n" + evil) as url:
        status, body = send(url, source="stripe")
    assert (status + body).isprintable()
    assert body.startswith(r"\x1b[2J\u202e\x9b\xff") and body.endswith("x…")
    assert len(body) < 2 * sending.SHOWN


@pytest.mark.parametrize("raw", [b"", b"\x1b[2J\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_no_answer_is_an_error(raw):
    with answering(raw) as url, pytest.raises(CommandError, match=r"No answer from 127\.0\.0\.1") as caught:
        send(url, source="stripe")
    assert "\x1b" not in str(caught.value)


def test_nobody_there_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CommandError, match="No answer"):
        send(f"http://127.0.0.1:{port}/", source="stripe")


@pytest.mark.parametrize("slowly", [0.3, 2])
def test_it_does_not_wait_for_ever(slowly):
    raw = b"HTTP/1.0 200 OK\r\nX-Filler: aaaaaaaaaaaa\r\n\r\n" + b"x" * 20 if slowly < 1 else b""
    start = time.monotonic()
    with answering(raw, slowly=slowly) as url:
        try:
            send(url, source="stripe", timeout=1)
        except CommandError as error:
            assert "No answer" in str(error)
        assert time.monotonic() - start < 3

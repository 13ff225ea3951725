"""Whatever a stranger sends before a signature is right: one 4xx, no row, no query, no error."""

import json
import logging
import random
import time
from contextlib import contextmanager

import pytest
from django.db import connections
from django.test import Client

from django_webhook_guard.models import WebhookReceipt
from tests import senders

ROUNDS = 20_000
CHARACTERS = "\0\t\n\r !\"%',-./0:;=?@A[\\]_`a{|}~\x7f\x80\xa0\xe9\xff"
PATHS = [
    "/webhooks/stripe/",
    "/webhooks/github/",
    "/webhooks/partner/",
    "/webhooks/stripe",
    "/webhooks/nobody/",
    "/webhooks/%00/",
    "/webhooks/stripe%00/",
    "/webhooks/STRIPE/",
    "/webhooks/stripe/tenant/",
    "/webhooks/stripe/%00",
    "/webhooks/%FF%FE/",
    "/webhooks/%ED%A0%80/",
    "/webhooks/..%2Fstripe/",
    "/webhooks/" + "a" * 10_000 + "/",
    "/webhooks/stripe/" + "%F0%9F%98%80" * 300,
    "/webhooks/stripe/?" + "a=1&" * 500,
    "/webhooks/stripe/?%00=%FF&[",
    "//webhooks/stripe/",
]
TYPES = [
    "application/json",
    "application/json; charset=bogus",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data; boundary=x\r\nX-Evil: 1",
    "multipart/form-data",
    "text/plain\0",
    "\xff/\xe9",
    "",
    ";=" * 20,
]
EXTRA = {
    "CONTENT_LENGTH": ["-1", "abc", "9" * 5000, "", "\u0665", "1e3", "2000000", "0"],
    "HTTP_TRANSFER_ENCODING": ["chunked", "gzip, chunked", "\xff"],
    "HTTP_HOST": ["evil.example", "[", "a b", ""],
    "HTTP_CONTENT_DIGEST": ["sha-256=:AAAA:", ",", "\xff" * 100],
    "HTTP_X_FORWARDED_HOST": ["evil.example"],
    "HTTP_COOKIE": ["sessionid=\xff", "a" * 9000, ";;;="],
    "HTTP_USER_AGENT": ["\0", "\xe9" * 5000],
    "HTTP_IDEMPOTENCY_KEY": ["\0", "k" * 9000, ""],
    "HTTP_STRIPE_SIGNATURE": ["t=1,v1=" + "00" * 32, "t=1" + ",v1=00" * 5000, "=" * 4000, "," * 4000],
    "HTTP_X_HUB_SIGNATURE_256": ["sha256=" + "00" * 32, "sha256=" + "\u0660" * 64, "md5=00"],
    "HTTP_X_HUB_SIGNATURE": ["sha1=" + "00" * 20],
    "HTTP_X_HTTP_METHOD_OVERRIDE": ["GET"],
    "HTTP_EXPECT": ["100-continue"],
}
METHODS = ["POST"] * 30 + ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post", "\xff"]


def mutated(chance, text):
    """Change, drop, double or swell one place of a text."""
    position = chance.randrange(len(text) + 1)
    new = chance.choice(
        [
            chance.choice(CHARACTERS),
            "",
            chance.choice(CHARACTERS) * chance.choice([2, 70, 5000]),
            text[:position],
            "," + text,
            chance.choice(["0", "+", "e", "\u0665", "\U0001f600"]),
        ]
    )
    return text[:position] + new + text[position + chance.choice([0, 1, 1, 64]) :]


def junk(chance):
    """Return a request that no secret of ours made: signed by another, or its body changed afterwards."""
    name = chance.choice(list(senders.SIGNERS))
    body = json.dumps({"id": f"evt_{chance.random()}", "type": "x", "created": int(time.time())}).encode()
    if chance.random() < 0.5:
        signed = senders.SIGNERS[name](body, secret="another-0123456789abcdef")
    else:
        signed = senders.SIGNERS[name](body)
        body += chance.choice([b" ", b"\0", b"\xff", b"[" * 3000, b"\r\n", b"{}", b"9" * 5000])
    headers = {"HTTP_" + key.upper().replace("-", "_"): value for key, value in signed.items()}
    for key in list(headers):
        fate = chance.random()
        if fate < 0.4:
            headers[key] = mutated(chance, headers[key])
        elif fate < 0.45:
            del headers[key]
    for key in chance.sample(list(EXTRA), chance.choice([0, 0, 1, 2])):
        headers[key] = chance.choice(EXTRA[key])
    path = f"/webhooks/{name}/" if chance.random() < 0.7 else chance.choice(PATHS)
    return chance.choice(METHODS), path, body, chance.choice(TYPES), headers


@contextmanager
def no_query():
    def refuse(execute, sql, params, many, context):
        pytest.fail(f"a query for a stranger: {sql}")

    with connections["default"].execute_wrapper(refuse), connections["other"].execute_wrapper(refuse):
        yield


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def send(client, method, path, body, content_type, headers):
    environ = {"PATH_INFO": path, **headers} if "\0" in path else headers
    # The client would encode the body by the type's charset; a server passes both on as they came.
    request = {"CONTENT_TYPE": content_type, **environ}
    return client.generic(method, path, body, "application/octet-stream", **request)


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.slow
def test_twenty_thousand_strangers(anywhere, quiet, caplog):
    chance, client = random.Random(20261130), Client(enforce_csrf_checks=True)
    statuses = {}
    with no_query():
        for _ in range(ROUNDS):
            method, *request = junk(chance)
            response = send(client, method, *request)
            assert response.status_code in (400, 401, 404, 405, 411, 413) or method == "OPTIONS", (method, request)
            assert len(response.content) < 400 or response.status_code == 404
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
    assert {record.name for record in caplog.records} == {"django.security.DisallowedHost"}  # nothing of ours at ERROR
    assert statuses[401] > ROUNDS / 2 and {404, 405, 413} < set(statuses)
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_the_answer_to_a_stranger_is_short_and_always_the_same(post):
    answers = {
        post("stripe", {"id": "evt_1"}, headers=headers).content
        for headers in ({}, {"Stripe-Signature": "x"}, {"Stripe-Signature": "t=1,v1=" + "00" * 32})
    }
    assert answers == {b'{"status": "rejected"}'}


def test_an_unread_body_of_a_stranger_stays_unread(post, monkeypatch):
    monkeypatch.setattr("django_webhook_guard.views._read", lambda *given: pytest.fail("read"))
    assert post("stripe", b"x" * 1000, headers={}).status_code == 401
    assert post("stripe", b"x" * 1000, headers={"Stripe-Signature": "junk"}).status_code == 401


def test_an_underscore_is_no_dash_in_a_header(client):
    body = b'{"id":"evt_1","type":"x"}'
    signature = senders.stripe(body)["Stripe-Signature"]
    for name in ("Stripe_Signature", "STRIPE_SIGNATURE", "HTTP_STRIPE_SIGNATURE_", "http_stripe_signature"):
        assert client.generic("POST", "/webhooks/stripe/", body, **{name: signature}).status_code == 401


def test_the_signed_border_is_checked_over_a_megabyte(post):
    body = b'{"id":"evt_1","type":"x","pad":"' + b"x" * ((1 << 20) - 40) + b'"}'
    headers = senders.stripe(body)
    assert post("stripe", body[:-3] + b'y"}', headers=headers).status_code == 401
    assert post("stripe", body + b" " * 100, headers=headers).status_code == 413

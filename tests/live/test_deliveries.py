"""Deliveries that others have signed, over HTTP."""

import shutil
import subprocess
import time

import pytest
import stripe

from tests.servers import Event

pytestmark = pytest.mark.slow

BRIEF_STRIPE = "whsec_brief456789abcdef0123"
BRIEF_PARTNER = "brief-partner-456789abcdef"


def by_stripe(event, at, secret):
    """Sign as the ``stripe`` package does."""
    header = stripe.WebhookSignature.generate_signature_header(event.body.decode(), secret, at)
    return {"Stripe-Signature": header}


def by_openssl(event, at, nonce, secret):
    """Sign the generic contract by a program that is not Python."""
    made = subprocess.run(
        [shutil.which("openssl"), "dgst", "-sha256", "-hmac", secret, "-r"],
        input=f"{at}.{nonce}.".encode() + event.body, capture_output=True, check=True,
    )  # fmt: skip
    digest = made.stdout.split()[0].decode()
    return {"X-Timestamp": str(at), "X-Nonce": nonce, "X-Signature-256": f"sha256={digest}"}


@pytest.fixture(params=["sync", "threads"])
def server(request):
    return request.getfixturevalue(request.param)


def test_five_identical_deliveries_and_the_same_bytes_after_the_window(sync, threads, database, new):
    at = int(time.time())
    sent = []
    for server in (sync, threads):
        paid, booked = new("stripe", source="brief-stripe"), new("partner", source="brief-partner")
        pushed = new("github")
        sent += [
            (server, paid, by_stripe(paid, at, BRIEF_STRIPE)),
            (server, booked, by_openssl(booked, at, f"nonce-{booked.id}", BRIEF_PARTNER)),
            (server, pushed, pushed.signed()),
        ]
    for server, event, headers in sent:
        answers = [event.deliver(server, headers=headers) for _ in range(5)]
        heard = [(answer.status, answer.decision) for answer in answers]
        assert heard == [(200, "processed"), *[(200, "duplicate")] * 4]
    time.sleep(max(0, at + 6.2 - time.time()))
    for server, event, headers in sent:
        again = event.deliver(server, headers=headers)
        if event.sender == "github":  # signs no time: nothing of it is ever late
            assert again.decision == "duplicate"
        else:
            assert (again.status, again.text) == (400, '{"status": "late"}')
        assert database.effects(event) == {"handler": 1}
        assert database.receipt(event)["attempts"] == 1


def test_a_retry_that_is_signed_afresh_is_the_same_event(server, database, new):
    event = new("stripe")
    secret = "whsec_0123456789abcdef0123"
    now = int(time.time())
    answers = [event.deliver(server, headers=by_stripe(event, now - age, secret)) for age in (2, 1, 0)]
    assert [answer.decision for answer in answers] == ["processed", "duplicate", "duplicate"]
    assert database.effects(event) == {"handler": 1}


def test_a_late_delivery_of_an_unknown_event_stores_nothing(server, database, new):
    event = new("stripe")
    answer = event.deliver(server, headers=event.signed(at=int(time.time()) - 301))
    assert (answer.status, answer.decision) == (400, "late")
    assert database.receipts(event) == []


def test_the_vector_that_github_publishes(server):
    """https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"""
    published = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"X-GitHub-Event": "one", "X-GitHub-Delivery": "vector", "X-Hub-Signature-256": published}
    genuine = server.post("github-docs", b"Hello, World!", headers)
    assert (genuine.status, genuine.decision) == (400, "malformed")  # signed, but no JSON
    tampered = server.post("github-docs", b"Hello, World?", headers)
    assert (tampered.status, tampered.decision) == (401, "rejected")


def test_a_forgery_leaves_nothing_behind(server, database, new):
    for sender in ("stripe", "github", "partner"):
        event = new(sender)
        headers = {
            name: value[:-1] + ("0" if value[-1] != "0" else "1") if "sig" in name.lower() else value
            for name, value in event.signed().items()
        }
        assert event.deliver(server, headers=headers).status == 401
        assert database.receipts(event) == []


def test_a_captured_message_under_a_fresh_id_takes_no_effect(server, database, new):
    event = new("github")
    signed = event.signed()
    assert event.deliver(server, headers=signed).decision == "processed"
    again = event.deliver(server, headers={**signed, "X-GitHub-Delivery": "another"})
    assert (again.status, again.decision) == (202, "quarantined")
    assert database.effects(event) == {"handler": 1}


def test_an_event_that_nobody_wants_is_taken(server, database):
    event = Event("stripe", f"evt_unwanted_{server.port}", "nobody.wants")
    assert [event.deliver(server).decision for _ in range(2)] == ["ignored", "duplicate"]
    assert database.receipt(event)["status"] == "ignored"

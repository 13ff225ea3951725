"""Slack's own package as the oracle: where we are stricter or looser, a test names it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.providers.slack import SLACK
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import check_window
from tests.senders import SLACK_SECRET, hexmac, slack

signature = pytest.importorskip(
    "slack_sdk.signature", reason="slack-sdk is not installed: dependency group oracle-slack"
)
NOW = 1_700_000_000
BODY = '{"type":"event_callback","event_id":"Ev1"}'


class Clock:
    def now(self):
        return NOW


PACKAGE = signature.SignatureVerifier(SLACK_SECRET, Clock())


def package(headers, body=BODY):
    """Whether Slack's own package accepts a delivery at ``NOW``; an error of any kind is a no."""
    try:
        return PACKAGE.is_valid_request(body, headers)
    except (ValueError, TypeError):
        return False


def ours(headers, body=BODY):
    raw = body if isinstance(body, bytes) else body.encode()
    named = {name.lower(): value for name, value in headers.items()}
    try:
        verification = SLACK.verifier.verify(
            Delivery(method="POST", url="/", headers=named, body=raw), [Secret(SLACK_SECRET)]
        )
    except VerificationError:
        return False
    now = datetime.fromtimestamp(NOW, UTC)
    return check_window(verification.signed_at, now, SLACK.tolerance) == "inside"


def signed(stamp=str(NOW), body=BODY, *, signed_as=None, change=lambda text: text):
    mac = hexmac(SLACK_SECRET, f"v0:{stamp if signed_as is None else signed_as}:{body}".encode())
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": change("v0=" + mac)}


@given(body=st.text(st.characters(exclude_categories=["Cs"]), max_size=200), offset=st.integers(-301, 301))
@settings(deadline=None, max_examples=200)
def test_we_accept_what_the_package_signs_in_the_same_window(body, offset):
    stamp = str(NOW + offset)
    made = PACKAGE.generate_signature(timestamp=stamp, body=body)
    headers = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": made}
    assert ours(headers, body) == package(headers, body) == (abs(offset) <= 300)


@given(
    body=st.text(st.characters(max_codepoint=0x2FF), max_size=60),
    position=st.integers(0, 999),
    flip=st.integers(1, 127),
)
@settings(deadline=None, max_examples=200)
def test_we_and_the_package_refuse_a_changed_body(body, position, flip):
    headers = slack(body.encode(), at=NOW)
    tampered = bytearray(body.encode() or b"\0")
    tampered[position % len(tampered)] ^= flip
    assert not ours(headers, bytes(tampered))
    assert not package(headers, bytes(tampered))


@given(
    stamp=st.sampled_from(
        [str(NOW), str(NOW + 1), "0" + str(NOW), "", "x", str(NOW * 1000), str(NOW) + ".0", "-5", "9" * 400]
    ),
    mac=st.sampled_from([signed()["X-Slack-Signature"], "v0=", "v0=" + "0" * 64, "v1=" + "0" * 64, "", "v0=\xe9", "x"]),
    right=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_we_and_the_package_agree_on_headers(stamp, mac, right):
    headers = signed(stamp) if right else {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": mac}
    assert ours(headers) == package(headers)


@pytest.mark.parametrize("stamp", [f"+{NOW}", f"{NOW}"[:2] + "_" + f"{NOW}"[2:], f" {NOW}", "\u0661\u0667" + "0" * 8])
def test_stricter_than_the_package(stamp):
    assert package(signed(stamp))
    assert not ours(signed(stamp))


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (signed(change=lambda text: "v0=" + text[3:].upper()), BODY),
        (signed(change=lambda text: text + " "), BODY),
        (slack(b'{"a":"\xff"}', at=NOW), b'{"a":"\xff"}'),
    ],
)
def test_looser_than_the_package(headers, body):
    """Hex has no case, outer blanks are no data, and bytes that are no text are signed as they are."""
    assert ours(headers, body)
    assert not package(headers, body)

"""Stripe's own package as the oracle: where we are stricter or looser, a test names it."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.providers.stripe import STRIPE
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import check_window
from tests.senders import STRIPE_SECRET, hexmac

stripe = pytest.importorskip("stripe", reason="stripe is not installed: dependency group oracle-stripe")
WebhookSignature = stripe.WebhookSignature
BODY = '{"id":"evt_1","object":"event","type":"invoice.paid"}'
STAMP = "1700000000"


def sign(body=BODY, stamp=STAMP, secret=STRIPE_SECRET):
    return hexmac(secret, f"{stamp}.{body}".encode())


def package(header, body=BODY, secret=STRIPE_SECRET):
    """Whether Stripe's own package accepts a delivery, whatever its age; an error of any kind is a no."""
    try:
        return WebhookSignature.verify_header(body, header, secret)
    except (stripe.SignatureVerificationError, TypeError):
        return False


def ours(header, body=BODY, secret=STRIPE_SECRET):
    raw = body if isinstance(body, bytes) else body.encode()
    delivery = Delivery(method="POST", url="/", headers={"stripe-signature": header}, body=raw)
    try:
        return STRIPE.verifier.verify(delivery, [Secret(secret)]).content.endswith(raw)
    except VerificationError:
        return False


GOOD = f"t={STAMP},v1={sign()}"


def test_the_vector_that_the_package_accepted():
    body = '{"id":"evt_1","object":"event","type":"invoice.paid","account":"acct_1"}'
    header = "t=1700000000,v1=383b86961bcc0cc5424e3627173097c3484cb027a9a7c06e0d03a828ce31478b"
    assert ours(header, body, "whsec_test_secret")
    assert package(header, body, "whsec_test_secret")


@given(body=st.text(st.characters(exclude_categories=["Cs"]), max_size=200), stamp=st.integers(1, 10**12))
@settings(deadline=None, max_examples=200)
def test_we_accept_what_the_package_signs(body, stamp):
    header = WebhookSignature.generate_signature_header(body, STRIPE_SECRET, timestamp=stamp)
    assert ours(header, body)
    assert package(header, body)


@given(
    body=st.text(st.characters(max_codepoint=0x2FF), max_size=80),
    position=st.integers(0, 999),
    flip=st.integers(1, 127),
)
@settings(deadline=None, max_examples=200)
def test_we_and_the_package_refuse_a_changed_body(body, position, flip):
    header = f"t={STAMP},v1={sign(body)}"
    tampered = bytearray(body.encode() or b"\0")
    tampered[position % len(tampered)] ^= flip
    assert not ours(header, bytes(tampered))
    decoded = tampered.decode("utf-8", "ignore")
    assert decoded.encode() != tampered or not package(header, decoded)


ITEMS = st.sampled_from(
    [
        f"t={STAMP}",
        "t=1700000001",
        "t=",
        "t",
        "t=x",
        f"t={STAMP}=",
        f"v1={sign()}",
        f"v1={sign().upper()}",
        f"v1={sign(body=BODY + ' ')}",
        f"v1={sign()}=",
        f"v1={sign()} ",
        f" v1={sign()}",
        "v1=",
        "v1",
        f"v0={sign()}",
        f"v2={sign()}",
        f"V1={sign()}",
        "scheme=x",
        "",
        "=",
    ]
)
RIGHT = st.sampled_from([f"t={STAMP}", f"v1={sign()}", f"v0={sign()}", "v1=00"])


def only_we_refuse(header):
    """What is stricter on purpose: items without '=', a second stamp, and text after a stamp or a signature."""
    items = [item.partition("=") for item in header.split(",")]
    stamps = [value for key, _, value in items if key == "t"]
    odd = any(not found for _, found, _ in items) or any(value.count("=") for _, _, value in items)
    return odd or len(stamps) != 1 or not re.fullmatch("[0-9]{1,15}", stamps[0])


def only_we_accept(header):
    """What is looser on purpose: hex has no case, and outer blanks are no data."""
    return not package(header) and package(header.strip().replace(sign().upper(), sign()))


@given(items=st.lists(RIGHT | ITEMS, max_size=6), separator=st.sampled_from([",", ",", ",", ", ", ";", ""]))
@example(items=[f"t={STAMP}", f"v1={sign()}", f"v0={sign()}"], separator=",")
@example(items=[f"v0={sign()}", f"v1={sign()}", "v1=00", f"t={STAMP}"], separator=",")
@example(items=[f"t={STAMP}", f"v0={sign()}"], separator=",")
@settings(deadline=None, max_examples=1500)
def test_we_and_the_package_agree_on_headers(items, separator):
    header = separator.join(items)
    if package(header) and not ours(header):
        assert only_we_refuse(header)
    elif ours(header) and not package(header):
        assert only_we_accept(header)


@given(
    header=st.text(st.sampled_from("tv01=,. 5a\t;"), max_size=30)
    | st.text(st.characters(max_codepoint=255), max_size=60)
)
@settings(deadline=None, max_examples=300)
def test_we_and_the_package_refuse_what_is_no_proof(header):
    assert not ours(header)
    assert not package(header)


def stamped(stamp, signed_as):
    return f"t={stamp},v1={sign(stamp=signed_as)}"


@pytest.mark.parametrize(
    "header",
    [
        f"t={STAMP},{GOOD}",
        f"{GOOD},t=1",
        f"{GOOD},junk",
        f"{GOOD},",
        f"{GOOD}=",
        stamped("+5", "5"),
        stamped("-5", "-5"),
        stamped(" 5", "5"),
        stamped("5_0", "50"),
        stamped("05", "5"),
        stamped("\u0665", "5"),
        stamped("9" * 16, "9" * 16),
        f"t={STAMP}" + ",v1=00" * 16 + f",v1={sign()}",
    ],
)
def test_stricter_than_the_package(header):
    assert package(header)
    assert not ours(header)


@pytest.mark.parametrize(
    "header",
    [
        f"t={STAMP},v1={sign().upper()}",
        f"{GOOD} ",
        stamped("05", "05"),  # the stamp is signed as it was sent, not as it is read
        f"t={STAMP},v1=\xe9,v1={sign()}",  # the package raises TypeError here
    ],
)
def test_looser_than_the_package(header):
    assert ours(header)
    assert not package(header)


def test_bytes_that_are_no_text_are_signed_as_they_are():
    body = b'{"a":"\xff\xfe"}'
    assert ours(f"t={STAMP},v1={hexmac(STRIPE_SECRET, STAMP.encode() + b'.' + body)}", body)


@pytest.mark.parametrize(
    ("offset", "side", "accepted"),
    [(0, "inside", True), (-300, "inside", True), (-301, "late", False), (300, "inside", True), (301, "future", True)],
)
def test_the_window_is_the_packages_in_the_past_and_has_an_end_in_the_future(monkeypatch, offset, side, accepted):
    monkeypatch.setattr(stripe._webhook.time, "time", lambda: 1_700_000_000.0)
    stamp = 1_700_000_000 + offset
    header = f"t={stamp},v1={sign(stamp=stamp)}"
    verification = STRIPE.verifier.verify(
        Delivery(method="POST", url="/", headers={"stripe-signature": header}, body=BODY.encode()),
        [Secret(STRIPE_SECRET)],
    )
    now = verification.signed_at.fromtimestamp(1_700_000_000, verification.signed_at.tzinfo)
    assert check_window(verification.signed_at, now, STRIPE.tolerance) == side
    try:
        assert WebhookSignature.verify_header(BODY, header, STRIPE_SECRET, tolerance=300) is accepted
    except stripe.SignatureVerificationError:
        assert not accepted

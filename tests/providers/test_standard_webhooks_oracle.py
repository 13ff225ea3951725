"""The packages of Standard Webhooks and of Svix as oracles: where we are stricter or looser, a test names it."""

import base64
import binascii
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.providers.gitlab import GITLAB
from django_webhook_guard.providers.standard_webhooks import STANDARD_WEBHOOKS
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import check_window
from tests.senders import GITLAB_SECRET, STANDARD_SECRET, standard_signature, standard_webhooks

webhooks = pytest.importorskip(
    "standardwebhooks.webhooks",
    reason="standardwebhooks is not installed: dependency group oracle-standard-webhooks",
)
NOW = datetime.fromtimestamp(1_700_000_000, UTC)
STAMP = "1700000000"
BODY = '{"type":"invoice.paid"}'


class Frozen(datetime):
    """A clock that stands still for the package."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW.timestamp(), tz)


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhooks, "datetime", Frozen)
        yield


def package(headers, body=BODY, secret=STANDARD_SECRET):
    """Whether the package accepts a delivery at ``NOW``; an error of any kind is a no."""
    try:
        webhooks.Webhook(secret).verify(body, headers, json_parse=False)
    except (webhooks.WebhookVerificationError, ValueError):
        return False
    return True


def ours(headers, body=BODY, secret=STANDARD_SECRET, provider=STANDARD_WEBHOOKS):
    raw = body if isinstance(body, bytes) else body.encode()
    named = {name.lower(): value for name, value in headers.items()}
    try:
        verification = provider.verifier.verify(
            Delivery(method="POST", url="/", headers=named, body=raw), [Secret(secret)]
        )
    except VerificationError:
        return False
    return check_window(verification.signed_at, NOW, provider.tolerance) == "inside"


def signed(id="msg_1", stamp=STAMP, *, signature=None, signed_as=None):
    made = standard_signature(BODY.encode(), id, stamp if signed_as is None else signed_as, STANDARD_SECRET)
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature or made}


@given(
    body=st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    id=st.from_regex(r"\A[!-\-/-~]{1,60}\Z"),
    offset=st.integers(-301, 301),
)
@settings(deadline=None, max_examples=200)
def test_we_accept_what_the_package_signs_in_the_same_window(body, id, offset):
    at = 1_700_000_000 + offset
    made = webhooks.Webhook(STANDARD_SECRET).sign(id, datetime.fromtimestamp(at, UTC), body)
    headers = {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": made}
    assert ours(headers, body) == package(headers, body) == (abs(offset) <= 300)


@given(
    body=st.text(st.characters(max_codepoint=0x2FF), max_size=60),
    position=st.integers(0, 999),
    flip=st.integers(1, 127),
)
@settings(deadline=None, max_examples=200)
def test_we_and_the_package_refuse_a_changed_body(body, position, flip):
    headers = standard_webhooks(body.encode(), at=STAMP)
    tampered = bytearray(body.encode() or b"\0")
    tampered[position % len(tampered)] ^= flip
    assert not ours(headers, bytes(tampered))
    assert not package(headers, bytes(tampered))


GOOD = signed()["webhook-signature"]
ODD = ["v1,AAAA", "v1a,BBBB", "v2,CCCC", "v1", "v1,", "v1,!", "", ",", "v1,\xe9", GOOD + ",x", GOOD + "=", GOOD[3:]]
ENTRIES = st.sampled_from([GOOD, GOOD, GOOD.replace("v1", "v1a"), GOOD.replace("v1", "V1"), GOOD[:-2], *ODD])


def only_we_accept(entries):
    """What is looser on purpose: an entry that cannot be read is left alone, the package stops at it."""
    return any(entry.count(",") != 1 or (entry.startswith("v1,") and not _decodes(entry[3:])) for entry in entries)


def only_we_refuse(entries):
    """What is stricter on purpose: the package passes over characters that are no base64."""
    return any(entry.startswith("v1,") and _strictly(entry[3:]) != _decodes(entry[3:]) for entry in entries)


def _decodes(text):
    try:
        return base64.b64decode(text) or True
    except (binascii.Error, ValueError):
        return None


def _strictly(text):
    try:
        return base64.b64decode(text, validate=True) or True
    except (binascii.Error, ValueError):
        return None


@given(entries=st.lists(ENTRIES, min_size=1, max_size=6))
@settings(deadline=None, max_examples=600)
def test_we_and_the_package_agree_on_lists_of_signatures(entries):
    headers = signed(signature=" ".join(entries))
    if package(headers) and not ours(headers):
        assert only_we_refuse(entries)
    elif ours(headers) and not package(headers):
        assert only_we_accept(entries)


@pytest.mark.parametrize(
    "headers",
    [
        signed("msg.1"),  # an id with a dot could take the border to the stamp with it
        signed(stamp=f"{STAMP}.9", signed_as=STAMP),  # the package signs the whole second
        signed(stamp="1.7e9", signed_as=STAMP),
        signed(stamp=f"0{STAMP}", signed_as=STAMP),
        signed(signature=GOOD[:9] + "!" + GOOD[9:]),
        signed(signature=GOOD + "="),
        signed(signature="v1,AAAA " * 16 + GOOD),
    ],
)
def test_stricter_than_the_package(headers):
    assert package(headers)
    assert not ours(headers)


@pytest.mark.parametrize(
    "headers",
    [
        signed(stamp=f"0{STAMP}"),  # the stamp is signed as it was sent, not as it is read
        signed(signature=f"v1 {GOOD}"),
        signed(signature=f"v1,a,b {GOOD}"),
        signed(signature=f"v2,a  {GOOD}"),
        signed(signature=f"v1,A {GOOD}"),
        signed(signature=f" {GOOD}"),
    ],
)
def test_looser_than_the_package(headers):
    assert ours(headers)
    assert not package(headers)


def test_bytes_that_are_no_text_are_signed_as_they_are():
    body = b'{"a":"\xff\xfe"}'
    headers = standard_webhooks(body, at=STAMP)
    assert ours(headers, body)
    assert not package(headers, body)


def test_the_same_bytes_of_gitlab_s_signing_token():
    headers = {
        "webhook-id": "gl-id-1",
        "webhook-timestamp": STAMP,
        "webhook-signature": "v1,NxjfPzp6aso/its5LAZWCGf8mRqBnBwz9XvCvqxZEwU=",
    }
    body = '{"object_kind":"push"}'
    assert ours(headers, body, GITLAB_SECRET, GITLAB)
    assert package(headers, body, GITLAB_SECRET)


# -- Svix --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def svix_accepts():
    svix = pytest.importorskip("svix.webhooks", reason="svix is not installed: dependency group oracle-svix")

    def accepts(headers):
        try:
            svix.Webhook(STANDARD_SECRET).verify(BODY, headers)
        except svix.WebhookVerificationError:
            return False
        return True

    return accepts


@pytest.mark.parametrize("prefix", ["svix-", "webhook-", "Svix-", "x-"])
def test_each_family_of_headers(svix_accepts, prefix):
    headers = standard_webhooks(BODY.encode(), at=STAMP, prefix=prefix)
    assert svix_accepts(headers) == ours(headers) == (prefix != "x-")


def test_stricter_than_svix_where_both_families_come(svix_accepts):
    genuine = standard_webhooks(BODY.encode(), at=STAMP, prefix="svix-")
    both = {**genuine, "webhook-id": "msg_forged"}
    assert svix_accepts(genuine) and ours(genuine)
    assert svix_accepts(both) and not ours(both)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import (
    SignatureMalformed,
    SignatureMismatch,
    SignatureMissing,
    VerificationError,
)
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import TokenVerifier

TOKEN = "t0ken-0123456789abcdef"
VERIFIER = TokenVerifier(header="X-Acme-Token")


def delivery(token, body=b"{}"):
    return Delivery(method="POST", url="/", headers={} if token is None else {"x-acme-token": token}, body=body)


def verify(token, *secrets, body=b"{}"):
    return VERIFIER.verify(delivery(token, body), [Secret(each) for each in secrets or (TOKEN,)])


def test_the_token_vouches_for_the_raw_body_and_covers_nothing():
    verification = verify(TOKEN, "0ld-0123456789abcdef", TOKEN, body=b"\xff")
    assert (verification.content, verification.secret.secret) == (b"\xff", TOKEN)
    assert verification.signed_at is None and verification.nonce is None
    assert VERIFIER.covers == VERIFIER.covered_headers == frozenset()
    assert VERIFIER.admit(delivery(TOKEN)) is None


@pytest.mark.parametrize(
    ("token", "error"),
    [
        (None, SignatureMissing),
        ("", SignatureMissing),
        (" \t", SignatureMissing),
        (TOKEN[:-1], SignatureMismatch),
        (TOKEN + "x", SignatureMismatch),
        (TOKEN.upper(), SignatureMismatch),
        (f"{TOKEN},{TOKEN}", SignatureMismatch),
        ("\xe9", SignatureMismatch),
        ("t" * 5000, SignatureMalformed),
        ("\u20ac", SignatureMalformed),
        ("\ud800", SignatureMalformed),
    ],
)
def test_b1_what_is_no_token_is_refused_and_never_told(token, error):
    with pytest.raises(VerificationError) as caught:
        verify(token)
    assert type(caught.value) is error
    frames = "".join(repr(entry.frame.f_locals) for entry in caught.traceback if "webhook_guard" in str(entry.path))
    assert TOKEN not in frames + caught.value.detail
    assert error is not SignatureMismatch or repr(token) not in frames


@given(token=st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=40), other=st.text())
@settings(deadline=None, max_examples=200)
def test_a_token_of_any_alphabet_is_compared_as_bytes(token, other):
    arrived = token.encode().decode("latin-1").strip(" \t")  # as a server hands it over
    if arrived.encode("latin-1") != token.encode():
        return
    assert verify(arrived, token)
    if other != token:
        with pytest.raises(SignatureMismatch):
            verify(arrived, other)


def test_without_a_secret_nothing_is_proven():
    with pytest.raises(SignatureMismatch):
        VERIFIER.verify(delivery(TOKEN), [])


@pytest.mark.parametrize("name", ["", "X Token", "X_Token", "X-Tokén", "X-Token:"])
def test_a_header_that_can_not_come_is_no_header(name):
    with pytest.raises(ValueError, match="header"):
        TokenVerifier(header=name)

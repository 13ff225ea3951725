import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import SignatureMalformed, VerificationError
from django_webhook_guard.locators import Header
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import GENERIC_HMAC, PROVIDERS, generic_hmac
from django_webhook_guard.secrets import Secret
from tests.senders import base64mac, hexmac

SECRET = "acme-s3cret-0123456789"
PLAIN = {"header": "X-Acme", "signed": "{body}"}
STAMPED = {**PLAIN, "signed": "{timestamp}.{body}", "timestamp_header": "X-Time", "prefix": "sha256="}
NONCE = {**PLAIN, "nonce_header": "X-N", "nonce_pattern": "[a-f]+"}
#: For sources, which name a provider by its path.
RFC3339 = generic_hmac({**STAMPED, "stamp": "rfc3339"})
RFC1123 = generic_hmac({**STAMPED, "stamp": "rfc1123"})
IDS = generic_hmac({**PLAIN, "signed": "{id}.{body}", "id_header": "X-Id"})


def verify(provider, body, headers):
    named = {name.lower(): value for name, value in headers.items()}
    delivery = Delivery(method="POST", url="https://a.example/hook/?a=1", headers=named, body=body)
    return provider.verifier.verify(delivery, [Secret(SECRET)])


# -- what can be declared ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        (PLAIN, {"X-Acme": hexmac(SECRET, b"{}")}),
        ({**PLAIN, "prefix": "sha256="}, {"X-Acme": "sha256=" + hexmac(SECRET, b"{}")}),
        ({**PLAIN, "prefix": "{v1}"}, {"X-Acme": "{v1}" + hexmac(SECRET, b"{}")}),
        ({**PLAIN, "algorithm": "sha512"}, {"X-Acme": hexmac(SECRET, b"{}", "sha512")}),
        ({**PLAIN, "encoding": "base64"}, {"X-Acme": base64mac(SECRET, b"{}")}),
        (
            {**PLAIN, "layout": "t={timestamp},v1={signature}", "signed": "{timestamp}.{body}", "stamp": "ms"},
            {"X-Acme": f"t=1700000000000,v1={hexmac(SECRET, b'1700000000000.{}')}"},
        ),
        (
            {**PLAIN, "layout": "v1={signature}", "separator": ","},
            {"X-Acme": f"v0=x, v1={hexmac(SECRET, b'{}')}"},
        ),
        (
            {**PLAIN, "signed": "{method} {url}\n{body_sha256}"},
            {
                "X-Acme": hexmac(
                    SECRET,
                    b"POST https://a.example/hook/?a=1\n"
                    b"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                )
            },
        ),
        (
            {
                **PLAIN,
                "signed": "{id}:{nonce}:{body}",
                "id_header": "X-Id",
                "nonce_header": "X-N",
                "nonce_pattern": "[a-f]+",
            },
            {"X-Acme": hexmac(SECRET, b"i1:abc:{}"), "X-Id": "i1", "X-N": "abc"},
        ),
    ],
)
def test_schemes(options, headers):
    provider = generic_hmac(options)
    assert verify(provider, b"{}", headers).secret.secret == SECRET
    assert provider.name == GENERIC_HMAC
    with pytest.raises(VerificationError):
        verify(provider, b"[]", headers)


def test_what_follows_from_a_scheme():
    plain, stamped = generic_hmac(PLAIN), generic_hmac(STAMPED)
    assert (plain.event_id, plain.varies, plain.keep_headers) == (None, frozenset(), ())
    assert (stamped.event_id, stamped.varies, stamped.keep_headers) == (None, {"stamp"}, ("x-time",))
    assert (IDS.event_id, IDS.signs, IDS.keep_headers) == (Header("X-Id"), {"id", "body"}, ("x-id",))
    assert stamped.tolerance == 300
    assert GENERIC_HMAC not in PROVIDERS


def test_a_stamp_that_the_layout_shows_and_nothing_signs_is_no_stamp():
    provider = generic_hmac({**PLAIN, "layout": "t={timestamp},v1={signature}"})
    assert verify(provider, b"{}", {"X-Acme": f"t=1,v1={hexmac(SECRET, b'{}')}"}).signed_at is None


# -- what can not work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "OPTIONS is list"),
        (None, "OPTIONS is NoneType"),
        ({}, "'header' is missing"),
        ({"header": "X-Acme"}, "'signed' is missing"),
        ({**PLAIN, "secret": "s3cret-0123456789abcdef"}, "'secret', which is not known"),
        ({**PLAIN, 5: "x"}, "5, which is not known"),
        ({**PLAIN, "families": "x"}, "'families', which is not known"),
        ({**PLAIN, "header": "X_Acme"}, "header 'X_Acme'"),
        ({**PLAIN, "header": None}, "header None: give text"),
        ({**PLAIN, "signed": b"{body}"}, "signed b'{body}': give text"),
        ({**PLAIN, "algorithm": 256}, "algorithm 256: give text"),
        ({**PLAIN, "algorithm": "sha257"}, "algorithm 'sha257'"),
        ({**PLAIN, "algorithm": "md5-sha257"}, "algorithm 'md5-sha257'"),
        ({**PLAIN, "encoding": "base32"}, "encoding 'base32'"),
        ({**PLAIN, "decoding": "rot13"}, "decoding 'rot13'"),
        ({**PLAIN, "layout": "{signature}{body}"}, "layout '{signature}{body}'"),
        ({**PLAIN, "layout": "v1={signature}", "prefix": "v1="}, "prefix 'v1='"),
        ({**PLAIN, "separator": "=="}, "separator '=='"),
        ({**PLAIN, "signed": "{timestamp}.{body}"}, "signed '{timestamp}.{body}'"),
        ({**PLAIN, "signed": "{bodi}"}, "signed '{bodi}'"),
        ({**PLAIN, "signed": "{body"}, "signed '{body'"),
        ({**PLAIN, "signed": ""}, "signed '': without {body}"),
        ({**PLAIN, "signed": "{url}{query}"}, "signed '{url}{query}': without {body}"),
        ({**PLAIN, "signed": "{id}", "id_header": "X-Id"}, "signed '{id}': without {body}"),
        ({**PLAIN, "signed": "{id}{body}", "id_header": "X-Id"}, "nothing tells where {id} ends"),
        ({**PLAIN, "id_header": "X-Id"}, "id_header 'X-Id': {id} is not in signed"),
        ({**PLAIN, "timestamp_header": "X-Time"}, "timestamp_header 'X-Time': {timestamp} is not in signed"),
        ({**PLAIN, "stamp": "ms"}, "stamp 'ms': {timestamp} is not in signed"),
        ({**PLAIN, "nonce_pattern": "[a-z]+"}, "nonce_pattern '[a-z]+': {nonce} is not in signed"),
        ({**STAMPED, "stamp": "minutes"}, "stamp 'minutes'"),
        ({**PLAIN, "algorithm": None}, "algorithm None"),
        ({**PLAIN, "algorithm": 256}, "algorithm 256"),
        ({**STAMPED, "layout": "t={timestamp},v1={signature}"}, "prefix 'sha256='"),
    ],
)
def test_options_that_can_not_work_are_named_with_their_value(options, words):
    with pytest.raises(ValueError) as caught:
        generic_hmac(options)
    assert str(caught.value).startswith("OPTIONS")
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


VALUES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["{body}", "{timestamp}.{body}", "{id}.{body}", "t={timestamp},v1={signature}", "sha1", "hex", "ms", " "]
    ),
    st.none(),
    st.integers(),
)
NAMES = st.sampled_from(["header", "signed", "layout", "prefix", "separator", "algorithm", "encoding", "decoding"])
MORE = st.sampled_from(["timestamp_header", "stamp", "id_header", "nonce_header", "nonce_pattern", "other"])


@given(options=st.dictionaries(NAMES | MORE, VALUES, max_size=6), whole=st.booleans())
@settings(deadline=None, max_examples=400)
def test_options_give_a_provider_that_binds_the_body_or_a_value_error(options, whole):
    try:
        provider = generic_hmac({**PLAIN, **options} if whole else options)
    except ValueError as error:
        assert str(error).startswith("OPTIONS")
        return
    assert "body" in provider.signs
    with pytest.raises(VerificationError):
        verify(provider, b"{}", {"X-Acme": "00"})


# -- stamps ------------------------------------------------------------------------------------------------------------


def stamped(text, body=b"{}"):
    signature = "sha256=" + hexmac(SECRET, text.encode() + b"." + body)
    return {"X-Acme": signature, "X-Time": text}


def test_c4_nine_decimals_and_other_zones_are_one_moment():
    moment = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
    for text in ("2026-11-30T12:00:00.123456789Z", "2026-11-30T14:00:00.123456789+02:00"):
        verification = verify(RFC3339, b"{}", stamped(text))
        assert (verification.signed_at, verification.content) == (moment, text.encode() + b".{}")
    for text in ("2026-11-30T12:00:00.123456789", "Mon, 30 Nov 2026 12:00:00 GMT"):
        with pytest.raises(SignatureMalformed):
            verify(RFC3339, b"{}", stamped(text))
    assert verify(RFC1123, b"{}", stamped("Mon, 30 Nov 2026 12:00:00 GMT")).signed_at == moment.replace(microsecond=0)


@pytest.mark.django_db
def test_c4_the_window_of_a_written_stamp(post, sources):
    sources(acme={"PROVIDER": "tests.providers.test_generic_hmac.RFC3339", "SECRETS": [SECRET]})
    body, now = b'{"type":"x"}', int(time.time())
    for offset, zone, status in ((0, "Z", 200), (0, "+02:00", 200), (-310, "Z", 400), (310, "Z", 400), (0, "", 401)):
        local = datetime.fromtimestamp(now + offset + (7200 if zone == "+02:00" else 0), UTC)
        text = f"{local:%Y-%m-%dT%H:%M:%S}.123456789{zone}"
        assert post("acme", body, headers=stamped(text, body)).status_code == status
    assert WebhookReceipt.objects.count() == 2


@pytest.mark.django_db
def test_a_signed_id_is_the_key_and_an_unsigned_one_is_said_by_the_source(post, sources):
    sources(acme={"PROVIDER": "tests.providers.test_generic_hmac.IDS", "SECRETS": [SECRET]})
    body = json.dumps({"type": "x", "number": 7}).encode()
    headers = {"X-Id": "i1", "X-Acme": hexmac(SECRET, b"i1." + body)}
    assert post("acme", body, headers=headers).status_code == 200
    assert (WebhookReceipt.objects.get().event_id, WebhookReceipt.objects.get().key_origin) == ("i1", "id")
    sources(acme={"EVENT_ID": "number", "NAMESPACE": "numbers"})
    assert post("acme", body, headers=headers).json()["status"] == "ignored"
    assert WebhookReceipt.objects.latest("pk").event_id == "7"


@pytest.mark.parametrize("signed", ["{timestamp}{nonce}.{body}", "{timestamp}{id}.{body}"])
def test_a_stamp_that_nothing_ends_before_an_id_is_refused(signed):
    """The last digit of the stamp could move into the id: one signature, two events."""
    options = {"header": "X-Sig", "signed": signed, "timestamp_header": "X-TS"}
    options |= {"nonce_header": "X-N"} if "nonce" in signed else {"id_header": "X-I"}
    with pytest.raises(ValueError, match="nothing tells where"):
        generic_hmac(options)

import base64
import hashlib
import hmac
from contextlib import suppress
from datetime import UTC, datetime

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
from django_webhook_guard.verifiers import HMACVerifier

SECRET = "s3cret-0123456789abcdef"
BODY = b'{"id":"e1"}'
PLAIN = HMACVerifier(header="X-Acme", layout="sha256={signature}", signed="{body}")
PAIRS = HMACVerifier(header="X-Acme", layout="t={timestamp},v1={signature}", signed="{timestamp}.{body}")
JOINED = HMACVerifier(
    header="X-Acme",
    signed="{id}.{timestamp}.{body}",
    id_header="X-Id",
    timestamp_header="X-Time",
)


def sign(message, secret=SECRET, algorithm="sha256"):
    return hmac.new(secret.encode(), message, getattr(hashlib, algorithm)).hexdigest()


def verify(verifier, body=BODY, *, secrets=(SECRET,), url="/", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    delivery = Delivery(method="POST", url=url, headers=named, body=body)
    return verifier.verify(delivery, [Secret(secret) for secret in secrets])


def refused(error, verifier, body=BODY, **given):
    with pytest.raises(VerificationError) as caught:
        verify(verifier, body, **given)
    assert type(caught.value) is error
    return caught.value.detail


# -- one value behind a prefix -----------------------------------------------------------------------------------------


def test_a_right_signature_proves_the_very_bytes():
    verification = verify(PLAIN, x_acme="sha256=" + sign(BODY))
    assert verification.content == BODY
    assert verification.secret.secret == SECRET
    assert verification.signed_at is None and verification.nonce is None


@given(body=st.binary(max_size=200), position=st.integers(0, 10**6), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=200)
def test_no_byte_of_the_body_can_be_changed(body, position, flip):
    header = "sha256=" + sign(body)
    assert verify(PLAIN, body, x_acme=header).content == body
    tampered = bytearray(body or b"\0")
    tampered[position % len(tampered)] ^= flip
    refused(SignatureMismatch, PLAIN, bytes(tampered), x_acme=header)


def test_b5_the_case_of_hex_and_outer_blanks_are_no_data():
    assert verify(PLAIN, x_acme="sha256=" + sign(BODY).upper())
    assert verify(PLAIN, x_acme=f" \tsha256={sign(BODY)} ")
    assert verify(HMACVerifier(header="X-Acme", signed="{body}"), x_acme=sign(BODY))


@pytest.mark.parametrize("header", [sign(BODY), "SHA256=" + sign(BODY), "sha256 =" + sign(BODY)])
def test_b5_a_missing_prefix_is_another_format(header):
    detail = refused(SignatureMalformed, PLAIN, x_acme=header)
    assert "prefix missing" in detail
    assert sign(BODY) not in detail


@pytest.mark.parametrize(
    "header",
    ["bogus=00", "md5=" + sign(BODY, algorithm="md5"), "sha1=" + sign(BODY, algorithm="sha1"), "=x", "nodigest"],
)
def test_b4_the_delivery_does_not_choose_the_algorithm(header):
    refused(SignatureMalformed, PLAIN, x_acme=header)


@pytest.mark.parametrize(
    "value",
    [
        "\xe9",
        "\xe9" * 64,
        "",
        "00",
        "0" * 63,
        "0" * 65,
        " " * 32 + "0" * 32,
        sign(BODY) + "00",
        sign(BODY)[:-2],
        sign(BODY) + "," + sign(BODY),
        f"{sign(BODY)}, sha256={sign(BODY)}",
        " " + sign(BODY),
        "0x" + sign(BODY)[2:],
        "\u0660" * 64,
        "\ud800" * 64,
        "\U0001f600" * 64,
    ],
)
def test_b1_a_signature_that_can_not_be_read_is_malformed_and_never_an_error(value):
    refused(SignatureMalformed, PLAIN, x_acme="sha256=" + value)


@pytest.mark.parametrize("value", [None, "", "  ", "\t"])
def test_a_header_that_is_missing_or_blank(value):
    given = {} if value is None else {"x_acme": value}
    refused(SignatureMissing, PLAIN, **given)


def test_a_header_over_the_limit_is_not_read():
    assert "longer than 4096" in refused(SignatureMalformed, PLAIN, x_acme="sha256=" + "0" * 5000)


def test_without_a_secret_nothing_is_proven():
    refused(SignatureMismatch, PLAIN, x_acme="sha256=" + sign(BODY, ""), secrets=())


def test_j3_each_secret_in_turn_and_the_one_that_matched_is_kept():
    new, old = "new-0123456789abcdef", "old-0123456789abcdef"
    for secret in (new, old):
        verification = verify(PLAIN, x_acme="sha256=" + sign(BODY, secret), secrets=(new, old))
        assert verification.secret.secret == secret
    refused(SignatureMismatch, PLAIN, x_acme="sha256=" + sign(BODY, "gone-0123456789abcdef"), secrets=(new, old))


def test_base64():
    verifier = HMACVerifier(header="X-Acme", signed="{body}", encoding="base64")
    right = base64.b64encode(bytes.fromhex(sign(BODY))).decode()
    assert verify(verifier, x_acme=right)
    for wrong in (
        right[:-1],
        right + "=",
        right.replace("=", ""),
        "\xe9" + right[1:],
        right[:20] + "\n" + right[20:],
        "=",
    ):
        refused(SignatureMalformed, verifier, x_acme=wrong)
    refused(SignatureMismatch, verifier, x_acme=base64.b64encode(bytes(32)).decode())


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
def test_the_algorithm_is_the_settings(algorithm):
    verifier = HMACVerifier(header="X-Acme", signed="{body}", algorithm=algorithm)
    assert verify(verifier, x_acme=sign(BODY, algorithm=algorithm))


def test_standard_webhooks_published_vector():
    verifier = HMACVerifier(
        header="webhook-signature",
        layout="v1,{signature}",
        signed="{id}.{timestamp}.{body}",
        id_header="webhook-id",
        timestamp_header="webhook-timestamp",
        encoding="base64",
        decoding="whsec",
    )
    given = {
        "webhook_id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook_timestamp": "1614265330",
        "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "body": b'{"test": 2432232314}',
    }
    assert verify(verifier, webhook_signature="v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", **given)
    refused(SignatureMismatch, verifier, webhook_signature="v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA=", **given)


def test_paddle_published_vector():
    verifier = HMACVerifier(
        header="Paddle-Signature", layout="ts={timestamp};h1={signature}", signed="{timestamp}:{body}"
    )
    verification = verify(
        verifier,
        b"hello-world",
        secrets=["pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_WvRO0eL4Bj9rgYYIBZY6wZhG4EHy9jzh"],
        paddle_signature="ts=1696195954;h1=dummy;h1=d96299976a6eb066f484d7fde011ac56fc32b38fc9940bc419d6e537fdc6ef02",
    )
    assert verification.signed_at == datetime(2023, 10, 1, 21, 32, 34, tzinfo=UTC)


# -- pairs -------------------------------------------------------------------------------------------------------------


def stamped(text, body=BODY, *, before="", after=""):
    return f"{before}t={text},v1={sign(text.encode() + b'.' + body)}{after}"


def test_the_stamp_is_read_and_signed_as_text():
    verification = verify(PAIRS, x_acme=stamped("01700000000"))
    assert verification.signed_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert verification.content == b"01700000000." + BODY


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ",v0=00"), ("v0=00,", ""), ("v1=00,", ""), ("", ",v1=\xe9"), ("x=,", ",=,y=="), ("", ",v1=")],
)
def test_other_keys_and_other_signatures_are_left_alone(before, after):
    assert verify(PAIRS, x_acme=stamped("1700000000", before=before, after=after))


def test_b2_the_good_signature_may_be_the_last_of_sixteen():
    good = sign(b"1700000000." + BODY)
    assert verify(PAIRS, x_acme="t=1700000000" + ",v1=" + ",v1=".join(["00" * 32] * 15 + [good]))
    too_many = "t=1700000000" + ",v1=" + ",v1=".join([good] * 17)
    assert "more than 16" in refused(SignatureMalformed, PAIRS, x_acme=too_many)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (stamped("1700000000") + ",", SignatureMalformed),
        (stamped("1700000000") + ",v1", SignatureMalformed),
        (stamped("1700000000") + ",t=1700000000", SignatureMalformed),
        (stamped("1700000000").partition(",")[2], SignatureMalformed),
        ("t=1700000000", SignatureMissing),
        (stamped("1700000000").replace("v1", "v0"), SignatureMissing),
        (stamped("1700000000").replace(",", ", "), SignatureMissing),
        (stamped("1700000000").replace("v1", "V1"), SignatureMissing),
        (stamped("1700000000").replace("t=", "T="), SignatureMalformed),
        (stamped(""), SignatureMalformed),
    ],
)
def test_pairs_that_can_not_be_read(header, error):
    refused(error, PAIRS, x_acme=header)


@pytest.mark.parametrize(
    "stamp",
    [
        "+5",
        "-5",
        " 5",
        "5 ",
        "5_0",
        "1e9",
        "1.7e9",
        "\xb2",
        "0x5",
        "9" * 16,
        "9" * 20,
        "9" * 309,
        "9" * 3000,
        "-" + "9" * 400,
    ],
)
def test_c3_a_stamp_that_is_no_short_whole_number_is_malformed_though_signed(stamp):
    header = f"t={stamp},v1={sign(stamp.encode('latin-1') + b'.' + BODY)}"
    detail = refused(SignatureMalformed, PAIRS, x_acme=header)
    assert "time stamp" in detail
    assert len(detail) < 100


@pytest.mark.parametrize("stamp", ["253402300800", "999999999999999"])
def test_a_stamp_beyond_the_calendar_is_the_end_of_it(stamp):
    assert verify(PAIRS, x_acme=stamped(stamp)).signed_at == datetime.max.replace(tzinfo=UTC)


def test_a_stamp_that_is_not_signed_is_no_stamp():
    verifier = HMACVerifier(header="X-Acme", layout="t={timestamp},v1={signature}", signed="{body}")
    verification = verify(verifier, x_acme=f"t=1700000000,v1={sign(BODY)}")
    assert verification.signed_at is None
    assert "timestamp" not in verifier.covers


# -- formats of stamps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "right", "wrong"),
    [
        ("ms", "1796040000123", "2026-11-30T12:00:00Z"),
        ("rfc3339", "2026-11-30T14:00:00.123456789+02:00", "2026-11-30T12:00:00"),
        ("rfc1123", "Mon, 30 Nov 2026 12:00:00 GMT", "2026-11-30T12:00:00Z"),
    ],
)
def test_c4_the_stamp_is_read_in_the_declared_format_and_signed_as_text(stamp, right, wrong):
    verifier = HMACVerifier(header="X-Acme", signed="{timestamp}.{body}", timestamp_header="X-Time", stamp=stamp)
    verification = verify(verifier, x_acme=sign(right.encode() + b"." + BODY), x_time=right)
    assert verification.signed_at.replace(microsecond=0) == datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert verification.content == right.encode() + b"." + BODY
    refused(SignatureMalformed, verifier, x_acme=sign(wrong.encode() + b"." + BODY), x_time=wrong)


@given(
    text=st.text(st.characters(max_codepoint=255), min_size=1, max_size=60),
    stamp=st.sampled_from(["s", "ms", "rfc3339", "rfc1123"]),
)
@settings(deadline=None, max_examples=200)
def test_no_stamp_raises_anything_else(text, stamp):
    verifier = HMACVerifier(header="X-Acme", signed="{timestamp}.{body}", timestamp_header="X-Time", stamp=stamp)
    signature = sign(text.strip(" \t").encode("latin-1") + b"." + BODY)
    with suppress(VerificationError):
        assert verify(verifier, x_acme=signature, x_time=text).signed_at.tzinfo is UTC


# -- a list of signatures in one header --------------------------------------------------------------------------------

LISTED = HMACVerifier(header="X-Acme", layout="v1,{signature}", separator=" ", signed="{body}")
ONE = "v1," + sign(BODY)


@pytest.mark.parametrize(
    "header",
    [
        ONE,
        f"v1,AAAA v1a,BBBB v2,CCCC {ONE}",
        f"{ONE} v1,AAAA v1a,BBBB v2,CCCC",
        f"  {ONE}  v2,CCCC ",
        f"v1 {ONE}",
        f", ,, {ONE}",
        f"v1,{'00' * 32},x {ONE}",
        f"v1,\xe9 {ONE}",
        f"\t{ONE}\t v1,\t v2",
        f"{ONE} " * 16,
        "v2,x " * 300 + ONE,
        # two lines of a header come joined by a comma: what stands at the seam is no entry any more, the rest counts
        f"v1,{'00' * 32},v1,{'11' * 32} {ONE}",
        f"v2,CCCC, {ONE}",
    ],
)
def test_b2_any_entry_of_a_known_version_may_match_in_any_order(header):
    assert verify(LISTED, x_acme=header).content == BODY


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ("v1,AAAA v1a,BBBB v2,CCCC", SignatureMalformed),
        ("v1a," + sign(BODY), SignatureMalformed),
        ("V1," + sign(BODY), SignatureMalformed),
        (sign(BODY), SignatureMalformed),
        (f"{ONE},x", SignatureMalformed),
        (f"{ONE},{ONE}", SignatureMalformed),
        (ONE.replace(",", ", "), SignatureMalformed),
        (ONE.replace(",", ",,"), SignatureMalformed),
        (f"v2,CCCC\xa0{ONE}", SignatureMalformed),
        ("v1 v1, ,v1", SignatureMalformed),
        (" ", SignatureMissing),
        (f"{ONE} " * 17, SignatureMalformed),
        ("v1,x " * 16 + ONE, SignatureMalformed),
        ("v2,x " * 1000 + ONE, SignatureMalformed),
        (f"v1,{'00' * 32} v1,{'11' * 32}", SignatureMismatch),
    ],
)
def test_b2_entries_that_are_no_proof(header, error):
    refused(error, LISTED, x_acme=header)


@given(
    entries=st.lists(st.sampled_from([ONE, "v1,AAAA", "v2," + sign(BODY), "v1", "", ",", "v1,,", "\xe9"]), max_size=20)
)
@settings(deadline=None, max_examples=300)
def test_a_list_proves_what_one_of_its_entries_does(entries):
    known = [entry for entry in entries if entry.startswith("v1,")]
    with suppress(VerificationError):
        assert verify(LISTED, x_acme=" ".join(entries)) and ONE in known
        return
    assert ONE not in known or len(known) > 16


# -- one scheme under two families of headers --------------------------------------------------------------------------

FAMILIES = HMACVerifier(
    header="Acme-Signature",
    signed="{id}.{nonce}.{timestamp}.{body}",
    id_header="Acme-Id",
    nonce_header="Acme-Nonce",
    timestamp_header="Acme-Time",
    families=("Acme-", "X-Acme-"),
)


def family(prefix, id="e1"):
    signature = sign(f"{id}.n.5.".encode() + BODY)
    return {f"{prefix}id": id, f"{prefix}nonce": "n", f"{prefix}time": "5", f"{prefix}signature": signature}


@pytest.mark.parametrize("prefix", ["acme_", "x_acme_"])
def test_b6_each_family_alone_proves(prefix):
    assert verify(FAMILIES, **family(prefix), other_id="e2").content == b"e1.n.5." + BODY
    assert FAMILIES.covered_headers == {
        f"{name}-{part}" for name in ("acme", "x-acme") for part in ("id", "nonce", "time")
    }


@pytest.mark.parametrize(
    "extra",
    [family("x_acme_"), family("x_acme_", id="e2"), {"x_acme_id": "e2"}, {"x_acme_id": ""}, {"x_acme_other": "1"}],
)
def test_b6_headers_of_two_families_are_two_truths(extra):
    assert "two families" in refused(SignatureMalformed, FAMILIES, **family("acme_"), **extra)
    delivery = Delivery(
        method="POST",
        url="/",
        headers={name.replace("_", "-"): text for name, text in (family("acme_") | extra).items()},
    )
    with pytest.raises(SignatureMalformed):
        FAMILIES.admit(delivery)


def test_b6_parts_of_two_families_are_no_whole():
    signature, *parts = [{name: text} for name, text in reversed(family("acme_").items())]
    mixed = {name.replace("acme_", "x_acme_"): text for part in parts for name, text in part.items()}
    assert "two families" in refused(SignatureMalformed, FAMILIES, **signature, **mixed)
    assert "Acme-Signature is missing" in refused(SignatureMissing, FAMILIES)
    assert "X-Acme-Signature is missing" in refused(SignatureMissing, FAMILIES, **mixed)


# -- the join of the parts ---------------------------------------------------------------------------------------------


def test_every_part_of_the_template():
    verifier = HMACVerifier(
        header="X-Acme",
        signed="{method} {url} {path}?{query} {id} {nonce} {timestamp} {body_sha256} {body}",
        timestamp_header="X-Time",
        id_header="X-Id",
        nonce_header="X-Nonce",
    )
    digest = hashlib.sha256(BODY).hexdigest()
    message = f"POST https://a.example/b/?c=1 /b/?c=1 i n 5 {digest} ".encode() + BODY
    given = {"x_id": "i", "x_nonce": "n", "x_time": "5"}
    verification = verify(verifier, url="https://a.example/b/?c=1", x_acme=sign(message), **given)
    assert (verification.content, verification.nonce) == (message, "n")
    assert verifier.covers >= {"body", "url", "path", "query", "method", "id", "nonce", "timestamp"}
    assert verifier.covered_headers == {"x-time", "x-id", "x-nonce"}


@pytest.mark.parametrize(
    ("signed", "covers"),
    [
        ("{url} {body}", {"url", "path", "query", "body"}),
        ("{path}", {"path"}),
        ("{body_sha256}", {"body_sha256", "body"}),
    ],
)
def test_what_a_template_covers(signed, covers):
    assert HMACVerifier(header="X-Acme", signed=signed).covers == covers


def test_headers_that_the_template_leaves_out_are_not_covered():
    verifier = HMACVerifier(header="X-Acme", signed="{body}", timestamp_header="X-Time", id_header="X-Id")
    assert verifier.covers == {"body"}
    assert verifier.covered_headers == frozenset()
    assert verify(verifier, x_acme=sign(BODY)).signed_at is None


def test_a_border_can_not_be_moved_from_the_body_into_the_id():
    body = b'{"n":"x.1700000009.{}"}'
    content = b"e1.1700000000." + body
    assert verify(JOINED, body, x_acme=sign(content), x_id="e1", x_time="1700000000")
    moved = {"x_id": 'e1.1700000000.{"n":"x', "x_time": "1700000009"}
    detail = refused(SignatureMalformed, JOINED, b'{}"}', x_acme=sign(content), **moved)
    assert "ends it" in detail


def test_a_border_of_several_characters_can_not_be_moved_by_one():
    verifier = HMACVerifier(header="X-Acme", signed="{id}::{body}", id_header="X-Id")
    assert verify(verifier, b":{}", x_acme=sign(b"e1:::{}"), x_id="e1")
    refused(SignatureMalformed, verifier, b"{}", x_acme=sign(b"e1:::{}"), x_id="e1:")


@pytest.mark.parametrize("nonce", ["a.b", "a b", "a,b", "", "é", "n" * 129, "a\n", "a\0"])
def test_a_nonce_outside_its_alphabet_is_malformed_though_signed(nonce):
    verifier = HMACVerifier(header="X-Acme", signed="{nonce}.{body}", nonce_header="X-Nonce")
    signature = sign(nonce.encode("latin-1") + b"." + BODY)
    refused(SignatureMalformed if nonce else SignatureMissing, verifier, x_acme=signature, x_nonce=nonce)


def test_b1_latin_1_bytes_of_a_signed_header_are_signed_as_they_came():
    signature = sign(b"caf\xe9.1700000000." + BODY)
    assert verify(JOINED, x_acme=signature, x_id="caf\xe9", x_time="1700000000")


def test_b1_a_secret_is_utf_8():
    secret = "pässwörd-0123456789"
    assert verify(PLAIN, x_acme="sha256=" + sign(BODY, secret), secrets=[secret])


@pytest.mark.parametrize("name", ["x_id", "x_time"])
def test_a_signed_header_that_is_missing(name):
    given = {"x_acme": sign(b"e1.5." + BODY), "x_id": "e1", "x_time": "5"}
    assert verify(JOINED, **given)
    refused(SignatureMissing, JOINED, **{each: value for each, value in given.items() if each != name})


# -- before the body ---------------------------------------------------------------------------------------------------


@given(
    header=st.none() | st.text(st.characters(max_codepoint=0x1100), max_size=80),
    stamp=st.none() | st.text(max_size=20),
)
@settings(deadline=None, max_examples=300)
def test_what_is_not_admitted_is_never_proven(header, stamp):
    headers = {name: value for name, value in (("x-acme", header), ("x-time", stamp)) if value is not None}
    delivery = Delivery(method="POST", url="/", headers=headers, body=BODY)
    for verifier in (PLAIN, PAIRS, JOINED):
        try:
            verifier.admit(delivery)
        except VerificationError as error:
            with pytest.raises(type(error)):
                verifier.verify(delivery, [Secret(SECRET)])
        else:
            with pytest.raises(VerificationError):
                verifier.verify(delivery, [Secret(SECRET)])


def test_what_is_proven_is_admitted():
    delivery = Delivery(method="POST", url="/", headers={"x-acme": stamped("1700000000")}, body=BODY)
    assert PAIRS.admit(delivery) is None


def test_no_frame_of_a_refusal_holds_the_expected_digest():
    with pytest.raises(SignatureMismatch) as caught:
        verify(PLAIN, x_acme="sha256=" + "00" * 32)
    dump = "".join(repr(entry.frame.f_locals) for entry in caught.traceback if "webhook_guard" in str(entry.path))
    assert "signatures" in dump
    assert repr(bytes.fromhex(sign(BODY))) not in dump and sign(BODY) not in dump and SECRET not in dump


# -- declarations that can not work ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"header": "X_Acme"},
        {"header": "X Acme"},
        {"header": ""},
        {"layout": "sha256="},
        {"layout": "v1 {signature}", "separator": " "},
        {"layout": "t={timestamp},v1={signature}", "separator": " "},
        {"layout": "t={timestamp},v1={signature}", "timestamp_header": "X-Time"},
        {"separator": ""},
        {"separator": "="},
        {"separator": "a"},
        {"separator": ", "},
        {"signed": "{bodi}"},
        {"signed": "{timestamp}.{body}"},
        {"signed": "{id}.{body}"},
        {"signed": "{id}{body}", "id_header": "X-Id"},
        {"signed": "{nonce}.{body}"},
        {"algorithm": "sha257"},
        {"algorithm": "shake_128"},
        {"encoding": "base32"},
        {"decoding": "rot13"},
        {"stamp": "minutes"},
        {"nonce_pattern": "["},
        {"id_header": "X-Id:"},
        {"families": ("Acme-", "X-Acme-")},
        {"families": ("X-Acme", "X-Other"), "id_header": "Y-Id"},
        {"families": ("X-", "x-acme")},
        {"families": ("X-Acme", "X-Acme")},
    ],
)
def test_a_declaration_that_can_not_work_is_refused_by_the_name_of_its_argument(given):
    names = "|".join(["header", *given] if "families" in given else given)
    with pytest.raises(ValueError, match=rf"^({names}) "):
        HMACVerifier(**{"header": "X-Acme", "signed": "{body}", **given})


# -- the sender's side -------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "verifier",
    [
        PLAIN,
        PAIRS,
        JOINED,
        HMACVerifier(header="X-Acme", layout="a{{b}}={signature}", signed="{body}"),
        HMACVerifier(header="X-Acme", layout="s={signature};at={timestamp}", signed="{body_sha256}", stamp="ms"),
        HMACVerifier(
            header="X-Acme", signed="{method}\n{url}\n{path}?{query}\n{timestamp}\n{nonce}\n{body}", encoding="base64",
            algorithm="sha512", timestamp_header="Date", stamp="rfc1123", nonce_header="X-Nonce",
        ),
        HMACVerifier(header="A-Sig", separator=" ", layout="v1,{signature}", signed="{id}.{body}", id_header="A-Id",
                     families=("A-", "B-")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sent", [{}, {"b-id": "given", "x-id": "given"}])
def test_what_is_signed_is_accepted_and_nothing_else(verifier, sent):
    unsigned = Delivery(method="POST", url="https://example.org/in/?a=1", headers=sent, body=BODY)
    headers = verifier.sign(unsigned, Secret(SECRET), at=NOW, nonce="n0nce")
    named = {**sent, **{name.lower(): value for name, value in headers.items()}}
    delivery = Delivery(method="POST", url=unsigned.url, headers=named, body=BODY)
    found = verifier.verify(delivery, [Secret(SECRET)])
    assert found.signed_at == (NOW if "timestamp" in verifier.covers else None)
    assert found.nonce == ("n0nce" if "nonce" in verifier.covers else None)
    with pytest.raises(SignatureMismatch):
        verifier.verify(delivery.with_body(BODY + b" "), [Secret(SECRET)])
    with pytest.raises(SignatureMismatch):
        verifier.verify(delivery, [Secret("an0ther-0123456789abcdef")])


def test_a_nonce_that_does_not_fit_is_not_signed():
    verifier = HMACVerifier(header="X-Acme", signed="{nonce}.{body}", nonce_header="X-Nonce", nonce_pattern="[0-9]+")
    delivery = Delivery(method="POST", url="/", headers={}, body=BODY)
    with pytest.raises(SignatureMalformed):
        verifier.sign(delivery, Secret(SECRET), at=NOW, nonce="abc")

import hashlib
import hmac
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from django_webhook_guard.secrets import Secret

GOOD = "s3cret-0123456789abcdef"


def test_the_secret_is_in_no_text_of_the_object():
    secret = Secret(GOOD, id="v2", not_after="2027-01-15", tenant="acme")
    secret.key_id, secret.seen_key  # noqa: B018 - both are kept on the object
    assert GOOD not in f"{secret!r} {secret} {[secret]} {(secret,)!s}"
    assert "v2" in repr(secret)


def test_the_key_id_is_an_hmac_of_a_fixed_label():
    expected = hmac.new(GOOD.encode(), b"django-webhook-guard key id", hashlib.sha256).hexdigest()[:8]
    assert Secret(GOOD).key_id == expected == "40514504"
    assert Secret("whsec_0123456789abcdef0123").key_id == "e20ac3bd"
    assert Secret("pässwörd-0123456789").key_id == "16a170c1"


def test_a_named_key_keeps_its_name():
    assert Secret(GOOD, id="v2").key_id == "v2"


def test_the_key_id_does_not_come_from_secret_key(settings):
    before = Secret(GOOD).key_id
    settings.SECRET_KEY = "another"
    assert Secret(GOOD).key_id == before


def test_what_stands_for_the_secret_in_seen_digests():
    expected = hmac.new(GOOD.encode(), b"django-webhook-guard seen", hashlib.sha256).hexdigest()
    assert Secret(GOOD, id="v1").seen_key.hex() == Secret(GOOD, id="v2").seen_key.hex() == expected
    assert expected == "98b18ab9b897869759fdc6ab32d55d833db26216ef38d144ebb158685d8974c5"


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ("2027-01-15", datetime(2027, 1, 16, tzinfo=UTC)),
        ("20270115", datetime(2027, 1, 16, tzinfo=UTC)),
        (date(2027, 1, 15), datetime(2027, 1, 16, tzinfo=UTC)),
        ("2027-01-15T10:00:00", datetime(2027, 1, 15, 10, tzinfo=UTC)),
        ("2027-01-15T10:00:00+02:00", datetime(2027, 1, 15, 8, tzinfo=UTC)),
        (datetime(2027, 1, 15, 10), datetime(2027, 1, 15, 10, tzinfo=UTC)),
        (
            datetime(2027, 1, 15, 10, tzinfo=timezone(timedelta(hours=2))),
            datetime(2027, 1, 15, 8, tzinfo=UTC),
        ),
    ],
)
def test_a_secret_is_live_before_its_end_only(given, end):
    secret = Secret(GOOD, not_after=given)
    assert secret.not_after == end
    assert secret.live(end - timedelta(microseconds=1))
    assert not secret.live(end)


@pytest.mark.parametrize("given", ["9999-12-31", date.max])
def test_the_last_day_of_the_calendar_is_for_ever(given):
    assert Secret(GOOD, not_after=given).live(datetime(9999, 12, 31, 23, tzinfo=UTC))


def test_without_an_end_it_is_live():
    assert Secret(GOOD).live(datetime.max.replace(tzinfo=UTC))


@pytest.mark.parametrize("given", ["soon", "", "2027-13-01", 20270115, 1.5, True, ("2027-01-15",)])
def test_an_end_that_is_no_date_is_never_for_ever(given):
    with pytest.raises(ValueError):
        Secret(GOOD, not_after=given)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "blank"),
        ("   ", "blank"),
        ("\n", "blank"),
        (GOOD + "\n", "white space"),
        (" " + GOOD, "white space"),
        (GOOD + "\u00a0", "white space"),
        ("\ufeff" + GOOD, "white space"),
        (GOOD + "\u200b", "white space"),
        ("sk_test_0123456789abcdef", "API key"),
        ("rk_live_0123456789abcdef", "API key"),
        ("pk_0123456789abcdef", "API key"),
        ("ghp_0123456789abcdef", "API key"),
        ("github_pat_0123456789abcdef", "API key"),
        ("aaaaaaaaaaaaaaaaaaaaaaaa", "placeholder"),
        ("changeme-changeme-changeme", "placeholder"),
        ("your-webhook-secret-here", "placeholder"),
        ("whsec_xxxxxxxxxxxxxxxxxxxx", "placeholder"),
        ("<the signing secret>", "placeholder"),
        ("${STRIPE_WEBHOOK_SECRET}", "placeholder"),
        ("TODO: ask the partner", "placeholder"),
        ("thirteen-byte", "shorter than 14"),
        (None, "not text"),
        (b"s3cret-0123456789abcdef", "not text"),
        (12345678901234567890, "not text"),
    ],
)
def test_what_can_not_be_a_signing_secret(text, flaw):
    found = Secret(text).flaw()
    assert found is not None and flaw in found
    assert str(text).strip() == "" or str(text) not in found


@pytest.mark.parametrize("text", [GOOD, "fourteen-bytes", "pässwörd-0123456789", "whsec_0123456789abcdef0123"])
def test_what_may_be_one(text):
    assert Secret(text).flaw() is None


@pytest.mark.parametrize(
    "names", [{"id": ""}, {"id": 2}, {"id": "x" * 65}, {"id": "a\0"}, {"tenant": 42}, {"tenant": " "}, {"tenant": ""}]
)
def test_names_that_no_receipt_could_keep_are_a_flaw(names):
    assert next(iter(names)) in Secret(GOOD, **names).flaw()


@pytest.mark.parametrize(
    ("text", "decoding", "key"),
    [
        ("pässwörd-0123456789", "raw", "pässwörd-0123456789".encode()),
        ("00112233445566778899aabbccddeeff", "hex", bytes.fromhex("00112233445566778899aabbccddeeff")),
        (
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "base64",
            b"1\xf2\x90\xf6\xbf\x06)\x8a\xabO\x08\xd4<?\x08,\xf6H\xa3b\xda-\xa4\xb0",
        ),
        ("whsec_MDEyMzQ1Njc4OWFiY2RlZg", "whsec", b"0123456789abcdef"),
        ("MDEyMzQ1Njc4OWFiY2RlZg==", "whsec", b"0123456789abcdef"),
    ],
)
def test_how_a_text_becomes_a_key(text, decoding, key):
    secret = Secret(text)
    assert secret.flaw(decoding) is None
    assert secret.mac(b"m", algorithm="sha256", decoding=decoding) == hmac.new(key, b"m", hashlib.sha256).digest()


@pytest.mark.parametrize(
    ("text", "decoding"),
    [("not-hex-not-hex-not-hex", "hex"), ("e!!!!!!!!!!!!!!!!!!!!!!!", "base64"), ("é" * 8 + "a" * 16, "whsec")],
)
def test_a_text_that_can_not_be_decoded_is_a_flaw(text, decoding):
    assert Secret(text).flaw(decoding) == f"cannot be read as {decoding}"


def test_the_length_counts_after_decoding():
    assert Secret("00112233445566778899aabb").flaw("hex") == "is shorter than 14 bytes"

"""The golden values pin a stored format. ``sealed`` is written from the words of the design, not from the code."""

import hashlib
import hmac
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.identity import (
    IdentityRules,
    Key,
    digest,
    fingerprint,
    held_fingerprint,
    identify,
    is_name,
    seen_digest,
)
from django_webhook_guard.locators import Body, Either, Header, Query, Reading, parts
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import Verification
from tests.senders import GITHUB_SECRET, PARTNER_SECRET, github, partner

SECRET = Secret("s3cret-0123456789abcdef")
BODY = b'{"id":"evt_1","type":"x"}'
BODY_DIGEST = hashlib.sha256(BODY).digest()


def sealed(*values):
    """One tag byte, eight bytes of length, the bytes; SHA-256 over all of them."""
    stream = b""
    for value in values:
        tag, content = {
            str: lambda text: (b"s", text.encode()),
            int: lambda number: (b"i", b"%d" % number),
            bytes: lambda raw: (b"b", raw),
            type(None): lambda _: (b"n", b""),
        }[type(value)](value)
        stream += tag + len(content).to_bytes(8, "big") + content
    return hashlib.sha256(stream).hexdigest()


def seen_key(secret):
    return hmac.new(secret.encode(), b"django-webhook-guard seen", hashlib.sha256).digest()


def event(data, *, url="/", headers=None, body=BODY, content=None, nonce=None, url_tenant=None, **rules):
    rules = {"source": "acme", "namespace": "acme", "covers": frozenset({"body"}), **rules}
    delivery = Delivery(method="POST", url=url, headers=headers or {}, body=body)
    verification = Verification(content=content or body, secret=SECRET, nonce=nonce)
    return identify(Reading(delivery, data), verification, IdentityRules(**rules), tenant=url_tenant, late=False)


def refused(data, **given):
    with pytest.raises(MalformedContent) as caught:
        event(data, **given)
    return caught.value.detail


# -- golden values -----------------------------------------------------------------------------------------------------

GOLDEN = {
    "id text": (
        Key(kind="id", parts=("evt_1",), text=""),
        None,
        "21cf5bd3b65ebefe627497b64bbc8b710f6827f831511ec94fb7b26e84b109f6",
    ),
    "id int": (
        Key(kind="id", parts=(1,), text=""),
        None,
        "8c7c5c13fe32368043fc6bd6300ba6142c24332e773bdcd0fff6de861232c6aa",
    ),
    "id text of digits": (
        Key(kind="id", parts=("1",), text=""),
        None,
        "15fb87caafa3871a71584c6e82353a211789b901a6a61b23b4a519d3fd0170cb",
    ),
    "id outside ascii": (
        Key(kind="id", parts=("évt",), text=""),
        "acme",
        "3c1d4928f1108709ac63f5d1a0d2acca1517908154eca9d30bd2396a096a0bc9",
    ),
    "id of two parts": (
        Key(kind="id", parts=("a", -7), text=""),
        None,
        "789078e5f29bdc377affdc104b0ec21af1e88e43c2035cfbe90f22826ca7ea7b",
    ),
    "paired": (
        Key(kind="paired", parts=("g1", BODY_DIGEST), text=""),
        None,
        "18d4a2b354e7c003c799d282e7da78f31e4c394e71318721bec2e0a133c4e3e3",
    ),
    "paired with type": (
        Key(kind="paired", parts=("g1", BODY_DIGEST, "push"), text=""),
        None,
        "821095aa4f20af45f7b013650216677f8958aa0f739655fbe891c715afd9c1bc",
    ),
    "fields": (
        Key(kind="fields", parts=("order", 7), text=""),
        "acme",
        "9ab8fd1ad55ab6f9ad2dee97779fd55b8f96219a1195837c6f36ad838c8ac98d",
    ),
    "nonce": (
        Key(kind="nonce", parts=("n-1",), text=""),
        None,
        "a02077ba5dd3a1c59ac2979ac5167b2ec93ce4ebe6a4e9e8ba5c31da33271142",
    ),
    "content": (
        Key(kind="content", parts=(BODY_DIGEST,), text=""),
        None,
        "3b95a7e080e5dc22342d224715876ad2bb393f001fd29ddaf3117fc72bfc1955",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_fingerprints(name):
    key, tenant, pinned = GOLDEN[name]
    assert fingerprint("stripe", tenant, key) == sealed("v1", "stripe", tenant, key.kind, *key.parts) == pinned


def test_golden_bytes_of_the_format():
    stream = b"s\0\0\0\0\0\0\0\x02v1" + b"n\0\0\0\0\0\0\0\0" + b"i\0\0\0\0\0\0\0\x02-7" + b"b\0\0\0\0\0\0\0\x01\xff"
    assert (
        digest(("v1", None, -7, b"\xff"))
        == hashlib.sha256(stream).hexdigest()
        == "f59022f379b3acc738810790939f6bd8ac304d469fc158b62df7ed0ccfc7f2c6"
    )


def test_golden_seen_digests():
    key, content = seen_key(SECRET.secret), b"1700000000." + BODY
    assert (
        seen_digest(key, content)
        == sealed(key, content, 0, None)
        == "18ce6b9c531395f8818d275e9d200c70c4b88646f6bf41686695fd8bb09e0edb"
    )
    assert (
        seen_digest(key, content, 3, "push")
        == sealed(key, content, 3, "push")
        == "6f333054442200a630652cdb569b35d8744a85e5a86e159a96d2e05bee229e16"
    )


def test_golden_held_fingerprints():
    seen = "ab" * 32
    assert (
        held_fingerprint("replayed", seen)
        == sealed("held", "replayed", seen)
        == "efa73a00b0b2398f0025d78cf6c4629d331747ec42605d6eb836794ca6bbea51"
    )
    reused = held_fingerprint("key_reused", seen, BODY_DIGEST)
    assert (
        reused
        == sealed("held", "key_reused", seen, BODY_DIGEST)
        == "b62f7b9e3cfa05a432ce2d0f2ed1343adf32789379736a6d6fb1acae753ab750"
    )


@pytest.mark.django_db
def test_golden_stripe(post):
    post("stripe", {"id": "evt_1", "type": "x"})
    pinned = "21cf5bd3b65ebefe627497b64bbc8b710f6827f831511ec94fb7b26e84b109f6"
    assert WebhookReceipt.objects.get().fingerprint == sealed("v1", "stripe", None, "id", "evt_1") == pinned
    assert not WebhookSeen.objects.exists()


@pytest.mark.django_db
def test_golden_stripe_with_the_account_as_tenant(post, sources):
    sources(stripe={"TENANT": True, "NAMESPACE": "payments"})
    post("stripe", {"id": "evt_1", "type": "x", "account": "acct_1"})
    pinned = "a67a96596447185a8b7c24b7ad515a0be947f28e1e80bfa8880d88311dedab5f"
    assert WebhookReceipt.objects.get().fingerprint == sealed("v1", "payments", "acct_1", "id", "evt_1") == pinned


@pytest.mark.django_db
def test_golden_github(post):
    body = json.dumps({"ref": "x"}).encode()
    post("github", body, headers=github(body, guid="g1"))
    expected = sealed("v1", "github", None, "paired", "g1", hashlib.sha256(body).digest())
    assert (
        WebhookReceipt.objects.get().fingerprint
        == expected
        == "d5b1a8de6e2065b891e262ecb5248380f27472b4f5272f9aa8921f46db85f14c"
    )
    seen = sealed(seen_key(GITHUB_SECRET), body, 0, None)
    assert (
        WebhookSeen.objects.get().digest == seen == "97d35267ec5c72ad064fa1d522b7eefcefc356ab49026322005d35c6497d2dff"
    )


@pytest.mark.django_db
def test_golden_github_replayed(post):
    body = json.dumps({"ref": "x"}).encode()
    for guid in ("g1", "g2"):
        post("github", body, headers=github(body, guid=guid))
    held = sealed("held", "replayed", sealed(seen_key(GITHUB_SECRET), body, 0, None))
    assert (
        WebhookReceipt.objects.get(reason="replayed").fingerprint
        == held
        == "bf9b13f4e41099c50caf6998143d22b608737a72e3bb6000dea12e71d7fc6b38"
    )


@pytest.mark.django_db
def test_golden_signed_nonce(post, sources):
    sources(partner={"TOLERANCE": None})
    body = json.dumps({"n": 1}).encode()
    post("partner", body, headers=partner(body, at=1_700_000_000, nonce="n-1", key="k-1"))
    post("partner", body, headers=partner(body, at=1_700_000_000, nonce="n-2"))
    paired = sealed("v1", "partner", None, "paired", "k-1", hashlib.sha256(body).digest())
    by_nonce = sealed("v1", "partner", None, "nonce", "n-2")
    assert paired == "552b5e16a1e922c2d6bf40129229e30a78aa59150a59c6256b127a6841845919"
    assert by_nonce == "f8edb1510593a40ebd2ac1981b0509c07fe4026d3779940280fb66f6ac3041f0"
    assert set(WebhookReceipt.objects.values_list("fingerprint", flat=True)) == {paired, by_nonce}
    seen = sealed(seen_key(PARTNER_SECRET), b"1700000000.n-1." + body, 0, None)
    assert (
        WebhookSeen.objects.get(fingerprint=paired).digest
        == seen
        == "b16bb5aeee992fbdfabb2c782dbbd4c76670547666f95a090a87eb0976f69664"
    )


@pytest.mark.django_db
def test_golden_nonce_reused(post, sources):
    sources(partner={"TOLERANCE": None})
    for number in (1, 2):
        post("partner", {"n": number}, nonce="n-1")
    other = hashlib.sha256(json.dumps({"n": 2}).encode()).digest()
    expected = sealed("held", "key_reused", sealed("v1", "partner", None, "nonce", "n-1"), other)
    assert (
        WebhookReceipt.objects.get(reason="key_reused").fingerprint
        == expected
        == "d888f2a94f1fd40a47c5ca09f1d2f952659d6eb84668e4f82424006d5fd2db10"
    )


@given(
    one=st.lists(st.text() | st.integers() | st.binary() | st.none(), max_size=4),
    two=st.lists(st.text() | st.integers() | st.binary() | st.none(), max_size=4),
)
@settings(deadline=None, max_examples=300)
def test_different_values_have_different_digests(one, two):
    same = [(type(each), each) for each in one] == [(type(each), each) for each in two]
    assert (digest(one) == digest(two)) is same


# -- which key ---------------------------------------------------------------------------------------------------------


def test_the_id_is_the_key_where_the_proof_covers_it():
    found = event({"id": "evt_1"}, event_id="id", key_fields=parts("n"), nonce="n-1")
    assert found.key == Key(kind="id", parts=("evt_1",), text="evt_1")
    assert found.event_id == "evt_1"


@pytest.mark.parametrize(
    "rules",
    [
        {"event_id": Header("X-Id")},
        {"event_id": Query("id")},
        {"event_id": Either("nothing", Header("X-Id"))},
        {"event_id": (Body("id"), Header("X-Id"))},
        {"event_id": "id", "covers": frozenset({"timestamp"})},
        {"key_fields": (Body("id"), Header("X-Id"))},
    ],
)
def test_any_part_outside_of_the_proof_pairs_the_whole_key_with_the_body(rules):
    found = event({"id": "evt_1"}, headers={"x-id": "h1"}, url="/?id=q1", **rules)
    assert found.key.kind == "paired"
    assert found.key.parts[-1] == BODY_DIGEST


def test_fields_then_nonce_then_content():
    data = {"order": "o1", "n": 7}
    fields = parts(("order", "n"))
    assert event(data, key_fields=fields, nonce="n-1").key == Key(kind="fields", parts=("o1", 7), text="o1 7")
    assert event(data, nonce="n-1").key == Key(kind="nonce", parts=("n-1",), text="n-1")
    content = hashlib.sha256(b"5." + BODY).digest()
    assert event(data, content=b"5." + BODY).key == Key(kind="content", parts=(content,), text=content.hex())


@pytest.mark.parametrize("rules", [{"event_id": Body("x", optional=True)}, {"key_fields": (Body("x", optional=True),)}])
def test_an_optional_part_that_is_missing_gives_way_to_the_next_kind(rules):
    assert event({"n": 1}, nonce="n-1", **rules).key.kind == "nonce"
    one = event({"n": 1}, **rules).fingerprint
    two = event({"n": 2}, body=b'{"n":2}', **rules).fingerprint
    assert one != two


def test_a_declared_part_that_is_missing_is_malformed():
    assert refused({}, event_id="id", nonce="n-1") == "event id is missing"
    assert refused({"a": 1}, key_fields=parts(("a", "b")), nonce="n-1") == "key field is missing"


@pytest.mark.parametrize(
    "value",
    ["", " ", "\t\n", None, 1.0, 0.1, True, False, [], {}, ["a"], "a\0", "\ud800", "x" * 256, 10**255, -(10**255)],
)
@pytest.mark.parametrize("rules", [{"event_id": "id"}, {"key_fields": parts("id")}, {"tenant": "id"}])
def test_what_is_no_id_is_never_a_key(value, rules):
    refused({"id": value}, **rules)


@pytest.mark.parametrize("value", ["x" * 255, "é" * 255, "\U0001f600" * 255, 0, -1, 10**255 - 1, "0", " a", "a b"])
def test_what_is_an_id(value):
    found = event({"id": value}, event_id="id")
    assert found.key.parts == (value,)
    assert found.event_id == str(value)


def test_int_and_text_ids_are_told_apart():
    assert event({"id": 1}, event_id="id").fingerprint != event({"id": "1"}, event_id="id").fingerprint


def test_parts_are_told_apart_though_they_read_the_same():
    one = event({"a": "x y", "b": "z"}, event_id=("a", "b"))
    two = event({"a": "x", "b": "y z"}, event_id=("a", "b"))
    assert one.event_id == two.event_id == "x y z"
    assert one.fingerprint != two.fingerprint


def test_the_type_is_part_of_the_key_where_one_body_may_carry_several():
    rules = {"event_id": Header("X-Id"), "event_type": Header("X-Topic"), "type_in_key": True}
    one = event({}, headers={"x-id": "1", "x-topic": "a"}, **rules)
    two = event({}, headers={"x-id": "1", "x-topic": "b"}, **rules)
    assert one.key.parts == ("1", BODY_DIGEST, "a")
    assert one.fingerprint != two.fingerprint and one.seen_digest != two.seen_digest
    assert one.seen_digest == sealed(seen_key(SECRET.secret), BODY, 0, "a")


def test_namespace_and_tenant_part_events_and_neither_parts_seen_messages():
    found = [
        event({"id": "e1"}, event_id="id", namespace=namespace, url_tenant=tenant)
        for namespace in ("a", "b")
        for tenant in (None, "t")
    ]
    assert len({each.fingerprint for each in found}) == 4
    assert len({each.seen_digest for each in found}) == 1


def test_a_former_namespace_gives_the_former_fingerprint():
    assert event({"id": "e1"}, event_id="id").under("old").fingerprint == sealed("v1", "old", None, "id", "e1")


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ["", " ", "a\0", "\ud800", "t" * 256])
def test_a_tenant_of_the_url_that_can_be_none_is_malformed(tenant):
    assert not is_name(tenant)
    assert "tenant" in refused({"id": "e1"}, event_id="id", url_tenant=tenant)


def test_a_located_tenant_wins_over_the_url_and_is_text():
    assert event({"t": 42}).tenant is None
    assert event({"t": 42}, url_tenant="url").tenant == "url"
    assert event({"t": 42}, url_tenant="url", tenant="t").tenant == "42"


def test_no_two_tenants_of_several_parts_are_one():
    pairs = [("a b", "c"), ("a", "b c"), ("a%20b", "c"), ("a", "b%20c")]
    assert len({event({"x": x, "y": y}, tenant=("x", "y")).tenant for x, y in pairs}) == 4


def test_a_tenanted_delivery_without_tenant_is_malformed():
    assert refused({}, tenant=Body("t", optional=True)) == "tenant is missing"


# -- type, object, time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locator", "data", "event_type"),
    [
        (None, {"type": "x"}, ""),
        ("type", {"type": "invoice.paid"}, "invoice.paid"),
        ("type", {"type": 7}, "7"),
        ("type", {}, ""),
        ("type", {"type": None}, ""),
        ("type", {"type": ""}, ""),
        (("type", Body("action", optional=True)), {"type": "a", "action": "b"}, "a.b"),
        (("type", Body("action", optional=True)), {"type": "a"}, "a"),
        (("type", Body("action", optional=True)), {"action": "b"}, ""),
        (("type", "action"), {"type": "a"}, ""),
    ],
)
def test_the_type(locator, data, event_type):
    assert event(data, event_type=locator).event_type == event_type


@pytest.mark.parametrize("value", [1.5, True, [], {}, "a\0", "\ud800", "x" * 256])
def test_a_type_that_is_none_is_malformed(value):
    assert "event type" in refused({"type": value}, event_type="type")


@pytest.mark.parametrize(
    ("value", "key"),
    [("o1", "o1"), (7, "7"), (None, ""), (1.5, ""), ("", ""), ("o\0", ""), ("\ud800", ""), ("x" * 256, "")],
)
def test_an_object_that_can_not_be_kept_is_left_out(value, key):
    assert event({"o": value}, object_key="o").object_key == key
    assert event({}, object_key=("o", "p")).object_key == ""


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (1796040000, NOON),
        ("1796040000", NOON),
        (1796040000.0, NOON),
        (1796040000000, NOON),
        ("2026-11-30T12:00:00Z", NOON),
        ("2026-11-30T14:00:00+02:00", NOON),
        ("2026-11-30T12:00:00", None),
        ("yesterday", None),
        ("", None),
        ("\u00b2", None),
        (None, None),
        (True, None),
        ([], None),
        (1e308, None),
        (-1e308, None),
        (10**400, None),
        ("9" * 400, None),
        ("0001-01-01T00:00:00+14:00", None),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        (253402300799000, None),
    ],
)
def test_the_events_own_time_is_kept_where_every_time_zone_can_show_it(value, moment):
    assert event({"t": value}, occurred_at="t").occurred_at == moment
    assert event({}, occurred_at="t").occurred_at is None


def test_neither_data_nor_content_is_in_an_events_repr():
    shown = repr(event({"id": "e1", "card": "4242"}, event_id="id"))
    assert "4242" not in shown and SECRET.secret not in shown and "evt_1" not in shown

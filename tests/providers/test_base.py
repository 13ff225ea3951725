import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.providers import PROVIDERS, Provider, listed
from django_webhook_guard.verifiers import HMACVerifier

SIGNED = HMACVerifier(header="X-Acme", signed="{body}")
JSON_ONLY = Provider(name="json", verifier=SIGNED)
IN_A_FIELD = Provider(name="field", verifier=SIGNED, form_json="payload")
FORMS = Provider(name="forms", verifier=SIGNED, forms=True)
ALL_THREE = Provider(name="all", verifier=SIGNED, forms=True, form_json="payload")
BATCHES = Provider(name="batches", verifier=SIGNED, split=listed)
KINDS = (JSON_ONLY, IN_A_FIELD, FORMS, ALL_THREE, BATCHES)

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"
TYPES = ("application/json", URLENCODED, MULTIPART, "text/plain; charset=bogus", "")
PAYLOAD = b"payload=" + quote('{"a":1}').encode()


def read(provider, body, content_type=URLENCODED):
    """What the content is, or None where it is malformed."""
    try:
        return provider.parse(body, content_type)[0]
    except MalformedContent:
        return None


@pytest.mark.parametrize(
    ("body", "contents"),
    [
        (b'{"a":1}', [{"a": 1}] * 5),
        (b'\xef\xbb\xbf {"a":1}', [{"a": 1}] * 5),
        (PAYLOAD, [None, {"a": 1}, {"payload": '{"a":1}'}, {"a": 1}, None]),
        (b"b=1&b=2", [None, None, {"b": ["1", "2"]}, {"b": ["1", "2"]}, None]),
        (PAYLOAD + b"&b=1", [None, None, {"payload": '{"a":1}', "b": "1"}, None, None]),
        (PAYLOAD + b"&" + PAYLOAD, [None, None, {"payload": ['{"a":1}'] * 2}, None, None]),
        (b"payload=%5B%5D", [None, None, {"payload": "[]"}, None, None]),
        (b"payload=b%3D1", [None, None, {"payload": "b=1"}, None, None]),
        (b"[1]", [None, None, None, None, [1]]),
        (b"{}=1", [None] * 5),
        (b"", [None] * 5),
        (b"null", [None, None, {"null": ""}, {"null": ""}, None]),
        (b'"payload={}"', [None] * 5),
    ],
)
def test_which_bodies_each_kind_of_sender_may_send(body, contents):
    assert [read(provider, body) for provider in KINDS] == contents


def test_l6_the_form_is_given_beside_the_json_of_its_field():
    assert IN_A_FIELD.parse(PAYLOAD, URLENCODED) == ({"a": 1}, {"payload": '{"a":1}'})
    assert IN_A_FIELD.parse(b'{"a":1}', URLENCODED) == ({"a": 1}, {})


FIELD = "Content-Disposition: form-data; name=payload\r\n\r\n"
PIECES = st.sampled_from(
    ['{"a":"', "payload=", "&", "%7B%22b%22:2%7D", '{"b":2}', '"}', "=", "x", "--x", "\r\n", "--", " ", "\\n", FIELD]
)


@given(pieces=st.lists(PIECES, max_size=12))
@settings(deadline=None, max_examples=600)
def test_the_unsigned_content_type_never_makes_another_event_of_a_body(pieces):
    body = "".join(pieces).encode()
    for provider in KINDS:
        found = [content for content in (read(provider, body, each) for each in TYPES) if content is not None]
        assert all(content == found[0] for content in found)


def test_a_list_is_its_items_and_an_object_is_itself():
    assert listed([1, {"a": 1}]) == [1, {"a": 1}]
    assert listed({"a": 1}) == [{"a": 1}]


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_of_the_registry(name):
    provider = PROVIDERS[name]
    assert provider.name == name
    assert all(header == header.lower() for header in provider.keep_headers)
    proof = {"authorization", "signature", "token", "hmac"}
    assert not any(word in header for word in proof for header in provider.keep_headers)
    assert json.dumps(dict(provider.answers))

import hashlib
import hmac
import json
import string
import time
import tracemalloc
from contextlib import suppress
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import Form
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.parsing import MAX_DEPTH, MAX_DIGITS, MAX_FIELDS, holds_json, parse_form, parse_json
from django_webhook_guard.providers import Provider
from django_webhook_guard.verifiers import HMACVerifier
from tests.senders import STRIPE_SECRET, hexmac, stripe

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"
MEGABYTE = 1 << 20
SECRET = "acme-form-0123456789abcdef"
FORMS = Provider(
    name="acme-form", verifier=HMACVerifier(header="X-Acme", signed="{body}"), event_id=Form("id"), forms=True
)


def refused(parse, *given):
    with pytest.raises(MalformedContent) as caught:
        parse(*given)
    return caught.value.detail


# -- JSON --------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(value=JSON, indent=st.none() | st.integers(0, 3), ascii=st.booleans(), mark=st.booleans())
@settings(deadline=None, max_examples=300)
def test_json_is_read_as_python_writes_it(value, indent, ascii, mark):
    body = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    if b"\xed\xa0" in body or b"\xed\xb0" in body:
        return
    assert parse_json((b"\xef\xbb\xbf" if mark else b"") + body) == value


@given(body=st.binary(max_size=60) | st.text(st.sampled_from('[]{}":,\\tfn01eE+-. u'), max_size=40).map(str.encode))
@settings(deadline=None, max_examples=1500)
def test_no_bytes_raise_anything_but_malformed_content(body):
    try:
        found = parse_json(body)
    except MalformedContent:
        return
    assert found == json.loads(body.decode("utf-8-sig"))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", '{"a":[NaN]}', "[1E309]"])
def test_k1_what_json_has_no_number_for(text):
    refused(parse_json, text.encode())


@pytest.mark.parametrize("number", ["-0", "0.0", "1e308", "1E-999", "9" * MAX_DIGITS, "0." + "1" * (MAX_DIGITS - 2)])
def test_numbers_that_are_read(number):
    assert parse_json(number.encode()) == json.loads(number)


@pytest.mark.parametrize(
    "number", ["9" * (MAX_DIGITS + 1), "-" + "9" * MAX_DIGITS, "0." + "1" * MAX_DIGITS, "9" * 5000]
)
def test_k4_the_limit_of_digits_is_our_own(number):
    assert refused(parse_json, b"[" + number.encode() + b"]") == "a number of more than 1000 digits"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_k3_the_limit_of_depth_is_our_own(opening):
    closing = "]" if opening == "[" else "}"
    assert parse_json((opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode())
    deeper = (opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1)).encode()
    assert refused(parse_json, deeper) == "nested deeper than 100 levels"


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"[" * 2000 + b"]" * 2000, b'{"a":' * 100_000, b'"\\' + b"[" * 500 + b'"' + b"[" * 500]
)
def test_k3_brackets_without_end(body):
    assert refused(parse_json, body) == "nested deeper than 100 levels"


@pytest.mark.parametrize(
    "text",
    ["[" * 500, '"' + "[" * 500, "\\" + "{" * 500, '\\"' + "[" * 500, "\\\\", '\\\\\\"[' * 300, "é[" * 500, "[]" * 500],
)
def test_brackets_inside_of_text_are_no_depth(text):
    assert parse_json(json.dumps({"a": text}).encode()) == {"a": text}
    assert parse_json(json.dumps({text: [text]}, ensure_ascii=False).encode()) == {text: [text]}


def test_many_shallow_lists_are_no_depth():
    assert len(parse_json(b"[" + b"[]," * 5000 + b"[]]")) == 5001


@pytest.mark.parametrize(
    "body",
    [
        b"]" * 1000 + b"[" * 1000,
        b"{}" + b"]" * 1000 + b"[" * 1000,
        b'"' + b"[" * 1000,
        b'{"a":"' + b"\\",
        b'"' * 1001 + b"[" * 200,
    ],
)
def test_bodies_that_mislead_a_counter_of_brackets(body):
    refused(parse_json, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"e1","type":"paid","id":"e2"}',
        b'{"a":{"b":1,"b":1}}',
        b'[{"a":1},{"b":1,"\\u0062":2}]',
        b'{"":1,"":1}',
        b'{"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}',
    ],
)
def test_k6_a_key_given_twice_is_two_events_in_one(body):
    assert refused(parse_json, body) == "a key is given twice in one object"


def test_k2_nul_and_lone_surrogates_survive_as_escapes():
    assert parse_json(b'{"t":"a\\u0000b","k\\u0000":1,"s":"\\ud800"}') == {"t": "a\0b", "k\0": 1, "s": "\ud800"}


@pytest.mark.parametrize(
    "body",
    [
        '{"id":"e1"}'.encode("utf-16"),
        '{"id":"e1"}'.encode("utf-16-le"),
        '{"id":"e1"}'.encode("utf-32"),
        b'{"a":"\xff\xfe"}',
        b'{"a":"\xe9"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\x80"}',
        b'\xef\xbb\xbf\xef\xbb\xbf{"id":"e1"}',
        b'{"a":"\0"}',
        b'{"a":"\n"}',
        b"",
        b"  ",
        b"\xef\xbb\xbf",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":1}{"b":2}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"a":.5}',
        b'{"a":"\\x41"}',
        b"nul",
        b"True",
        b"\x0c1",
        b"\xc2\xa01",
    ],
)
def test_what_is_no_utf_8_or_no_json(body):
    detail = refused(parse_json, body)
    assert "e1" not in detail


def test_a5_a_byte_order_mark_is_skipped():
    assert parse_json(b'\xef\xbb\xbf{"id":"e1"}') == {"id": "e1"}


ADVERSARIES = {
    "one string": b'{"a":"' + b"[" * MEGABYTE + b'"}',
    "a string without end": b"[" * 101 + b'"' + b"[" * MEGABYTE,
    "escapes": b'{"a":"' + b"\\n" * (MEGABYTE // 2) + b"[" * 200 + b'"}',
    "backslashes": b'{"a":"' + b"\\" * MEGABYTE + b"[" * 200 + b'"}',
    "quotes": b'"' * MEGABYTE + b"[" * 200,
    "brackets": b"[]" * (MEGABYTE // 2),
    "closers": b"]" * MEGABYTE + b"[" * 200,
    "keys": b"{" + b",".join(b'"%d":1' % number for number in range(90_000)) + b"}",
    "digits": b"[" + b",".join([b"9" * 1000] * 1040) + b"]",
    "fractions": b"[" + b",".join([b"0." + b"9" * 990] * 1040) + b"]",
    "blanks": b" " * MEGABYTE,
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a_megabyte_made_to_be_slow_is_not(name):
    began = time.process_time()
    with suppress(MalformedContent):
        parse_json(ADVERSARIES[name])
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", ["one string", "a string without end"])
def test_a_long_text_costs_a_few_times_its_size(name):
    tracemalloc.start()
    with suppress(MalformedContent):
        parse_json(ADVERSARIES[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MEGABYTE


# -- forms -------------------------------------------------------------------------------------------------------------


def multipart(*fields, head=b"", between=b"", tail=b"--\r\n"):
    parts = [
        b'--x\r\nContent-Disposition: form-data; name="' + name + b'"\r\n' + between + b"\r\n" + value
        for name, value in fields
    ]
    return head + b"".join(part + b"\r\n" for part in parts) + b"--x" + tail


PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(fields=st.lists(st.tuples(PLAIN_TEXT, PLAIN_TEXT), max_size=6))
@settings(deadline=None, max_examples=200)
def test_urlencoded_fields_are_read_as_python_writes_them(fields):
    assert parse_form(urlencode(fields).encode(), URLENCODED) == grouped(fields)


@given(
    fields=st.lists(
        st.tuples(st.text(string.ascii_letters + "é[]", max_size=9), PLAIN_TEXT.filter(lambda text: "--x" not in text)),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None, max_examples=200)
def test_multipart_fields_are_read_as_browsers_write_them(fields):
    body = multipart(*((name.encode(), value.encode()) for name, value in fields))
    assert parse_form(body, MULTIPART) == grouped(fields)


def grouped(fields):
    values = {name: [value for known, value in fields if known == name] for name, _ in fields}
    return {name: listed[0] if len(listed) == 1 else listed for name, listed in values.items()}


@given(body=st.binary(max_size=80) | st.text(st.sampled_from('--x\r\n:; ="name&%4'), max_size=60).map(str.encode))
@settings(deadline=None, max_examples=600)
def test_no_form_raises_anything_but_malformed_content(body):
    for content_type in (URLENCODED, MULTIPART):
        try:
            found = parse_form(body, content_type)
        except MalformedContent:
            continue
        assert all(isinstance(value, str | list) for value in found.values())


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b"a", {"a": ""}),
        (b"a=&b=%00", {"a": "", "b": "\0"}),
        (b"a=1&a=2&a=3", {"a": ["1", "2", "3"]}),
        (b"a=1;b=2", {"a": "1;b=2"}),
        (b"a=1+2%2B3", {"a": "1 2+3"}),
        (b"\xef\xbb\xbfid=e2&x=1", {"id": "e2", "x": "1"}),
        ("a=é".encode(), {"a": "é"}),
    ],
)
def test_urlencoded_forms(body, fields):
    assert parse_form(body, URLENCODED) == fields


@pytest.mark.parametrize(
    "body",
    [b"a=%FF", b"a=\xff", b"a=1\r\n", b"a= 1", b'a="1"', b"a=\0", b'{"a":1}', b"&" * MAX_FIELDS, b"&" * MEGABYTE],
)
def test_urlencoded_forms_that_are_malformed(body):
    refused(parse_form, body, URLENCODED)


@pytest.mark.parametrize(
    "content_type",
    [
        MULTIPART,
        'multipart/form-data; boundary="x"',
        "Multipart/Form-Data ; charset=utf-8; BOUNDARY=x ;",
        "multipart/form-data; boundary=x; charset=UTF-8",
    ],
)
def test_spellings_of_a_boundary(content_type):
    assert parse_form(multipart((b"a", b"1"), (b"b", b"")), content_type) == {"a": "1", "b": ""}


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        "multipart/form-data; boundary=x; boundary=y",
        "multipart/form-data; boundary=" + "x" * 71,
        "multipart/form-data; boundary=é",
        "multipart/form-data; boundary=y",
        "multipart/form-data; xboundary=x",
        "multipart/form-data; boundary=x\r\nContent-Disposition: form-data; name=a",
        "multipart/form-data; boundary=x" + ";" * 2000,
        "multipart/form-data; boundary=x\0",
    ],
)
def test_content_types_that_do_not_name_one_boundary(content_type):
    refused(parse_form, multipart((b"a", b"1")), content_type)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x--\r\n",
        multipart((b"a", b"1"), tail=b"\r\n"),
        multipart((b"a", b"1"), tail=b"--\r\nmore"),
        multipart((b"a", b"1"), head=b"preamble\r\n"),
        multipart((b"a", b"1"), head=b"\r\n"),
        multipart((b"a", b"\xff")),
        multipart((b"a\xff", b"1")),
        multipart((b'a"; filename="f', b"1")),
        multipart((b'a"; name="b', b"1")),
        multipart((b'a\\" ', b"1")),
        multipart((b"a", b"1"), between=b"Content-Transfer-Encoding: base64\r\n"),
        multipart((b"a", b"1"), between=b"Content-Disposition: form-data; name=b\r\n"),
        multipart((b"a", b"1"), between=b"\r\n\r\n").replace(b"Content-Disposition", b"X-Other"),
        multipart((b"a", b"1")).replace(b"form-data", b"attachment"),
        multipart((b"a", b"1")).replace(b"\r\n", b"\n"),
        multipart((b"a", b"1")).replace(b"--x\r\n", b"--xy\r\n"),
        multipart(*[(b"a", b"1")] * (MAX_FIELDS + 1)),
        b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n\r\n--y--\r\n--x--\r\n",
        b"--x\r\n" * 100_000,
        b"--x\r\nContent-Disposition: form-data; " + b"a=b;" * 100_000 + b"\r\n\r\n1\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="' + b'"' * 100_000 + b"\r\n\r\n1\r\n--x--\r\n",
        b"--x\r\n" + b"a:b\r\n" * 100_000 + b"\r\n1\r\n--x--\r\n",
    ],
)
def test_multipart_forms_that_are_malformed(body):
    refused(parse_form, body, MULTIPART)


def test_a_part_may_say_more_about_itself():
    body = multipart((b"a", b"1\r\n2"), between=b"content-type: text/plain\r\nContent-Transfer-Encoding: 8BIT\r\n")
    assert parse_form(body, MULTIPART) == {"a": "1\r\n2"}


def test_as_many_fields_as_allowed():
    assert len(parse_form(multipart(*[(b"a", b"1")] * MAX_FIELDS), MULTIPART)["a"]) == MAX_FIELDS
    assert len(parse_form(b"a=1" + b"&a=1" * (MAX_FIELDS - 1), URLENCODED)["a"]) == MAX_FIELDS


def test_a_body_of_one_kind_is_no_form_of_the_other():
    crafted = multipart((b"note", b"x&id=forged&type=paid&y"))
    assert parse_form(crafted, MULTIPART) == {"note": "x&id=forged&type=paid&y"}
    refused(parse_form, crafted, URLENCODED)
    refused(parse_form, b"note=x--x%0D%0A&id=1", MULTIPART)


@pytest.mark.parametrize(
    ("body", "json"),
    [
        (b"{}", True),
        (b"[]", True),
        (b'\xef\xbb\xbf {"a":1}', True),
        (b" \t\r\n[1]", True),
        (b"{a}=1", True),
        (b"", False),
        (b"a=1", False),
        (b"\xef\xbb\xbfa=1", False),
        (b"%7B%7D=1", False),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{}\r\n--x--", False),
        (b"\x00{}", False),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", False),
        (b"42", False),
        (b'"x"', False),
    ],
)
def test_json_and_forms_are_told_apart_by_the_body(body, json):
    assert holds_json(body) is json


@given(fields=st.lists(st.tuples(PLAIN_TEXT, PLAIN_TEXT), max_size=4), value=JSON, indent=st.none() | st.integers(0, 2))
@settings(deadline=None, max_examples=200)
def test_what_encoders_write_is_of_one_kind(fields, value, indent):
    assert not holds_json(urlencode(fields).encode())
    assert not holds_json(multipart(*((name.encode(), b"{}") for name, _ in fields)))
    assert holds_json(json.dumps({"data": value}, indent=indent).encode())


# -- through the view --------------------------------------------------------------------------------------------------


def receipts():
    return WebhookReceipt.objects.count()


@pytest.mark.django_db
def test_a3_the_stored_bytes_are_the_signed_ones(post):
    body = b'{ "b":1.10,"a":"\\u00e9 \xc3\xa9","n":1e2, "id":"e1","type":"x"} '
    now = int(time.time())
    assert post("stripe", body, at=now).status_code == 200
    stored = WebhookReceipt.objects.get().raw_body
    assert stored == body
    again = hmac.new(STRIPE_SECRET.encode(), f"{now}.".encode() + stored, hashlib.sha256).hexdigest()
    assert again == hexmac(STRIPE_SECRET, f"{now}.".encode() + body)


@pytest.mark.django_db
def test_a4_a_body_that_is_no_utf_8(post):
    broken = b'{"id":"e1","type":"x","a":"\xff\xfe"}'
    assert post("stripe", broken, secret="another-0123456789abcdef").status_code == 401
    assert post("stripe", broken).status_code == 400
    assert receipts() == 0
    assert post("stripe", '{"id":"e1","type":"x","n":"José 😀"}'.encode()).status_code == 200


@pytest.mark.django_db
def test_a5_a_byte_order_mark_in_front_of_json(post):
    body = b'\xef\xbb\xbf{"id":"e1","type":"x"}'
    assert post("stripe", body).status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.raw_body) == ("e1", body)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json; charset=bogus", b'{"id":"e1","type":"x"}', 200),
        ("application/json; charset=latin-1", '{"id":"e1","type":"é"}'.encode(), 200),
        ("application/json; charset=latin-1", b'{"id":"e1","type":"\xe9"}', 400),
        ("application/json; charset=utf-16", '{"id":"e1","type":"x"}'.encode("utf-16"), 400),
        ("text/plain", b'{"id":"e1","type":"x"}', 200),
        ("multipart/form-data", b'{"id":"e1","type":"x"}', 200),
    ],
)
def test_k8_json_is_utf_8_whatever_the_header_says(client, content_type, body, status):
    # generic(), because post() writes the body anew in the charset that it is told
    response = client.generic("POST", "/webhooks/stripe/", body, content_type, headers=stripe(body))
    assert response.status_code == status
    assert receipts() == (status == 200)


def signed_form(body):
    return {"X-Acme": hexmac(SECRET, body)}


@pytest.fixture
def forms(sources):
    sources(acme={"PROVIDER": "tests.test_parsing.FORMS", "SECRETS": [SECRET]})


@pytest.mark.django_db
def test_a5_a_byte_order_mark_in_front_of_a_form(post, forms):
    body = b"\xef\xbb\xbfid=e2&x=1"
    assert post("acme", body, headers=signed_form(body), content_type=URLENCODED).status_code == 200
    assert WebhookReceipt.objects.get().event_id == "e2"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"id=e1&id=e2", URLENCODED),
        (b"x=1", URLENCODED),
        (b"id=", URLENCODED),
        (b"id=%00", URLENCODED),
        (multipart((b"id", b"e1"), (b"id", b"e2")), MULTIPART),
        (multipart((b"id", b"e1")), "multipart/form-data"),
        (b'{"id":"e1"}', "application/json"),
    ],
)
def test_a_form_without_one_usable_id_is_malformed(post, forms, body, content_type):
    assert post("acme", body, headers=signed_form(body), content_type=content_type).status_code == 400
    assert receipts() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"id":"e1","type":"x","v":NaN}', id="k1_nan"),
        pytest.param(b'{"id":"e1","type":"x","v":Infinity}', id="k1_infinity"),
        pytest.param(b'{"id":"e1","type":"x","v":-Infinity}', id="k1_minus_infinity"),
        pytest.param(b'{"id":"a\\u0000b","type":"x"}', id="k2_nul_in_the_id"),
        pytest.param(b'{"id":"\\ud800","type":"x"}', id="k2_surrogate_in_the_id"),
        pytest.param(b'{"id":"e1","type":"a\\u0000b"}', id="k2_nul_in_the_type"),
        pytest.param(b'{"id":"e1","n":' + b"9" * 5000 + b"}", id="k4_digits"),
        pytest.param(b"null", id="k5_null"),
        pytest.param(b"[]", id="k5_list"),
        pytest.param(b"42", id="k5_number"),
        pytest.param(b'"x"', id="k5_text"),
        pytest.param(b"", id="k5_empty"),
        pytest.param(b"  \r\n", id="k5_blanks"),
        pytest.param(b'{"id":"e1","type":"paid","id":"e2"}', id="k6_twice"),
    ],
)
def test_k_signed_json_that_is_malformed(post, handler, body):
    handler("stripe", "*")(lambda event: pytest.fail("dispatched"))
    assert post("stripe", body).status_code == 400
    assert receipts() == 0
    assert post("stripe", {"id": "e9", "type": "x"}, secret="another-0123456789abcdef").status_code == 401


@pytest.mark.django_db
def test_k2_nul_in_text_and_key_reaches_the_handler(post, handler):
    seen = []
    handler("stripe", "x")(lambda event: seen.append(event.data))
    body = b'{"id":"e1","type":"x","t":"a\\u0000b","k\\u0000":"\\ud800","data":{"object":{"id":"o\\u0000"}}}'
    assert post("stripe", body).status_code == 200
    assert seen[0]["t"] == "a\0b" and seen[0]["k\0"] == "\ud800"
    receipt = WebhookReceipt.objects.get()
    assert (receipt.raw_body, receipt.object_key) == (body, "")


@pytest.mark.django_db
@pytest.mark.parametrize("depth", [2000, 100_000])
def test_k3_brackets_are_refused_before_and_after_the_signature(post, depth):
    body = b'{"id":"e1","type":"x","a":' + b"[" * depth + b"]" * depth + b"}"
    assert post("stripe", body, secret="another-0123456789abcdef").status_code == 401
    assert post("stripe", body).status_code == 400
    assert receipts() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("id", ["", " ", None, 1.0, 1e2, True, [], {}, ["e1"], "e" * 256, 10**255])
def test_what_can_be_no_id_is_malformed(post, id):
    assert post("stripe", {"id": id, "type": "x"}).status_code == 400
    assert receipts() == 0

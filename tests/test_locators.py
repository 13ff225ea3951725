import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import MISSING, Body, Either, Form, Header, Query, Reading, is_covered, parts, single

DATA = {"id": "e1", "0": "zero", "null": None, "empty": "", "charges": [{"id": "c0"}, {"id": "c1"}], "a.b": 1}


def reading(url="/?a=1&b=&c=1&c=2&d=%C3%A9", **headers):
    delivery = Delivery(method="POST", url=url, headers=headers)
    return Reading(delivery, DATA, {"one": "1", "two": ["1", "2"], "none": []})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("id",), "e1"),
        (("null",), None),
        (("empty",), ""),
        (("charges", 0, "id"), "c0"),
        (("charges", 1, "id"), "c1"),
        ((0,), "zero"),
        (("a.b",), 1),
        ((), DATA),
        (("charges", 2, "id"), MISSING),
        (("charges", -1, "id"), MISSING),
        (("charges", "0", "id"), MISSING),
        (("charges", "id"), MISSING),
        (("id", 0), MISSING),
        (("id", "upper"), MISSING),
        (("null", "x"), MISSING),
        (("other",), MISSING),
    ],
)
def test_a_path_into_the_body(path, value):
    assert Body(*path).find(reading()) is value or Body(*path).find(reading()) == value


@pytest.mark.parametrize("data", [[], "text", 1, None, True])
def test_a_body_that_is_no_object_holds_nothing(data):
    assert Body("id").find(Reading(reading().delivery, data)) is MISSING


def test_a_dotted_text_is_a_path():
    assert single("charges.0.id") == Body("charges", 0, "id")
    assert single("a.01.-1.x") == Body("a", "01", "-1", "x")
    assert parts(("id", Header("x"))) == (Body("id"), Header("x"))


def test_a_header_in_any_case_without_outer_blanks():
    assert Header("X-Id").find(reading(**{"x-id": " 1 "})) == "1"
    assert Header("X-Id").find(reading(**{"x-id": ""})) == ""
    assert Header("X-Id").find(reading()) is MISSING


def test_query_parameters():
    found = {name: Query(name).find(reading()) for name in "abd"}
    assert found == {"a": "1", "b": "", "d": "é"}
    assert Query("e").find(reading()) is MISSING


@pytest.mark.parametrize("url", ["/?c=1&c=2", "/?c=%FF", "/?c=1" + "&x=1" * 1000])
def test_a_query_that_has_two_readings_is_malformed(url):
    with pytest.raises(MalformedContent):
        Query("c").find(reading(url))


def test_form_fields():
    assert Form("one").find(reading()) == "1"
    assert Form("none").find(reading()) is Form("other").find(reading()) is MISSING
    with pytest.raises(MalformedContent, match="two is given more than once"):
        Form("two").find(reading())


def test_the_first_of_several_that_is_there():
    assert Either("other", "null", "id").find(reading()) is None
    assert Either(Body("other"), Header("x-id"), "id").find(reading()) == "e1"
    assert Either(Header("x-id"), "id").find(reading(**{"x-id": "h"})) == "h"
    assert Either("other", Header("x-id")).find(reading()) is MISSING


@pytest.mark.parametrize(
    ("locator", "covers", "headers", "covered"),
    [
        (Body("id"), {"body"}, {}, True),
        (Body("id"), {"url", "timestamp"}, {}, False),
        (Form("id"), {"body"}, {}, True),
        (Query("id"), {"body"}, {}, False),
        (Query("id"), {"query"}, {}, True),
        (Header("X-Id"), {"body", "id"}, {"x-id"}, True),
        (Header("X-Id"), {"body", "id"}, {"x-other"}, False),
        (Either("id", Header("X-Id")), {"body"}, {}, False),
        (Either("id", Header("X-Id")), {"body"}, {"x-id"}, True),
        (Either("id", Either("a", Query("b"))), {"body"}, {}, False),
        (Header("body"), {"body"}, {}, False),
    ],
)
def test_what_a_proof_covers(locator, covers, headers, covered):
    assert is_covered(locator, frozenset(covers), frozenset(headers)) is covered


def test_nothing_of_a_delivery_is_in_a_reading_s_repr():
    shown = repr(reading(**{"x-id": "h34der"}))
    assert "h34der" not in shown and "e1" not in shown


def test_missing_is_no_value():
    assert not MISSING
    assert repr(MISSING) == "MISSING"

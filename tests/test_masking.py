from copy import deepcopy

import pytest

from django_webhook_guard.locators import Body, Either, Form, Header, single
from django_webhook_guard.masking import MASK, is_masked, masked

DATA = {
    "id": "evt_1",
    "customer": {"email": "a@example.org", "name": "Anna", "age": 41},
    "lines": [{"to": "Anna", "cents": 1}, {"to": "Otto", "cents": 2}],
    "pairs": [["a", 1], ["b", 2]],
    "0": "zero",
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "where", "left"),
    [
        ("id", ["id"], MASK),
        ("none", ["none"], MASK),
        ("customer", ["customer"], MASK),
        ("customer.email", ["customer"], {"email": MASK, "name": "Anna", "age": 41}),
        ("customer.*", ["customer"], {"email": MASK, "name": MASK, "age": MASK}),
        ("lines.*.to", ["lines"], [{"to": MASK, "cents": 1}, {"to": MASK, "cents": 2}]),
        ("lines.1.to", ["lines"], [{"to": "Anna", "cents": 1}, {"to": MASK, "cents": 2}]),
        ("pairs.*.0", ["pairs"], [[MASK, 1], [MASK, 2]]),
        ("0", ["0"], MASK),
        ("*.email", ["customer", "email"], MASK),
    ],
)
def test_a_path_masks_what_it_leads_to_and_nothing_else(path, where, left):
    before = deepcopy(DATA)
    found = masked(DATA, [single(path)])
    assert before == DATA
    expected = deepcopy(DATA)
    holder = expected
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = left
    assert found == expected


@pytest.mark.parametrize(
    "path", ["other", "id.x", "id.*", "customer.email.x", "lines.2.to", "lines.to", "none.x", "customer.0", "ID"]
)
def test_a_path_that_leads_nowhere_masks_nothing(path):
    assert masked(DATA, [single(path)]) == DATA


@pytest.mark.parametrize("data", [DATA, [1, 2], "text", None, {}])
def test_an_empty_path_is_everything(data):
    assert masked(data, [Body()]) == MASK


def test_several_paths_and_none():
    assert masked(DATA, []) == DATA
    found = masked(DATA, [Body("customer", "email"), Body("lines", "*", "to"), Body("customer", "name")])
    assert found["customer"] == {"email": MASK, "name": MASK, "age": 41}
    assert [line["to"] for line in found["lines"]] == [MASK, MASK]
    assert masked(DATA, [Body("customer"), Body("customer", "email")])["customer"] == MASK


def test_a_list_of_events_and_form_fields():
    assert masked([{"a": 1}, {"a": 2}], [single("*.a")]) == [{"a": MASK}, {"a": MASK}]
    assert masked({"user": ["1", "2"], "to": "Anna"}, [single("user.1"), single("to")]) == {
        "user": ["1", MASK], "to": MASK,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("locator", "path", "hidden"),
    [
        ("customer.email", "customer.email", True),
        ("customer.email", "customer", True),
        ("customer.email", "customer.*", True),
        ("customer.email", "*.email", True),
        ("lines.0.to", "lines.*.to", True),
        ("customer", "customer.email", False),
        ("customer.name", "customer.email", False),
        (("id", "customer.email"), "customer.email", True),
        (Either(Header("x"), Body("email")), "email", True),
        (Form("email"), "email", True),
        (Header("email"), "email", False),
        (None, "email", False),
    ],
)
def test_whether_an_id_is_a_personal_value(locator, path, hidden):
    assert is_masked(locator, [single(path)]) is hidden
    assert is_masked(locator, []) is False
    assert is_masked(locator, [Body()]) is (locator not in (None, Header("email")))

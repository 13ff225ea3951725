import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_webhook_guard.locators import Body, single
from django_webhook_guard.masking import MASK, masked

DATA = {
    "customer": {"email": "a@example.org", "id": 7, "names": ["Ada", "Lovelace"]},
    "lines": [{"name": "x", "n": 1}, {"name": "y", "n": 2}, "odd"],
    "0": "zero",
}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("customer.email", lambda data: data["customer"].update(email=MASK)),
        ("customer", lambda data: data.update(customer=MASK)),
        ("customer.names.1", lambda data: data["customer"]["names"].__setitem__(1, MASK)),
        ("customer.*", lambda data: data.update(customer=dict.fromkeys(data["customer"], MASK))),
        ("lines.*.name", lambda data: [line.update(name=MASK) for line in data["lines"][:2]]),
        ("0", lambda data: data.update({"0": MASK})),
        ("customer.names.9", lambda data: None),
        ("customer.missing.deeper", lambda data: None),
        ("lines.name", lambda data: None),
        ("customer.email.deeper", lambda data: None),
    ],
)
def test_what_a_path_means(path, change):
    expected = deepcopy(DATA)
    change(expected)
    before = deepcopy(DATA)
    assert masked(DATA, [single(path)]) == expected
    assert before == DATA  # the original stays


def test_an_empty_path_is_all_of_it():
    assert masked(DATA, [Body()]) == MASK
    assert masked("text", [Body()]) == MASK


def test_several_paths():
    found = masked(DATA, [single("customer.email"), single("lines.*")])
    assert found["customer"]["email"] == MASK
    assert found["lines"] == [MASK] * 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.lists(st.lists(st.text(max_size=3) | st.integers(0, 5), max_size=4), max_size=4))
def test_any_path_over_any_content_is_no_error(data, paths):
    before = json.dumps(data)
    masked(data, [Body(*path) for path in paths])
    assert json.dumps(data) == before

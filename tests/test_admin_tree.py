"""Parsed content as a tree, and the lists that a receipt leads to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_webhook_guard.admin import tree as module
from django_webhook_guard.admin.tree import tree
from django_webhook_guard.models import WebhookReceipt
from tests.test_admin import EVIL, LIST, make, page_of, person

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def test_a_tree_shows_what_is_there():
    html = tree({"id": "evt_1", "live": False, "none": None, "n": 1.5, "lines": [{"a": 1}, []], "empty": {}})
    for text in (
        "<details open><summary>6 fields</summary>", "<strong>id</strong>", ">evt_1</bdi>", "<code>false</code>",
        "<code>null</code>", "<code>1.5</code>", "<summary>2 items</summary>", "<code>[]</code>", "<code>{}</code>",
    ):  # fmt: skip
        assert text in html, text


def test_only_the_first_levels_are_open():
    assert tree([[[[1]]]]).count("<details open>") == module.OPEN


@pytest.mark.parametrize("data", [{EVIL: EVIL}, [EVIL], EVIL, "\u202egnp.exe", {"\0": "\ud800"}])
def test_what_is_in_it_stays_text(data):
    html = tree(data)
    assert "<script" not in html and "onerror" not in html.replace("&lt;img src=x onerror", "")
    assert "\u202e" not in html and "\0" not in html and "\ud800" not in html


def test_what_is_too_much_is_cut():
    html = tree([list(range(1000)) for _ in range(1000)])
    assert html.count("<li>") <= module.NODES + 1_000 and "…" in html
    deep = 1
    for _ in range(200):
        deep = [deep]
    assert tree(deep).count("<details") == module.DEPTH
    assert len(tree("x" * 100_000)) < 3_000


@given(JSON)
def test_any_content_makes_a_tree(data):
    html = tree(data)
    assert html.count("<details") == html.count("</details>")


@given(st.text())
def test_any_text_is_escaped(text):
    assert "<b" not in tree(text).replace("<bdi", "")


@pytest.mark.django_db(databases=["default", "other"])
def test_the_page_has_the_tree_of_what_may_be_seen(sources):
    viewer = person("vera", "view_webhookreceipt")
    receipt = make(body=b'{"customer": {"email": "ada@example.org"}}')
    assert ">ada@example.org</bdi>" in viewer.get(page_of(receipt)).content.decode()
    sources(stripe={"PERSONAL": ["customer.email"]})
    assert ">•••</bdi>" in viewer.get(page_of(receipt)).content.decode()
    for body in (b"not json", json.dumps("x" * 70_000).encode(), None):
        assert "webhook-tree" not in viewer.get(page_of(make(body=body))).content.decode()


@pytest.mark.django_db(databases=["default", "other"])
def test_a_receipt_leads_to_those_of_its_object_and_of_its_failure(handler, post):
    handler("stripe", "x", name="h")(lambda event: 1 / 0)
    for number in range(2):
        post("stripe", {"id": f"evt_{number}", "type": "x", "data": {"object": {"id": "in & out"}}})
    viewer = person("vera", "view_webhookreceipt")
    receipt = WebhookReceipt.objects.first()
    links = dict(viewer.get(page_of(receipt)).context["related"])
    assert set(links) == {"Receipts of the same object", "Receipts that fail in the same way"}
    for url in links.values():
        assert url.startswith(LIST)
        assert len(viewer.get(url).context["cl"].result_list) == 2
    assert viewer.get(page_of(make())).context["related"] == []

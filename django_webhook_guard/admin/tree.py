"""Parsed content as a tree that can be folded, without a script."""

from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import ngettext

from django_webhook_guard.text import shortened

#: How many values a tree shows, how deep it goes, and how many levels are open at first.
NODES, DEPTH, OPEN = 2_000, 20, 2
#: Characters of a key and of a value.
KEY, VALUE = 200, 2_000


def tree(data: Any) -> SafeString:
    """Return content as nested lists; what is in it stays text. What is too much or too deep ends in an ellipsis."""
    return _node(data, 0, _Budget())


class _Budget:
    """How many values may still be shown."""

    def __init__(self) -> None:
        self.left = NODES

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _node(data: Any, depth: int, budget: _Budget) -> SafeString:
    if not isinstance(data, dict | list):
        return _leaf(data)
    if not data:
        return format_html("<code>{}</code>", "{}" if isinstance(data, dict) else "[]")
    if depth >= DEPTH:
        return format_html("<code>{}</code>", "…")
    return format_html(
        "<details{}><summary>{}</summary><ul>{}</ul></details>",
        " open" if depth < OPEN else "",
        _size(data),
        format_html_join("", "<li>{} {}</li>", _children(data, depth, budget)),
    )


def _size(data: dict[Any, Any] | list[Any]) -> str:
    count = len(data)
    if isinstance(data, dict):
        return ngettext("%(count)d field", "%(count)d fields", count) % {"count": count}
    return ngettext("%(count)d item", "%(count)d items", count) % {"count": count}


def _children(data: dict[Any, Any] | list[Any], depth: int, budget: _Budget) -> Iterator[tuple[Any, Any]]:
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs:
        if not budget.take():
            yield "", "…"
            return
        yield format_html("<bdi><strong>{}</strong></bdi>", shortened(str(key), KEY)), _node(value, depth + 1, budget)


def _leaf(value: Any) -> SafeString:
    if isinstance(value, str):
        return format_html('<bdi class="webhook-text-value">{}</bdi>', shortened(value, VALUE))
    words = {None: "null", True: "true", False: "false"}
    known = value is None or isinstance(value, bool)
    return format_html("<code>{}</code>", words[value] if known else shortened(str(value), VALUE))

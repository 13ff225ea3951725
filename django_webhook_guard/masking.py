"""Personal values, taken out of what is shown or handed on."""

from collections.abc import Iterable
from typing import Any

from django_webhook_guard.locators import Body, Either, Form, Locator, parts

#: What stands where a personal value was.
MASK = "•••"
#: The step of a path that is every item of a list, and every value of an object.
EVERY = "*"


def masked(data: Any, paths: Iterable[Body]) -> Any:
    """Return parsed content in which the values at some paths are replaced by ``MASK``.

    The content itself is not changed; what no path leads to is shared with it.

    Args:
        data: The content, as JSON gives it, or form fields.
        paths: Where the values are. The step ``"*"`` is every item of a list and every value of an object; an empty
            path is everything. A path that leads nowhere masks nothing.
    """
    for path in paths:
        data = _masked(data, path.path)
    return data


def _masked(value: Any, steps: tuple[str | int, ...]) -> Any:
    if not steps:
        return MASK
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        return {key: _masked(each, rest) if step == EVERY or key == str(step) else each for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, rest) if step in (EVERY, place) else each for place, each in enumerate(value)]
    return value


def is_masked(locator: Locator | None, paths: Iterable[Body]) -> bool:
    """Tell whether what a locator finds, or a part of it, may be a value that the paths mask.

    Args:
        locator: Where an id, a type or an object is; None: nowhere.
        paths: Where personal values are.
    """
    if locator is None:
        return False
    masks = [each.path for each in paths]
    return any(_leads_into(path, mask) for part in parts(locator) for path in _body_paths(part) for mask in masks)


def _body_paths(locator: Any) -> list[tuple[str | int, ...]]:
    if isinstance(locator, Either):
        return [path for choice in locator.choices for path in _body_paths(choice)]
    if isinstance(locator, Form):
        return [(locator.name,)]
    return [locator.path] if isinstance(locator, Body) else []


def _leads_into(path: tuple[str | int, ...], mask: tuple[str | int, ...]) -> bool:
    return len(mask) <= len(path) and all(
        wanted == EVERY or str(wanted) == str(step) for wanted, step in zip(mask, path, strict=False)
    )

"""Take personal values out of parsed content."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from django_webhook_guard.locators import Body

MASK = "•••"
#: The step of a path that stands for every item of a list and every value of an object.
EVERY = "*"


def masked(data: Any, paths: Iterable[Body]) -> Any:
    """Return a copy of parsed content in which the values at some paths cannot be read.

    Args:
        data: The parsed body.
        paths: Where personal values are; an empty path is all of it. What is not there is no error.
    """
    copy = deepcopy(data)
    for path in paths:
        if not path.path:
            return MASK
        _mask(copy, path.path)
    return copy


def _mask(data: Any, steps: tuple[str | int, ...]) -> None:
    first, rest = steps[0], steps[1:]
    for key in _keys(data, first):
        if rest:
            _mask(data[key], rest)
        else:
            data[key] = MASK


def _keys(data: Any, step: str | int) -> list[Any]:
    """Return the keys or positions that a step means."""
    if isinstance(data, dict):
        if step == EVERY:
            return list(data)
        return [str(step)] if str(step) in data else []
    if isinstance(data, list):
        if step == EVERY:
            return list(range(len(data)))
        return [step] if isinstance(step, int) and -1 < step < len(data) else []
    return []

"""Where in a delivery a value is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent


class _Missing:
    """The one value that says a locator found nothing; JSON's null is a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = _Missing()
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Reading:
    """What locators read from: a verified delivery and its parsed body."""

    delivery: Delivery = field(repr=False)
    data: Any = field(repr=False)
    form: Mapping[str, str | list[str]] = field(default_factory=dict, repr=False)

    @cached_property
    def query(self) -> Mapping[str, list[str]]:
        try:
            return parse_qs(self.delivery.query, keep_blank_values=True, errors="strict", max_num_fields=1000)
        except ValueError:  # UnicodeDecodeError among them
            raise MalformedContent("the query is not UTF-8, or has too many fields") from None


class Single(Protocol):
    """A locator that finds one value."""

    @property
    def optional(self) -> bool: ...

    @property
    def part(self) -> str:
        """The part of a delivery that it reads: ``body``, ``query`` or ``header:<name>``."""

    def find(self, reading: Reading) -> Any:
        """Return the value, or ``MISSING``."""


Locator: TypeAlias = Single | str | tuple[Single | str, ...]


@dataclass(frozen=True, init=False)
class Body:
    """A value inside the JSON body.

    Args:
        path: Keys and list positions from the root: ``Body("charges", 0, "id")``.
        optional: Whether it may be missing.
    """

    path: tuple[str | int, ...]
    optional: bool = False

    def __init__(self, *path: str | int, optional: bool = False) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "optional", optional)

    @property
    def part(self) -> str:
        return "body"

    def find(self, reading: Reading) -> Any:
        return self.find_in(reading.data)

    def find_in(self, data: Any) -> Any:
        """Return the value inside parsed content, or ``MISSING``."""
        value = data
        for step in self.path:
            if isinstance(value, dict) and str(step) in value:
                value = value[str(step)]
            elif isinstance(value, list) and isinstance(step, int) and -1 < step < len(value):
                value = value[step]
            else:
                return MISSING
        return value


@dataclass(frozen=True)
class Header:
    """The value of a header."""

    name: str
    optional: bool = field(default=False, kw_only=True)

    @property
    def part(self) -> str:
        return f"header:{self.name.lower()}"

    def find(self, reading: Reading) -> Any:
        value = reading.delivery.header(self.name)
        return MISSING if value is None else value.strip(" \t")


@dataclass(frozen=True)
class Query:
    """The value of a query parameter of the URL; given twice it is malformed."""

    name: str
    optional: bool = field(default=False, kw_only=True)

    @property
    def part(self) -> str:
        return "query"

    def find(self, reading: Reading) -> Any:
        return _only(self.name, reading.query.get(self.name, []))


@dataclass(frozen=True)
class Form:
    """The value of a form field of the body; given twice it is malformed."""

    name: str
    optional: bool = field(default=False, kw_only=True)

    @property
    def part(self) -> str:
        return "body"

    def find(self, reading: Reading) -> Any:
        values = reading.form.get(self.name, [])
        return _only(self.name, [values] if isinstance(values, str) else values)


@dataclass(frozen=True, init=False)
class Either:
    """The first of several locators that finds something; covered only if every one of them is."""

    choices: tuple["Single", ...]
    optional: bool = False

    def __init__(self, *choices: "Single | str", optional: bool = False) -> None:
        object.__setattr__(self, "choices", tuple(single(choice) for choice in choices))
        object.__setattr__(self, "optional", optional)

    @property
    def part(self) -> str:
        return "either"

    def find(self, reading: Reading) -> Any:
        for choice in self.choices:
            value = choice.find(reading)
            if value is not MISSING:
                return value
        return MISSING


def _only(name: str, values: list[str]) -> Any:
    if len(values) > 1:
        raise MalformedContent(f"{name} is given more than once")
    return values[0] if values else MISSING


def single(locator: "Single | str") -> "Single":
    """Turn a dotted body path into a locator: ``"charges.0.id"`` is ``Body("charges", 0, "id")``."""
    return _dotted(locator) if isinstance(locator, str) else locator


@lru_cache(maxsize=256)
def _dotted(path: str) -> Body:
    return Body(*(int(step) if _INDEX.fullmatch(step) else step for step in path.split(".")))


def parts(locator: Locator) -> tuple["Single", ...]:
    """Return the single locators of a locator; a tuple is one value of all its parts."""
    if isinstance(locator, tuple):
        return tuple(single(each) for each in locator)
    return (single(locator),)


def is_covered(locator: "Single", covers: frozenset[str], covered_headers: frozenset[str]) -> bool:
    """Tell whether a proof covers what the locator reads.

    Args:
        locator: A single locator.
        covers: The parts of a delivery that the proof covers.
        covered_headers: The names, in lower case, of the headers that it covers.
    """
    if isinstance(locator, Either):
        return all(is_covered(choice, covers, covered_headers) for choice in locator.choices)
    kind, _, name = locator.part.partition(":")
    return name in covered_headers if kind == "header" else kind in covers

"""Text that strangers chose, made fit to be looked at and to be kept."""

from typing import Any


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text in which every character can be seen.

    Control characters, direction overrides, zero-width characters and lone surrogates become escapes such as
    ``\\u202e``, so that a text neither breaks a page or a log nor reads as another one.

    Args:
        text: The text.
        lines: Whether line feeds and tabs stay.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(each if each.isprintable() or each in kept else _escape(each) for each in text)


def shortened(text: str, limit: int) -> str:
    """Return a visible text of at most ``limit`` characters; a cut one ends with an ellipsis."""
    text = visible(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def storable(value: Any, limit: int) -> str:
    """Return text that every database takes: no NUL, no lone surrogate, cut at a limit in characters."""
    if value is None:
        return ""
    text = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()

"""Text that strangers chose, made fit to be looked at."""


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


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()

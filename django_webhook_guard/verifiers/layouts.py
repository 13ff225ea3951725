"""What a signature header looks like and what is signed: two small template languages, read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import Formatter

PLACEHOLDERS = frozenset({"timestamp", "id", "nonce", "method", "url", "path", "query", "body", "body_sha256"})

#: Text, and the part that stands behind it; the last may have none.
Piece = tuple[bytes, str | None]


@dataclass(frozen=True)
class Layout:
    """How a signature header is laid out: pieces of ``key=value``, or one value behind a prefix."""

    prefix: str = ""
    separator: str = ""
    signature: str = ""
    timestamp: str = ""


def read_layout(text: str) -> Layout:
    """Read ``sha256={signature}``, or pairs such as ``t={timestamp},v1={signature}``.

    Raises:
        ValueError: It is neither.
    """
    pieces = _pieces("layout", text)
    names = [name for _, name in pieces if name is not None]
    if sorted(names) not in (["signature"], ["signature", "timestamp"]):
        raise ValueError(f"layout {text!r}: give {{signature}} once, and {{timestamp}} at most once.")
    if len(pieces) > len(names):
        raise ValueError(f"layout {text!r}: nothing may follow {{{names[-1]}}}.")
    if len(names) == 1:
        return Layout(prefix=pieces[0][0])
    return _pairs(text, pieces)


def _pairs(text: str, pieces: Sequence[tuple[str, str | None]]) -> Layout:
    second = pieces[1][0]
    keys = {}
    for (_, name), key in zip(pieces, (pieces[0][0], second[1:]), strict=True):
        if not key.endswith("=") or not name:
            raise ValueError(f"layout {text!r}: write pairs like t={{timestamp}},v1={{signature}}.")
        keys[name] = key[:-1]
    return Layout(separator=second[:1], signature=keys["signature"], timestamp=keys["timestamp"])


def read_template(text: str) -> tuple[Piece, ...]:
    """Read what is signed, such as ``{timestamp}.{body}``.

    Raises:
        ValueError: A part is not known, or its end cannot be told.
    """
    pieces = _pieces("signed", text)
    unknown = {name for _, name in pieces if name is not None} - PLACEHOLDERS
    if unknown:
        raise ValueError(f"signed {text!r}: unknown part {sorted(unknown)[0]!r}.")
    for (_, name), (end, following) in pairwise(pieces):
        if not end and (name in ("id", "nonce") or (name == "timestamp" and following in ("id", "nonce"))):
            # One signed text would fit two ids: "a1" before "7" and "a" before "17".
            raise ValueError(f"signed {text!r}: nothing tells where {{{name}}} ends and {{{following}}} begins.")
    return tuple((literal.encode(), name) for literal, name in pieces)


def _pieces(option: str, text: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{option} {text!r}: {error}.") from None
    if any(conversion or form for _, _, form, conversion in parsed):
        raise ValueError(f"{option} {text!r}: a part is named, never converted or formatted.")
    pieces: list[tuple[str, str | None]] = []
    literal = ""
    for text_before, name, _, _ in parsed:
        literal += text_before  # an escaped brace ends a piece, but no part
        if name is not None:
            pieces.append((literal, name))
            literal = ""
    return [*pieces, (literal, None)] if literal else pieces

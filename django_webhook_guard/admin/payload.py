"""A body as a page may show it: a bounded part, as text, indented where it is JSON."""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import BinaryField
from django.db.models.functions import Substr

from django_webhook_guard.contents import Content
from django_webhook_guard.masking import MASK
from django_webhook_guard.models import WebhookBatch, WebhookReceipt
from django_webhook_guard.text import visible

#: How much of a body is read from the database for a page, in bytes.
SHOWN = 65_536
#: How long its indented form may become, in characters, and how deep it is indented.
INDENTED = 4 * SHOWN
DEEPEST = 20

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\(?:.|\Z))*(?:"|\Z))|([\[\]{}:,])|([^\s\[\]{}:,"]+))', re.DOTALL)
_WORD = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The part of a body that a page shows.

    Args:
        text: The text; everything in it can be seen.
        cut: Whether the body goes on.
    """

    text: str
    cut: bool


def shown(receipt: WebhookReceipt) -> Shown | None:
    """Read the start of a receipt's body, of an item its batch's, and nothing else; None where it has expired."""
    model, number = (WebhookReceipt, receipt.pk) if receipt.batch_id is None else (WebhookBatch, receipt.batch_id)
    rows = model._base_manager.using(receipt._state.db).filter(pk=number, body__isnull=False)
    found = rows.values_list(Substr("body", 1, SHOWN, output_field=BinaryField()))
    for (start,) in found:
        return present(bytes(start or b""), cut=receipt.body_size > SHOWN)  # of an empty one SQLite makes NULL
    return None


def parsed(content: Content) -> Shown | None:
    """Return parsed content as a page shows it, without what is hidden in it; None where it has expired.

    Of what cannot be read nobody can say what stands where: nothing of it is shown.

    Args:
        content: The content.
    """
    if content.state == "expired":
        return None
    if content.state not in ("shown", "masked"):
        return Shown(text=MASK, cut=True)
    text = json.dumps(content.data, ensure_ascii=False)
    return present(text.encode("utf-8", "backslashreplace"), cut=False)


def present(start: bytes, *, cut: bool) -> Shown:
    """Make text of the start of a body.

    JSON is indented token by token, never parsed and written anew: numbers, escapes and keys stay as they came,
    and the start of a large body can be shown as well.

    Args:
        start: The bytes.
        cut: Whether the body goes on after them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(start, final=not cut)
    pretty = _indented(text) if text.lstrip()[:1] in ("{", "[") else None
    written = visible(text if pretty is None else pretty, lines=True)
    return Shown(text=written[:INDENTED], cut=cut or len(written) > INDENTED)


def _indented(text: str) -> str | None:
    """Indent JSON, or the start of it; None where it is something else."""
    pieces: list[str] = []
    length = depth = 0
    before = ""
    for token in _tokens(text):
        if token is None:
            return None
        depth -= token in ("]", "}")
        piece = _space(before, token, depth) + token
        depth += token in ("[", "{")
        pieces.append(piece)
        length += len(piece)
        if length > INDENTED:
            break
        before = token
    return "".join(pieces)


def _tokens(text: str) -> Iterator[str | None]:
    """Yield the tokens of a JSON text; None where it is none. The last one may be a part of a word."""
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            yield None
            return
        at = match.end()
        word = match[3]
        if word is not None and not _WORD.fullmatch(word) and at < end:
            yield None
            return
        yield match[0].lstrip()


def _space(before: str, token: str, depth: int) -> str:
    """Return what stands between two tokens."""
    if before == ":":
        return " "
    opened, closes = before in ("[", "{"), token in ("]", "}")
    if not before or token in (":", ",") or (opened and closes):
        return ""
    if opened or closes or before == ",":
        return "\n" + "  " * min(max(depth, 0), DEEPEST)
    return " "

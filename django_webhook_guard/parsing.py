"""Strict readers of a verified body: the same answer on every Python, and no value that two readers see differently."""

import json
import re
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from django_webhook_guard.exceptions import MalformedContent

#: Own limits, because those of the interpreter differ from version to version.
MAX_DEPTH = 100
MAX_DIGITS = 1000
MAX_FIELDS = 1000

_BOM = b"\xef\xbb\xbf"
#: A string (also one that never ends), or one bracket; possessive, so the scan is linear and keeps no stack.
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
#: What every encoder escapes. JSON and multipart bodies hold it, so that a content type, which is hardly ever
#: signed, cannot turn one of them into another event.
_NOT_URLENCODED = re.compile(rb'[\x00-\x20"\x7f]')
#: The first bracket of a JSON text, behind mark and blanks.
_BRACKET = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+[\[{]")
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"\\]{1,70})"|([^\s;"\\]{1,70}))\s*(?=;|$)', re.IGNORECASE)
_FIELD = re.compile(r'form-data\s*;\s*name=(?:"([^"\\]*)"|([^\s;"\\]+))\s*', re.IGNORECASE)
#: As much of a Content-Type as a receipt keeps, so that a later run reads the same form.
_MAX_CONTENT_TYPE = 1024

FormData = dict[str, str | list[str]]


def parse_json(body: bytes) -> Any:
    """Read JSON as RFC 8259 and RFC 7493 (I-JSON) have it, and nothing that is not in them.

    UTF-8 with or without byte order mark. NUL and lone surrogates written as escapes survive.

    Args:
        body: The raw bytes.

    Raises:
        MalformedContent: Not UTF-8, not JSON, NaN or Infinity (also by overflow), a key given twice,
            deeper than ``MAX_DEPTH`` or a number longer than ``MAX_DIGITS``.
    """
    _check_depth(body)
    try:
        decoder = _CAREFUL if _LONG_NUMBER.search(body) else _DECODER
        return decoder.decode(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise MalformedContent("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedContent(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise MalformedContent("the body is nested too deeply") from None


def parse_form(body: bytes, content_type: str) -> FormData:
    """Read a form body, urlencoded or multipart; a field given several times becomes a list.

    Args:
        body: The raw bytes.
        content_type: The header's value, which tells the two kinds apart and names the boundary.

    Raises:
        MalformedContent: Not UTF-8, too many fields, a file, or no boundary.
    """
    multipart = media_type(content_type) == "multipart/form-data"
    pairs = _multipart(body, content_type) if multipart else _urlencoded(body)
    if len(pairs) > MAX_FIELDS:
        raise MalformedContent(f"more than {MAX_FIELDS} form fields")
    data: FormData = {}
    for name, value in pairs:
        known = data.get(name)
        if known is None:
            data[name] = value
        elif isinstance(known, list):
            known.append(value)
        else:
            data[name] = [known, value]
    return data


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def holds_json(body: bytes) -> bool:
    """Tell a JSON object or array from a form, by the body alone.

    A content type is hardly ever signed, so it must not choose between two readings of one body. Neither kind of
    form begins with a bracket: encoders escape it, and multipart begins with its boundary.

    Args:
        body: The raw bytes.
    """
    return _BRACKET.match(body) is not None


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedContent(f"nested deeper than {MAX_DEPTH} levels")
        elif token in (b"]", b"}"):
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise MalformedContent("a key is given twice in one object")
    return data


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise MalformedContent(f"a number of more than {MAX_DIGITS} digits")
    return int(text)


def _decimal(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise MalformedContent(f"a number of more than {MAX_DIGITS} digits")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise MalformedContent("a number too large for a double")
    return number


def _constant(text: str) -> NoReturn:
    raise MalformedContent(f"{text} is not JSON")


#: Whole numbers are counted only where there may be a long one: asking for each of them costs as much as the rest.
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % MAX_DIGITS)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_decimal, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
)


def _urlencoded(body: bytes) -> list[tuple[str, str]]:
    body = body.removeprefix(_BOM)
    if _NOT_URLENCODED.search(body):
        raise MalformedContent("the form is not urlencoded")
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:  # UnicodeDecodeError among them
        raise MalformedContent("the form is not urlencoded UTF-8, or has too many fields") from None


def _multipart(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Read a multipart form (RFC 7578) strictly: nothing before the first part, nothing after the last."""
    boundaries = _BOUNDARY.findall(content_type)
    if len(boundaries) != 1 or not content_type.isascii() or len(content_type) > _MAX_CONTENT_TYPE:
        raise MalformedContent("Content-Type does not name one boundary")
    delimiter = b"\r\n--" + "".join(boundaries[0]).encode()
    before, *sections = (b"\r\n" + body).split(delimiter, MAX_FIELDS + 2)
    if before or len(sections) < 2 or sections.pop().rstrip(b" \t\r\n") != b"--":
        raise MalformedContent("the multipart form cannot be read")
    return [_field(section) for section in sections]


def _field(section: bytes) -> tuple[str, str]:
    head, found, value = section.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if first.strip(b" \t") or not found:
        raise MalformedContent("the multipart form cannot be read")
    try:
        pairs = [line.decode().partition(":") for line in lines]
        headers = {name.lower(): text.strip() for name, _, text in pairs}
        disposition = _FIELD.fullmatch(headers.get("content-disposition", ""))
        plain = headers.get("content-transfer-encoding", "8bit").lower() in ("7bit", "8bit", "binary")
        if disposition is None or not plain or len(headers) != len(pairs):
            raise MalformedContent("a part of the multipart form is no plain field")
        return disposition[1] or disposition[2] or "", value.decode()
    except UnicodeDecodeError:
        raise MalformedContent("the multipart form is not UTF-8") from None

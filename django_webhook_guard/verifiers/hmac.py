"""HMAC schemes, declared instead of programmed."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache
from hashlib import new as new_hash
from hmac import compare_digest
from itertools import pairwise
from string import Formatter
from typing import Literal

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import SignatureMalformed, SignatureMismatch, SignatureMissing
from django_webhook_guard.secrets import DECODINGS, Secret
from django_webhook_guard.verifiers.base import Verification

Encoding = Literal["hex", "base64"]
StampFormat = Literal["s", "ms", "rfc3339", "rfc1123"]

#: A header of a sender that rotates keys holds two or three signatures; the cap bounds the work of a forger's.
MAX_SIGNATURES = 16
#: Longer than any header of a known scheme with MAX_SIGNATURES signatures.
MAX_HEADER = 4096
_PLACEHOLDERS = frozenset({"timestamp", "id", "nonce", "method", "url", "path", "query", "body", "body_sha256"})
_UNIX = re.compile(r"[0-9]{1,15}")
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_RFC1123 = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|[+-](?!0000)[0-9]{4})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Layout:
    """How a signature header is laid out: pieces of ``key=value``, or one value behind a prefix."""

    prefix: str
    separator: str
    signature: str
    timestamp: str


@lru_cache(maxsize=128)
def _layout(text: str) -> _Layout:
    pieces = [(literal, name) for literal, name, _, _ in Formatter().parse(text)]
    names = [name for _, name in pieces if name]
    if sorted(names) not in (["signature"], ["signature", "timestamp"]):
        raise ValueError(f"layout {text!r}: give {{signature}} once, and {{timestamp}} at most once.")
    if len(names) == 1:
        literal, _ = pieces[0]
        if len(pieces) > 1:
            raise ValueError(f"layout {text!r}: nothing may follow {{signature}}.")
        return _Layout(prefix=literal, separator="", signature="", timestamp="")
    if len(pieces) > 2:
        raise ValueError(f"layout {text!r}: nothing may follow the second part.")
    second = pieces[1][0]
    separator, keys = second[:1], {}
    for (_, name), key in zip(pieces, (pieces[0][0], second[1:]), strict=False):
        if not key.endswith("=") or not name:
            raise ValueError(f"layout {text!r}: write pairs like t={{timestamp}},v1={{signature}}.")
        keys[name] = key[:-1]
    return _Layout(prefix="", separator=separator, signature=keys["signature"], timestamp=keys["timestamp"])


@lru_cache(maxsize=128)
def _template(text: str) -> tuple[tuple[bytes, str | None], ...]:
    pieces = tuple((literal.encode(), name) for literal, name, _, _ in Formatter().parse(text))
    unknown = {name for _, name in pieces if name is not None} - _PLACEHOLDERS
    if unknown:
        raise ValueError(f"signed template {text!r}: unknown part {sorted(unknown)[0]!r}.")
    return pieces


@dataclass(frozen=True, kw_only=True)
class HMACVerifier:
    """Verify an HMAC over a template of the delivery's parts.

    Args:
        header: The header that holds the signature.
        layout: What the header looks like: ``sha256={signature}`` (one value behind a prefix), or pairs
            such as ``t={timestamp},v1={signature}``, where a signature may come several times and other
            keys are left alone.
        signed: What is signed: text with ``{timestamp}``, ``{id}``, ``{nonce}``, ``{method}``, ``{url}``,
            ``{path}``, ``{query}``, ``{body}`` and ``{body_sha256}`` (lower-case hex).
        algorithm: A hash of hashlib; never taken from the delivery.
        encoding: ``hex`` (of any case) or ``base64``.
        timestamp_header: The header that holds the stamp, where the layout does not.
        stamp: ``s`` or ``ms`` (since 1970), ``rfc3339`` or ``rfc1123``.
        id_header: The header behind ``{id}``.
        nonce_header: The header behind ``{nonce}``.
        nonce_pattern: What a nonce looks like; it must keep the join of the template unambiguous.
        decoding: How a secret's text becomes a key: ``raw``, ``hex``, ``base64`` or ``whsec``.

    Raises:
        ValueError: A layout, template, algorithm or decoding that cannot work.
    """

    header: str
    signed: str
    layout: str = "{signature}"
    algorithm: str = "sha256"
    encoding: Encoding = "hex"
    timestamp_header: str | None = None
    stamp: StampFormat = "s"
    id_header: str | None = None
    nonce_header: str | None = None
    nonce_pattern: str = r"[A-Za-z0-9_-]{1,128}"
    decoding: str = "raw"

    def __post_init__(self) -> None:
        layout = _layout(self.layout)
        named = {name for _, name in _template(self.signed) if name is not None}
        if new_hash(self.algorithm).digest_size < 16:
            raise ValueError(f"algorithm {self.algorithm!r}: a hash with a digest of 16 bytes or more.")
        try:
            re.compile(self.nonce_pattern)
        except re.error as error:
            raise ValueError(f"nonce_pattern {self.nonce_pattern!r}: {error}.") from None
        if self.decoding not in DECODINGS:
            raise ValueError(f"decoding {self.decoding!r}: one of {', '.join(DECODINGS)}.")
        if self.encoding not in ("hex", "base64"):
            raise ValueError(f"encoding {self.encoding!r}: hex or base64.")
        if self.stamp not in ("s", "ms", "rfc3339", "rfc1123"):
            raise ValueError(f"stamp {self.stamp!r}: s, ms, rfc3339 or rfc1123.")
        for part, known in (
            ("timestamp", layout.timestamp or self.timestamp_header),
            ("id", self.id_header),
            ("nonce", self.nonce_header),
        ):
            if part in named and not known:
                raise ValueError(f"signed template {self.signed!r}: nothing says where {{{part}}} comes from.")

    @cached_property
    def covers(self) -> frozenset[str]:
        named = {name for _, name in _template(self.signed) if name is not None}
        if "url" in named:
            named |= {"path", "query"}
        if "body_sha256" in named:
            named |= {"body"}
        return frozenset(named)

    @cached_property
    def covered_headers(self) -> frozenset[str]:
        named = (
            ("timestamp", self.timestamp_header),
            ("id", self.id_header),
            ("nonce", self.nonce_header),
        )
        return frozenset(name.lower() for part, name in named if name and part in self.covers)

    def admit(self, delivery: Delivery) -> None:
        """Refuse a delivery whose headers cannot hold a proof.

        Raises:
            SignatureMissing: A header is missing.
            SignatureMalformed: A header cannot be read.
        """
        self._read(delivery)

    def verify(self, delivery: Delivery, secrets: Iterable[Secret]) -> Verification:
        """Prove the delivery with the first secret that makes one of its signatures.

        Args:
            delivery: The delivery, with its body.
            secrets: The live secrets.

        Raises:
            SignatureMissing: A header is missing.
            SignatureMalformed: A header cannot be read.
            SignatureMismatch: No secret makes any of the signatures.
        """
        signatures, parts = self._read(delivery)
        signed_at = self._signed_at(parts.get("timestamp"))
        content = self._content(delivery, parts)
        for secret in secrets:
            if self._made_by(secret, content, signatures):
                return Verification(content=content, secret=secret, signed_at=signed_at, nonce=parts.get("nonce"))
        raise SignatureMismatch

    def _made_by(self, secret: Secret, content: bytes, signatures: Iterable[bytes]) -> bool:
        # A frame of its own, so that no error carries the expected digest along.
        expected = secret.mac(content, algorithm=self.algorithm, decoding=self.decoding)
        return any(compare_digest(expected, signature) for signature in signatures)

    def _read(self, delivery: Delivery) -> tuple[list[bytes], Mapping[str, str]]:
        """Return the signatures as bytes and the proof's other parts as text."""
        layout = _layout(self.layout)
        header = self._header(delivery, self.header)
        parts: dict[str, str] = {}
        if layout.separator:
            candidates, stamp = self._pairs(header, layout)
            if "timestamp" in self.covers:
                parts["timestamp"] = stamp
        elif header.startswith(layout.prefix):
            candidates = [header[len(layout.prefix) :]]
        else:
            raise SignatureMalformed(f"{self.header}: prefix missing, {layout.prefix!r} expected")
        for part, name in (
            ("timestamp", self.timestamp_header),
            ("id", self.id_header),
            ("nonce", self.nonce_header),
        ):
            if name and part in self.covers:
                parts[part] = self._header(delivery, name)
        if "nonce" in parts and not re.fullmatch(self.nonce_pattern, parts["nonce"]):
            raise SignatureMalformed(f"{self.nonce_header}: not of the form {self.nonce_pattern}")
        for part, end in self._ends.items():
            if end in parts[part]:
                raise SignatureMalformed(f"{{{part}}} holds {end!r}, which ends it in the signed text")
        signatures = [found for found in map(self._decode, candidates) if found is not None]
        if not signatures:
            raise SignatureMalformed(f"{self.header}: no signature in {self.encoding} of the right length")
        return signatures, parts

    @staticmethod
    def _header(delivery: Delivery, name: str) -> str:
        value = delivery.header(name)
        if value is None or not value.strip(" \t"):
            raise SignatureMissing(f"{name} is missing")
        if len(value) > MAX_HEADER:
            raise SignatureMalformed(f"{name}: longer than {MAX_HEADER} characters")
        try:
            value.encode("latin-1")  # what a server decodes headers with; anything else did not come over HTTP
        except UnicodeEncodeError:
            raise SignatureMalformed(f"{name}: not a header value") from None
        return value.strip(" \t")

    def _pairs(self, header: str, layout: _Layout) -> tuple[list[str], str]:
        signatures, stamps = [], []
        for item in header.split(layout.separator):
            key, found, value = item.partition("=")
            if not found:
                raise SignatureMalformed(f"{self.header}: an item without '='")
            if key == layout.signature:
                signatures.append(value)
            elif key == layout.timestamp:
                stamps.append(value)
        if not signatures:
            raise SignatureMissing(f"{self.header}: no {layout.signature}=")
        if len(stamps) != 1:
            raise SignatureMalformed(f"{self.header}: {layout.timestamp}= must come exactly once")
        if len(signatures) > MAX_SIGNATURES:
            raise SignatureMalformed(f"{self.header}: more than {MAX_SIGNATURES} signatures")
        return signatures, stamps[0]

    @cached_property
    def _ends(self) -> Mapping[str, str]:
        """The text behind {id} and {nonce}: inside of them it would move the border to the next part."""
        pieces = _template(self.signed)
        following = pairwise(pieces)
        return {name: end.decode() for (_, name), (end, _) in following if name in ("id", "nonce") and end}

    @cached_property
    def _digest_size(self) -> int:
        return new_hash(self.algorithm).digest_size

    def _decode(self, text: str) -> bytes | None:
        try:
            if self.encoding == "hex":
                # fromhex takes white space; the length of the text tells it from pure hex.
                digest = bytes.fromhex(text) if len(text) == 2 * self._digest_size else b""
            else:
                digest = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return None
        return digest if len(digest) == self._digest_size else None

    def _signed_at(self, text: str | None) -> datetime | None:
        if text is None:
            return None
        try:
            moment = _moment(text, self.stamp)
        except (ValueError, OverflowError, TypeError):
            moment = None
        if moment is None or moment < _EPOCH:
            raise SignatureMalformed(f"time stamp of {len(text)} characters is not of the form {self.stamp!r}")
        return moment

    def _content(self, delivery: Delivery, parts: Mapping[str, str]) -> bytes:
        content = []
        for literal, name in _template(self.signed):
            content.append(literal)
            if name == "body":
                content.append(delivery.body)
            elif name == "body_sha256":
                content.append(delivery.body_digest.hex().encode())
            elif name is not None and name in parts:
                content.append(parts[name].encode("latin-1"))
            elif name is not None:
                content.append(str(getattr(delivery, name)).encode("utf-8", "surrogatepass"))
        return b"".join(content)


def _moment(text: str, stamp: StampFormat) -> datetime | None:
    """Read a stamp strictly; None where it is not of the form. Naive times are refused, never local."""
    if stamp in ("s", "ms"):
        if not _UNIX.fullmatch(text):
            return None
        seconds, thousandths = (int(text), 0) if stamp == "s" else divmod(int(text), 1000)
        try:
            return _EPOCH + timedelta(seconds=seconds, milliseconds=thousandths)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)
    if stamp == "rfc1123":
        return parsedate_to_datetime(text).astimezone(UTC) if _RFC1123.fullmatch(text) else None
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    microseconds = (fraction or "")[:7]
    moment = datetime.fromisoformat(f"{day}T{clock}{microseconds}{'+00:00' if zone in 'Zz' else zone}")
    return moment.astimezone(UTC)

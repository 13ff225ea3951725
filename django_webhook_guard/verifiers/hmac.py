"""HMAC schemes, declared instead of programmed."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import new as new_hash
from hmac import compare_digest
from itertools import pairwise
from typing import Literal

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import SignatureMalformed, SignatureMismatch, SignatureMissing
from django_webhook_guard.secrets import DECODINGS, Secret
from django_webhook_guard.verifiers.base import Verification, check_header_name, proof_header
from django_webhook_guard.verifiers.layouts import Layout, Piece, read_layout, read_template
from django_webhook_guard.verifiers.stamps import STAMP_FORMATS, StampFormat, read_stamp, write_stamp

Encoding = Literal["hex", "base64"]

#: A header of a sender that rotates keys holds two or three signatures; the cap bounds the work of a forger's.
MAX_SIGNATURES = 16
#: What may stand between the signatures of a list: nothing that a signature itself is made of.
_SEPARATORS = frozenset(" ,;|")
#: Where a delivery remembers what a verifier has read in its headers.
_READ = "_read_by_verifier"


@dataclass(frozen=True)
class _Names:
    """The headers of one family: where the signature is, and the other signed parts."""

    signature: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class HMACVerifier:
    """Verify an HMAC over a template of the delivery's parts.

    Args:
        header: The header that holds the signature.
        layout: What the header looks like: ``sha256={signature}`` (one value behind a prefix), or pairs
            such as ``t={timestamp},v1={signature}``, where a signature may come several times and other
            keys are left alone.
        separator: The character between the entries of a header that holds a list of signatures. Each looks as
            ``layout`` says; entries that do not, such as those of another version, are left alone.
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
        families: Prefixes under which the same headers come; the names above have the first. A delivery with
            headers of two families tells two stories, and is refused.

    Raises:
        ValueError: A layout, template, algorithm or decoding that cannot work.
    """

    header: str
    signed: str
    layout: str = "{signature}"
    separator: str | None = None
    algorithm: str = "sha256"
    encoding: Encoding = "hex"
    timestamp_header: str | None = None
    stamp: StampFormat = "s"
    id_header: str | None = None
    nonce_header: str | None = None
    nonce_pattern: str = r"[A-Za-z0-9_-]{1,128}"
    decoding: str = "raw"
    families: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_headers()
        self._check_signature()
        try:
            re.compile(self.nonce_pattern)
        except re.error as error:
            raise ValueError(f"nonce_pattern {self.nonce_pattern!r}: {error}.") from None
        if self.decoding not in DECODINGS:
            raise ValueError(f"decoding {self.decoding!r}: one of {', '.join(DECODINGS)}.")
        if self.stamp not in STAMP_FORMATS:
            raise ValueError(f"stamp {self.stamp!r}: one of {', '.join(STAMP_FORMATS)}.")
        for part, known in (
            ("timestamp", self._layout.timestamp or self.timestamp_header),
            ("id", self.id_header),
            ("nonce", self.nonce_header),
        ):
            if part in self.covers and not known:
                raise ValueError(f"signed {self.signed!r}: nothing says where {{{part}}} comes from.")

    def _check_headers(self) -> None:
        for option in ("header", "timestamp_header", "id_header", "nonce_header"):
            name = getattr(self, option)
            if name is None:
                continue
            check_header_name(option, name)
            if self.families and not name.lower().startswith(self.families[0].lower()):
                raise ValueError(f"{option} {name!r}: does not begin with {self.families[0]!r}.")
        for one in self.families:
            if sum(each.lower().startswith(one.lower()) for each in self.families) > 1:
                raise ValueError(f"families {self.families!r}: {one!r} begins another one, too.")

    def _check_signature(self) -> None:
        if self._layout.timestamp and self.timestamp_header:
            raise ValueError(f"timestamp_header {self.timestamp_header!r}: the layout says where the stamp is.")
        if self.separator is not None and (self._layout.separator or self.separator not in _SEPARATORS):
            raise ValueError(f"separator {self.separator!r}: one of {''.join(sorted(_SEPARATORS))!r}, and no pairs.")
        if self.separator is not None and self.separator in self._layout.prefix:
            raise ValueError(f"separator {self.separator!r}: it is in the layout {self.layout!r}.")
        if self.encoding not in ("hex", "base64"):
            raise ValueError(f"encoding {self.encoding!r}: hex or base64.")
        try:
            size = new_hash(self.algorithm).digest_size
        except (TypeError, ValueError):  # TypeError: no text
            size = 0
        if size < 16:
            raise ValueError(f"algorithm {self.algorithm!r}: no hash of hashlib with a digest of 16 bytes or more.")

    @cached_property
    def covers(self) -> frozenset[str]:
        named = {name for _, name in self._template if name is not None}
        if "url" in named:
            named |= {"path", "query"}
        if "body_sha256" in named:
            named |= {"body"}
        return frozenset(named)

    @cached_property
    def covered_headers(self) -> frozenset[str]:
        return frozenset(name.lower() for _, names in self._families for _, name in names.parts)

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

    # -- the sender's side ---------------------------------------------------------------------------------------------

    def sign(self, delivery: Delivery, secret: Secret, *, at: datetime, nonce: str) -> dict[str, str]:
        """Return the headers that prove a delivery, as its sender makes them: what ``verify`` accepts.

        Args:
            delivery: The delivery; of several families, its headers say which one is meant.
            secret: What it is signed with.
            at: The stamp, where one is signed.
            nonce: The nonce, where one is signed; also the id, where one is signed and the delivery has none.

        Raises:
            ValueError: The secret's text cannot be decoded.
            SignatureMalformed: The id or the nonce does not fit the scheme.
        """
        names, stamp = self._family(delivery), write_stamp(at, self.stamp)
        headers = {}
        for part, name in names.parts:
            made = stamp if part == "timestamp" else nonce
            headers[name] = (delivery.header(name) or made) if part == "id" else made
        parts = {part: headers[name] for part, name in names.parts}
        if self._layout.timestamp:
            parts["timestamp"] = stamp
        self._check_borders(parts)
        digest = secret.mac(self._content(delivery, parts), algorithm=self.algorithm, decoding=self.decoding)
        signature = digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()
        return {**headers, names.signature: self.layout.format(signature=signature, timestamp=stamp)}

    # -- what the declaration says, read once --------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return read_layout(self.layout)

    @cached_property
    def _template(self) -> tuple[Piece, ...]:
        return read_template(self.signed)

    @cached_property
    def _families(self) -> tuple[tuple[str, _Names], ...]:
        """Prefix, in lower case, and names of each family; without families one that has no prefix."""
        own = self.families[0] if self.families else ""
        return tuple((prefix.lower(), self._named(own, prefix)) for prefix in self.families or ("",))

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple(prefix for prefix, _ in self._families)

    def _named(self, own: str, prefix: str) -> _Names:
        declared = (("timestamp", self.timestamp_header), ("id", self.id_header), ("nonce", self.nonce_header))
        parts = tuple((part, prefix + name[len(own) :]) for part, name in declared if name and part in self.covers)
        return _Names(signature=prefix + self.header[len(own) :], parts=parts)

    @cached_property
    def _nonce(self) -> re.Pattern[str]:
        return re.compile(self.nonce_pattern)

    @cached_property
    def _ends(self) -> Mapping[str, str]:
        """The text behind {id} and {nonce}: inside of them it would move the border to the next part."""
        following = pairwise(self._template)
        return {name: end.decode() for (_, name), (end, _) in following if name in ("id", "nonce") and end}

    @cached_property
    def _digest_size(self) -> int:
        return new_hash(self.algorithm).digest_size

    # -- what a delivery says ------------------------------------------------------------------------------------------

    def _read(self, delivery: Delivery) -> tuple[list[bytes], Mapping[str, str]]:
        """Return the signatures as bytes and the proof's other parts as text, which ``admit`` has read already."""
        known: tuple[HMACVerifier, tuple[list[bytes], Mapping[str, str]]] | None = vars(delivery).get(_READ)
        if known is None or known[0] is not self:
            known = (self, self._read_headers(delivery))
            vars(delivery)[_READ] = known
        return known[1]

    def _read_headers(self, delivery: Delivery) -> tuple[list[bytes], Mapping[str, str]]:
        names = self._family(delivery)
        header = proof_header(delivery, names.signature)
        parts: dict[str, str] = {}
        if self._layout.separator:
            candidates, stamp = self._pairs(header)
            if "timestamp" in self.covers:
                parts["timestamp"] = stamp
        else:
            candidates = self._values(header)
        if len(candidates) > MAX_SIGNATURES:
            raise SignatureMalformed(f"{names.signature}: more than {MAX_SIGNATURES} signatures")
        for part, name in names.parts:
            parts[part] = proof_header(delivery, name)
        self._check_borders(parts)
        signatures = [found for found in map(self._decode, candidates) if found is not None]
        if not signatures:
            raise SignatureMalformed(f"{names.signature}: no signature in {self.encoding} of the right length")
        return signatures, parts

    def _family(self, delivery: Delivery) -> _Names:
        if not self.families:
            return self._families[0][1]
        sent = [name for name in delivery.headers if name.startswith(self._prefixes)]
        found = [names for prefix, names in self._families if any(name.startswith(prefix) for name in sent)]
        if len(found) > 1:
            raise SignatureMalformed(f"headers of two families: {found[0].signature} and {found[1].signature}")
        return found[0] if found else self._families[0][1]

    def _values(self, header: str) -> Sequence[str]:
        prefix = self._layout.prefix
        entries = [header] if self.separator is None else [each.strip(" \t") for each in header.split(self.separator)]
        values = [entry[len(prefix) :] for entry in entries if entry.startswith(prefix)]
        if not values:
            raise SignatureMalformed(f"{self.header}: prefix missing, {prefix!r} expected")
        return values

    def _pairs(self, header: str) -> tuple[Sequence[str], str]:
        layout = self._layout
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
        return signatures, stamps[0]

    def _check_borders(self, parts: Mapping[str, str]) -> None:
        if "nonce" in parts and not self._nonce.fullmatch(parts["nonce"]):
            raise SignatureMalformed(f"{self.nonce_header}: not of the form {self.nonce_pattern}")
        for part, end in self._ends.items():
            if (parts[part] + end).find(end) != len(parts[part]):
                raise SignatureMalformed(f"{{{part}}} holds {end!r}, which ends it in the signed text")

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
        moment = read_stamp(text, self.stamp)
        if moment is None:
            raise SignatureMalformed(f"time stamp of {len(text)} characters is not of the form {self.stamp!r}")
        return moment

    def _content(self, delivery: Delivery, parts: Mapping[str, str]) -> bytes:
        content = []
        for literal, name in self._template:
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

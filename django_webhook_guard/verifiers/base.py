"""What every verifier takes and gives."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import MAXYEAR, datetime
from typing import Literal, Protocol

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import SignatureMalformed, SignatureMissing
from django_webhook_guard.secrets import Secret

#: Longer than any header of a known scheme with several signatures.
MAX_HEADER = 4096
#: A name as RFC 9110 (section 5.6.2) has it, but for the underscore: Django cannot tell it from a hyphen.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a proof proved.

    Args:
        content: The authenticated content: the very bytes that were signed, stamp and nonce included.
        secret: The secret that made the signature.
        signed_at: The signed time stamp, aware, or None where the scheme signs none.
        nonce: The signed nonce, or None.
    """

    content: bytes = field(repr=False)
    secret: Secret
    signed_at: datetime | None = None
    nonce: str | None = None


class Verifier(Protocol):
    """A pure object: delivery and secrets in, ``Verification`` out, or ``VerificationError``."""

    @property
    def covers(self) -> frozenset[str]:
        """Which of body, timestamp, id, nonce, url, path, query, method the proof covers."""

    @property
    def covered_headers(self) -> frozenset[str]:
        """Names, in lower case, of the headers that the proof covers."""

    @property
    def decoding(self) -> str:
        """How a secret's text becomes a key."""

    def admit(self, delivery: Delivery) -> None:
        """Look at the headers alone, so that the body of a delivery without proof is never read.

        Raises:
            VerificationError: The proof is missing or cannot be read.
        """

    def verify(self, delivery: Delivery, secrets: Iterable[Secret]) -> Verification:
        """Prove the delivery with one of the secrets.

        Raises:
            VerificationError: No secret proves it.
        """


def proof_header(delivery: Delivery, name: str) -> str:
    """Return the value of a header that a proof needs, without outer blanks; it encodes as latin-1.

    Args:
        delivery: The delivery.
        name: The header's name, in any case.

    Raises:
        SignatureMissing: It did not come, or is blank.
        SignatureMalformed: It is too long, or did not come over HTTP.
    """
    value = delivery.header(name)
    if value is None or not value.strip(" \t"):
        raise SignatureMissing(f"{name} is missing")
    if len(value) > MAX_HEADER:
        raise SignatureMalformed(f"{name}: longer than {MAX_HEADER} characters")
    try:
        value.encode("latin-1")  # what a server decodes headers with
    except UnicodeEncodeError:
        raise SignatureMalformed(f"{name}: not a header value") from None
    return value.strip(" \t")


def check_header_name(option: str, name: str) -> None:
    """Refuse a declared header that no delivery can have.

    Args:
        option: What declares it.
        name: The name.

    Raises:
        ValueError: It is no name of a header.
    """
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{option} {name!r}: no name of a header; a name has no blank and no underscore.")


Side = Literal["inside", "late", "future"]


def check_window(signed_at: datetime | None, now: datetime, tolerance: float | None) -> Side:
    """Tell where a signed stamp lies: inside the window, before it (late) or after it (future).

    Args:
        signed_at: The signed stamp; without one everything is inside.
        now: The receiver's time.
        tolerance: Half of the window, in seconds; None is the explicit "no window".
    """
    if signed_at is None:
        return "inside"
    if signed_at.year == MAXYEAR:  # no clock says that, and it cannot be shown in every time zone
        return "future"
    if tolerance is None:
        return "inside"
    age = (now - signed_at).total_seconds()
    if age > tolerance:
        return "late"
    return "future" if age < -tolerance else "inside"

"""One HTTP request of a sender, as bytes."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What a sender sent, before anything is known about it.

    Args:
        method: The HTTP method in upper case.
        url: The public URL as the sender called it, or path and query where no scheme signs the URL.
        headers: Names in lower case; values as the server decoded them (latin-1).
        body: The raw bytes.
        tenant: The tenant that the URL names, not proven by itself.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    tenant: str | None = None

    def with_body(self, body: bytes) -> "Delivery":
        """Return the same delivery with its body; what was found out about its headers goes along."""
        delivery = copy(self)
        vars(delivery)["body"] = body
        vars(delivery).pop("body_digest", None)
        return delivery

    def header(self, name: str) -> str | None:
        """Return the value of a header by its name in any case, or None."""
        return self.headers.get(name.lower())

    @cached_property
    def body_digest(self) -> bytes:
        """The SHA-256 of the body, 32 bytes."""
        return sha256(self.body).digest()

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def query(self) -> str:
        return urlsplit(self.url).query

"""Digests of the body that a sender adds beside its signature."""

import base64
import binascii
import re
from hashlib import md5, sha256, sha512

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent

_MEMBER = re.compile(r"\s*([a-z0-9*-]+)\s*=\s*:([A-Za-z0-9+/=]*):\s*")
_HASHES = {"sha-256": sha256, "sha-512": sha512}


def check_body_digests(delivery: Delivery) -> None:
    """Compare the body with each digest that was sent for it: keyless, so checked after the signature.

    ``Content-Digest`` (RFC 9530; algorithms other than sha-256 and sha-512 are left alone), ``X-Content-SHA256``
    and ``Content-MD5`` (MD5 or SHA-256 by length, hex or base64).

    Args:
        delivery: The delivery with its body.

    Raises:
        MalformedContent: A digest disagrees, or cannot be read.
    """
    value = delivery.header("content-digest")
    if value is not None:
        _check_dictionary(value, delivery.body)
    for name in ("x-content-sha256", "content-md5"):
        value = delivery.header(name)
        if value is not None:
            _check_plain(name, value.strip(), delivery.body)


def _check_dictionary(value: str, body: bytes) -> None:
    for member in value.split(","):
        match = _MEMBER.fullmatch(member)
        if match is None:
            raise MalformedContent("content-digest cannot be read")
        algorithm = _HASHES.get(match[1])
        if algorithm is not None and _decoded(match[2]) != algorithm(body).digest():
            raise MalformedContent("content-digest disagrees with the body")


def _check_plain(name: str, value: str, body: bytes) -> None:
    for given in (_unhexed(value), _decoded(value)):
        if given is not None and len(given) in (16, 32):
            # MD5 only because senders still send it; the signature is what is trusted.
            expected = md5(body, usedforsecurity=False) if len(given) == 16 else sha256(body)
            if given != expected.digest():
                raise MalformedContent(f"{name} disagrees with the body")
            return
    raise MalformedContent(f"{name} cannot be read")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None


def _unhexed(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) if len(text) in (32, 64) else None
    except ValueError:
        return None

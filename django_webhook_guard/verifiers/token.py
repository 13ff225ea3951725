"""A token that travels with each delivery: it vouches for the sender and covers nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import SignatureMismatch
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers.base import Verification, check_header_name, proof_header


@dataclass(frozen=True, kw_only=True)
class TokenVerifier:
    """Compare a header with the secret itself.

    Whoever sees one delivery can send any other, so this proves no more than the connection does: TLS alone keeps
    the token secret and the body whole. A sender that can sign should be asked to.

    Args:
        header: The header that holds the token.

    Raises:
        ValueError: ``header`` is no name of a header.
    """

    header: str

    def __post_init__(self) -> None:
        check_header_name("header", self.header)

    @property
    def covers(self) -> frozenset[str]:
        return frozenset()

    @property
    def covered_headers(self) -> frozenset[str]:
        return frozenset()

    @property
    def decoding(self) -> str:
        return "raw"

    def admit(self, delivery: Delivery) -> None:
        """Refuse a delivery without a token.

        Raises:
            SignatureMissing: There is none.
            SignatureMalformed: It cannot have come over HTTP, or is too long.
        """
        proof_header(delivery, self.header)

    def verify(self, delivery: Delivery, secrets: Iterable[Secret]) -> Verification:
        """Prove the delivery with the secret that came along; the authenticated content is the raw body.

        Args:
            delivery: The delivery, with its body.
            secrets: The live secrets.

        Raises:
            SignatureMissing: There is no token.
            SignatureMalformed: It cannot have come over HTTP, or is too long.
            SignatureMismatch: It is none of the secrets.
        """
        self.admit(delivery)
        for secret in secrets:
            if self._is(delivery, secret):
                return Verification(content=delivery.body, secret=secret)
        raise SignatureMismatch

    def _is(self, delivery: Delivery, secret: Secret) -> bool:
        # A frame of its own, so that no error carries the token along; digests, so that not even its length shows.
        given = proof_header(delivery, self.header).encode("latin-1")
        expected = secret.secret.encode("utf-8", "surrogatepass")
        return compare_digest(sha256(given).digest(), sha256(expected).digest())

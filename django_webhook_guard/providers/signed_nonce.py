"""The package's own generic contract, for partners who can choose how to sign.

``X-Signature-256: sha256=<hex>`` over ``{X-Timestamp}.{X-Nonce}.{raw body}``; an ``Idempotency-Key`` is not signed,
so it counts only together with the body.
"""

from django_webhook_guard.locators import Body, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

SIGNED_NONCE = Provider(
    name="signed-nonce",
    verifier=HMACVerifier(
        header="X-Signature-256",
        layout="sha256={signature}",
        signed="{timestamp}.{nonce}.{body}",
        timestamp_header="X-Timestamp",
        nonce_header="X-Nonce",
    ),
    event_id=Header("Idempotency-Key", optional=True),
    event_type=Body("type", optional=True),
    # A retry carries a fresh stamp and nonce, and the same Idempotency-Key.
    varies=frozenset({"stamp"}),
    answers={"accepted": 200, "quarantined": 200},
    keep_headers=("idempotency-key", "x-nonce", "x-timestamp"),
)

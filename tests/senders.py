"""Senders: they sign as each provider's documentation says, and share no code with the package."""

import base64
import hashlib
import hmac
import json
import time
from uuid import uuid4

STRIPE_SECRET = "whsec_0123456789abcdef0123"
GITHUB_SECRET = "s3cret-0123456789abcdef"
PARTNER_SECRET = "partner-0123456789abcdef"


def dumps(content):
    """Return JSON bytes of a dict, or the bytes as they are."""
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def hexmac(secret, message, algorithm="sha256"):
    return hmac.new(secret.encode(), message, getattr(hashlib, algorithm)).hexdigest()


def base64mac(secret, message):
    return base64.b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()


def stripe(body, *, at=None, secret=STRIPE_SECRET):
    """Headers of a Stripe delivery, signed at a unix second (now, where it is not given)."""
    at = int(time.time()) if at is None else at
    return {"Stripe-Signature": f"t={at},v1={hexmac(secret, str(at).encode() + b'.' + body)}"}


def github(body, *, guid=None, event="push", secret=GITHUB_SECRET):
    return {
        "X-GitHub-Delivery": guid or str(uuid4()),
        "X-GitHub-Event": event,
        "X-Hub-Signature-256": "sha256=" + hexmac(secret, body),
    }


def partner(body, *, at=None, nonce=None, key=None, secret=PARTNER_SECRET):
    """Headers of the generic contract; ``key`` is the Idempotency-Key."""
    at = int(time.time()) if at is None else at
    nonce = nonce or uuid4().hex
    signature = hexmac(secret, f"{at}.{nonce}.".encode() + body)
    headers = {"X-Timestamp": str(at), "X-Nonce": nonce, "X-Signature-256": "sha256=" + signature}
    return headers if key is None else {**headers, "Idempotency-Key": key}


SIGNERS = {"stripe": stripe, "github": github, "partner": partner}

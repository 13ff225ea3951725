"""A sender of webhooks, for the demo: it signs as the providers' documents say.

Only the standard library is used. Nothing of django_webhook_guard is imported, so that a mistake in its verifiers
cannot hide here.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, kw_only=True)
class Message:
    """A signed delivery, ready to be sent; sending it twice sends the same bytes twice."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the receiver said: the HTTP status, and the decision in its JSON body."""

    http_status: int
    decision: str

    def __str__(self) -> str:
        return f"{self.http_status} {self.decision}"


def stripe(event: Mapping[str, Any], secret: str) -> Message:
    """Sign as Stripe does: HMAC-SHA256 over ``{t}.{body}``, both in one header."""
    body = json.dumps(event).encode()
    stamp = int(time.time())
    signature = _hmac(secret, f"{stamp}.".encode() + body)
    return _message("/webhooks/stripe/", body, {"Stripe-Signature": f"t={stamp},v1={signature}"})


def partner(event: Mapping[str, Any], secret: str, *, key: str) -> Message:
    """Sign by the ``signed-nonce`` contract; every call makes a new stamp and nonce.

    Args:
        event: The body.
        secret: The shared secret.
        key: The ``Idempotency-Key``, which the signature does not cover.
    """
    body = json.dumps(event).encode()
    stamp, nonce = int(time.time()), uuid4().hex
    headers = {
        "Idempotency-Key": key,
        "X-Timestamp": str(stamp),
        "X-Nonce": nonce,
        "X-Signature-256": "sha256=" + _hmac(secret, f"{stamp}.{nonce}.".encode() + body),
    }
    return _message("/webhooks/partner/", body, headers)


def _hmac(secret: str, content: bytes) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def _message(path: str, body: bytes, headers: Mapping[str, str]) -> Message:
    return Message(path=path, body=body, headers={"Content-Type": "application/json", **headers})


def send(message: Message, port: int) -> Answer:
    """Send a message to 127.0.0.1 and read the answer.

    Args:
        message: The message.
        port: The receiver's port.

    Raises:
        OSError: Nobody answers.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", message.path, message.body, dict(message.headers))
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    return Answer(http_status=response.status, decision=_decision(text))


def _decision(text: bytes) -> str:
    try:
        return str(json.loads(text)["status"])
    except (ValueError, KeyError, TypeError):
        return "(not JSON)"

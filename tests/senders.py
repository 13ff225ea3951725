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
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SHOPIFY_SECRET = "shpss_0123456789abcdef"
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GITLAB_SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
GITLAB_TOKEN = "gitlab-t0ken-0123456789abcdef"


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


def slack(body, *, at=None, secret=SLACK_SECRET):
    at = int(time.time()) if at is None else at
    signature = "v0=" + hexmac(secret, f"v0:{at}:".encode() + body)
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": signature}


def shopify(
    body,
    *,
    event_id=None,
    webhook_id=None,
    topic="orders/create",
    shop="acme.myshopify.com",
    at="2026-11-30T12:00:00.123456789Z",
    secret=SHOPIFY_SECRET,
    prefix="X-Shopify-",
):
    """Headers of a Shopify delivery; ``prefix`` is the family's, ``at`` is not signed."""
    named = {
        "Hmac-Sha256": base64mac(secret, body),
        "Event-Id": event_id or str(uuid4()),
        "Webhook-Id": webhook_id or str(uuid4()),
        "Topic": topic,
        "Shop-Domain": shop,
        "Triggered-At": at,
    }
    return {prefix + name: value for name, value in named.items()}


def standard_signature(body, id, at, secret):
    """One entry of Standard Webhooks' list, version 1."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def standard_webhooks(body, *, id=None, at=None, secret=STANDARD_SECRET, prefix="webhook-"):
    """Headers of a Standard Webhooks delivery; ``prefix`` is the family's."""
    id = id or "msg_" + uuid4().hex
    at = int(time.time()) if at is None else at
    signature = standard_signature(body, id, at, secret)
    return {f"{prefix}id": id, f"{prefix}timestamp": str(at), f"{prefix}signature": signature}


def gitlab(body, *, id=None, at=None, event="Push Hook", secret=GITLAB_SECRET):
    signed = standard_webhooks(body, id=id or str(uuid4()), at=at, secret=secret)
    return {**signed, "Idempotency-Key": signed["webhook-id"], "X-Gitlab-Event": event}


def gitlab_token(body, *, key=None, uuid=None, event="Push Hook", secret=GITLAB_TOKEN):
    """Headers with the secret token; ``key`` is the Idempotency-Key, left away where it is not given."""
    headers = {"X-Gitlab-Token": secret, "X-Gitlab-Event": event, "X-Gitlab-Event-UUID": uuid or str(uuid4())}
    return headers if key is None else {**headers, "Idempotency-Key": key}


SIGNERS = {"stripe": stripe, "github": github, "partner": partner}
#: Name of a shipped provider → its signer and a secret; for those that the test project has no source of.
OTHERS = {
    "slack": (slack, SLACK_SECRET),
    "shopify": (shopify, SHOPIFY_SECRET),
    "standard-webhooks": (standard_webhooks, STANDARD_SECRET),
    "gitlab": (gitlab, GITLAB_SECRET),
    "gitlab-token": (gitlab_token, GITLAB_TOKEN),
}

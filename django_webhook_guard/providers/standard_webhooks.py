"""Standard Webhooks, version 1, and Svix, whose headers are named ``svix-*``.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from django_webhook_guard.locators import Body, Either, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

VERIFIER = HMACVerifier(
    header="webhook-signature",
    # Entries of other versions, such as v1a of a public key, stand in the same list.
    layout="v1,{signature}",
    separator=" ",
    signed="{id}.{timestamp}.{body}",
    id_header="webhook-id",
    timestamp_header="webhook-timestamp",
    encoding="base64",
    decoding="whsec",
    families=("webhook-", "svix-"),
)

STANDARD_WEBHOOKS = Provider(
    name="standard-webhooks",
    verifier=VERIFIER,
    event_id=Either(Header("webhook-id"), Header("svix-id")),
    event_type=Body("type", optional=True),
    occurred_at=Body("timestamp", optional=True),
    # A retry has the same id and is signed afresh.
    varies=frozenset({"stamp"}),
    retry_span=3 * 86_400,
    keep_headers=("webhook-id", "webhook-timestamp", "svix-id", "svix-timestamp"),
)

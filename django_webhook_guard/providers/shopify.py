"""Shopify, by webhooks (``X-Shopify-*``) and by events (``shopify-*``).

Source: https://shopify.dev/docs/apps/build/webhooks/verify-deliveries

The signature covers the body alone. Event id, topic and shop are headers beside it, so the id counts only together
with the body. What nothing can mend: who holds a captured delivery can show it once more under another topic. A
handler for which this matters asks the shop for the object (``fetch=``).
"""

from django_webhook_guard.locators import Body, Either, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

FAMILIES = ("X-Shopify-", "Shopify-")
_KEPT = ("topic", "shop-domain", "webhook-id", "event-id", "triggered-at", "api-version")


def shopify_header(name: str) -> Either:
    """Return the locator of a header that Shopify sends under one of its two prefixes.

    Args:
        name: The name behind the prefix. With ``Webhook-Id`` as ``EVENT_ID``, each subscription's delivery is an
            event of its own.
    """
    return Either(*(Header(prefix + name) for prefix in FAMILIES))


SHOPIFY = Provider(
    name="shopify",
    verifier=HMACVerifier(header="X-Shopify-Hmac-Sha256", signed="{body}", encoding="base64", families=FAMILIES),
    event_id=shopify_header("Event-Id"),
    event_type=shopify_header("Topic"),
    # One action is one event id, and may touch several topics with one and the same body.
    type_in_key=True,
    # A domain has no case, but Shopify writes it in one, and so must the secret that vouches for it: what differs
    # is refused.
    tenant=shopify_header("Shop-Domain"),
    occurred_at=shopify_header("Triggered-At"),
    object=Body("admin_graphql_api_id", optional=True),
    # Eight tries over four hours, with the first body and ids; nobody can have it sent again.
    retry_span=4 * 3600,
    resend_span=0,
    keep_headers=tuple(f"{prefix}{name}".lower() for prefix in FAMILIES for name in _KEPT),
)

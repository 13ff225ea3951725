"""Stripe. Source: https://docs.stripe.com/webhooks/signature"""

from django_webhook_guard.locators import Body
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

STRIPE = Provider(
    name="stripe",
    verifier=HMACVerifier(
        header="Stripe-Signature", layout="t={timestamp},v1={signature}", signed="{timestamp}.{body}"
    ),
    event_id=Body("id"),
    event_type=Body("type"),
    tenant=Body("account"),
    occurred_at=Body("created"),
    object=Body("data", "object", "id", optional=True),
    # Each try is signed afresh; the event's body stays but for pending_webhooks.
    varies=frozenset({"stamp", "body"}),
    retry_span=3 * 86_400,
    resend_span=30 * 86_400,
)

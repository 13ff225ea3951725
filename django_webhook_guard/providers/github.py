"""GitHub. Source: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"""

from django_webhook_guard.locators import Body, Either, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

GITHUB = Provider(
    name="github",
    verifier=HMACVerifier(header="X-Hub-Signature-256", layout="sha256={signature}", signed="{body}"),
    event_id=Header("X-GitHub-Delivery"),
    event_type=(Header("X-GitHub-Event"), Body("action", optional=True)),
    tenant=Either(Body("installation", "id"), Body("organization", "login"), Body("repository", "full_name")),
    object=Body("repository", "full_name", optional=True),
    # Nothing is sent again by itself; a redelivery by a person keeps GUID and body.
    retries=False,
    retry_span=0,
    resend_span=3 * 86_400,
    form_json="payload",
    keep_headers=(
        "x-github-event",
        "x-github-delivery",
        "x-github-hook-id",
        "x-github-hook-installation-target-id",
    ),
)

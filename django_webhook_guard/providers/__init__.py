"""Shipped knowledge about senders."""

from collections.abc import Mapping
from types import MappingProxyType

from django_webhook_guard.providers.base import Handshake, Provider, listed
from django_webhook_guard.providers.generic_hmac import GENERIC_HMAC, generic_hmac
from django_webhook_guard.providers.github import GITHUB
from django_webhook_guard.providers.gitlab import GITLAB, GITLAB_TOKEN
from django_webhook_guard.providers.shopify import SHOPIFY
from django_webhook_guard.providers.signed_nonce import SIGNED_NONCE
from django_webhook_guard.providers.slack import SLACK
from django_webhook_guard.providers.standard_webhooks import STANDARD_WEBHOOKS
from django_webhook_guard.providers.stripe import STRIPE

#: Those that are known by name alone; what ``generic-hmac`` is, a source's ``OPTIONS`` say.
PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            STRIPE,
            GITHUB,
            GITLAB,
            GITLAB_TOKEN,
            SLACK,
            SHOPIFY,
            STANDARD_WEBHOOKS,
            SIGNED_NONCE,
        )
    }
)

__all__ = ["GENERIC_HMAC", "PROVIDERS", "Handshake", "Provider", "generic_hmac", "listed"]

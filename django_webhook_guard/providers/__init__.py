"""Shipped knowledge about senders."""

from collections.abc import Mapping
from types import MappingProxyType

from django_webhook_guard.providers.base import Provider
from django_webhook_guard.providers.github import GITHUB
from django_webhook_guard.providers.signed_nonce import SIGNED_NONCE
from django_webhook_guard.providers.stripe import STRIPE

PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {provider.name: provider for provider in (STRIPE, GITHUB, SIGNED_NONCE)}
)

__all__ = ["PROVIDERS", "Provider"]

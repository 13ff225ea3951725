"""Proofs that a delivery is genuine."""

from django_webhook_guard.verifiers.base import Verification, Verifier, check_window
from django_webhook_guard.verifiers.hmac import HMACVerifier
from django_webhook_guard.verifiers.token import TokenVerifier

__all__ = ["HMACVerifier", "TokenVerifier", "Verification", "Verifier", "check_window"]

"""Proofs that a delivery is genuine."""

from django_webhook_guard.verifiers.base import Verification, Verifier, check_window
from django_webhook_guard.verifiers.hmac import HMACVerifier

__all__ = ["HMACVerifier", "Verification", "Verifier", "check_window"]

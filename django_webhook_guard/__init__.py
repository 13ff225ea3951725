"""Inbound webhooks for Django: verified, claimed once, retried, shown in the admin."""

__version__ = "0.1.0"

"""A small shop that takes webhooks: run ``manage.py demo``."""

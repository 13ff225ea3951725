"""Metrics for Prometheus: add this module to INSTALLED_APPS; it needs the extra ``metrics``."""

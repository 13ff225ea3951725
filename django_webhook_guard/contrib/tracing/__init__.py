"""Spans for OpenTelemetry: add this module to INSTALLED_APPS; it needs the extra ``tracing``."""

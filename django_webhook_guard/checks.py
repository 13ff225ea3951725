"""System checks: every mistake that can be seen at start-up, with a stable id. None of them asks the database."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from django_webhook_guard.conf import Problem, configuration
from django_webhook_guard.handlers import registered

# Ids are never used again for something else. Retired so far: none.
#   E001-E017  WEBHOOK_GUARD and DATABASES, see conf.py
#   E018       two handlers with one name
#   W001       LEASE below 30 seconds
#   W002       a handler for a source that is not configured
#   W003       an inline source whose sender never tries again


@register("django_webhook_guard")
def check_settings(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Report every problem of the setting."""
    return [_message(problem) for problem in configuration().problems]


def _message(problem: Problem) -> CheckMessage:
    kind = Error if problem.fatal else Warning
    return kind(problem.message, hint=problem.hint, id=f"django_webhook_guard.{problem.id}")


@register("django_webhook_guard")
def check_handlers(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Report handlers that shadow each other, or that wait for a source that is not there."""
    sources = configuration().sources
    messages: list[CheckMessage] = []
    seen: dict[tuple[str, str], Any] = {}
    for handler in registered():
        for source in sorted(handler.sources):
            if seen.setdefault((source, handler.name), handler.function) is not handler.function:
                messages.append(
                    Error(
                        f"Two webhook handlers of source {source!r} are named {handler.name!r}.",
                        hint="Give one of them name=: a checkpoint could not tell them apart.",
                        id="django_webhook_guard.E018",
                    )
                )
            if source not in sources:
                messages.append(
                    Warning(
                        f"Webhook handler {handler.name!r} waits for source {source!r}, which is not configured.",
                        hint=f"Configured are: {', '.join(sorted(sources)) or 'none'}.",
                        id="django_webhook_guard.W002",
                    )
                )
    return messages


@register("django_webhook_guard")
def check_retries(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Point to the sweeper where nobody else would run a failed event again."""
    return [
        Warning(
            f"WEBHOOK_GUARD source {source.name!r}: {source.provider.name} does not send again after a failure.",
            hint="Run 'manage.py webhook_sweep' every minute, so that failed events are retried; then silence this.",
            id="django_webhook_guard.W003",
        )
        for source in configuration().sources.values()
        if not source.provider.retries
    ]

"""System checks: every mistake that can be seen at start-up, with a stable id. None of them asks the database."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import CASCADE, ForeignKey
from django.urls import URLResolver, get_resolver

from django_webhook_guard.conf import Problem, Source, configuration, receipts_alias
from django_webhook_guard.handlers import Handler, registered
from django_webhook_guard.models import WebhookCheckpoint
from django_webhook_guard.views import AsyncSignedWebhookMixin

OURS = "django_webhook_guard"

# Ids are never used again for something else. Retired so far: none.
#   E001-E017  WEBHOOK_GUARD and DATABASES, see conf.py
#   E018       two handlers with one name
#   E019       a window shorter than the time in which the sender repeats its first stamp
#   E020       a handler's using= that is no database
#   E021       USE_TZ is off, see conf.py
#   W001       LEASE below 30 seconds
#   W002       a handler for a source that is not configured
#   W003       an inline source whose sender never tries again
#   W004       a sender that signs each try afresh, and nothing that says that it is the same event
#   E022-E028  WEBHOOK_GUARD, see options.py
#   W005       a signed URL, and no PUBLIC_URL
#   W006       persistent connections without a pool under ASGI
#   W007       a RETENTION that would end before the sender stops to send again
#   W008       a project's rows that go with a receipt
#   W009       DISPATCHER 'tasks', and a backend that runs tasks at once or never
#   E029       receipts on another database, and an atomic handler that does not say where it writes
#   E030       a handler's using= that has no table for its checkpoints
#   E031-E032  WEBHOOK_GUARD, see options.py


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
        if handler.using is not None and handler.using not in connections:
            messages.append(
                Error(
                    f"Webhook handler {handler.name!r}: using={handler.using!r} is no database.",
                    hint=f"DATABASES has: {', '.join(connections)}.",
                    id="django_webhook_guard.E020",
                )
            )
        messages.extend(_place_of_effects(handler))
        for source in sorted(handler.sources):
            for name in handler.names:
                if seen.setdefault((source, name), handler.function) is not handler.function:
                    messages.append(
                        Error(
                            f"Two webhook handlers of source {source!r} are or were named {name!r}.",
                            hint="Give one of them another name=: a checkpoint could not tell them apart.",
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


def _place_of_effects(handler: Handler) -> Iterator[CheckMessage]:
    """Yield what is wrong with the database that a handler writes to."""
    receipts = receipts_alias()
    if handler.atomic and handler.using is None and receipts != DEFAULT_DB_ALIAS:
        yield Error(
            f"Webhook handler {handler.name!r} is atomic, and the receipts are on {receipts!r}: what it writes to "
            f"{DEFAULT_DB_ALIAS!r} would not be rolled back with it.",
            hint=f"Say using={DEFAULT_DB_ALIAS!r}, or using={receipts!r} where it writes there.",
            id="django_webhook_guard.E029",
        )
    if (
        handler.using is not None
        and handler.using in connections
        and not router.allow_migrate_model(handler.using, WebhookCheckpoint)
    ):
        yield Error(
            f"Webhook handler {handler.name!r}: using={handler.using!r}, where no router lets its checkpoints be.",
            hint="Let DATABASE_ROUTERS allow the migrations of django_webhook_guard there, and migrate that database.",
            id="django_webhook_guard.E030",
        )


@register("django_webhook_guard")
def check_cascades(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Point to rows of the project that are deleted together with a receipt, which pruning does."""
    return [
        Warning(
            f"{model._meta.label}.{field.name} cascades from {field.related_model.__name__}: pruning an old one "
            "deletes the project's row with it.",
            hint="Say on_delete=SET_NULL, or keep the reference (the fingerprint) instead of a foreign key.",
            id="django_webhook_guard.W008",
        )
        for model in apps.get_models()
        for field in model._meta.local_fields
        if isinstance(field, ForeignKey) and field.remote_field.on_delete is CASCADE
        if OURS == field.related_model._meta.app_label != model._meta.app_label
    ]


@register("django_webhook_guard")
def check_tasks(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Point to a backend of Django Tasks that has no workers."""
    return [
        Warning(
            f"WEBHOOK_GUARD source {source.name!r}: DISPATCHER is 'tasks', and TASKS[{alias!r}] is {backend}.",
            hint="That one runs a task inside the request, or not at all: set up a backend with workers, such as "
            "django_tasks_db.DatabaseBackend.",
            id="django_webhook_guard.W009",
        )
        for source in configuration().sources.values()
        if source.deferred and source.dispatcher == "tasks"
        for alias in [source.dispatcher_options.get("backend", "default")]
        for backend in [getattr(settings, "TASKS", {}).get(alias, {}).get("BACKEND", "ImmediateBackend, the default")]
        if "ImmediateBackend" in backend or "DummyBackend" in backend
    ]


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


@register("django_webhook_guard")
def check_identity(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Report sources that would lose or double events by the way in which their sender tries again."""
    messages: list[CheckMessage] = []
    for source in configuration().sources.values():
        messages += [*_lost_retries(source), *_doubled_retries(source), *_guessed_url(source)]
    return messages


def _lost_retries(source: Source) -> Sequence[CheckMessage]:
    provider = source.provider
    keeps_stamp = "timestamp" in provider.signs and "stamp" not in provider.varies
    if not keeps_stamp or source.late == "quarantine" or source.tolerance is None:
        return []
    if source.tolerance >= provider.retry_span:
        return []
    return [
        Error(
            f"WEBHOOK_GUARD source {source.name!r}: TOLERANCE is {source.tolerance!r} seconds, and {provider.name} "
            f"repeats its first stamp for {provider.retry_span!r} seconds.",
            hint="A retry of an event that was never stored would be refused for good: raise TOLERANCE to that span, "
            "or say LATE: 'quarantine'.",
            id="django_webhook_guard.E019",
        )
    ]


def _doubled_retries(source: Source) -> Sequence[CheckMessage]:
    provider = source.provider
    if source.rules.event_id is not None or source.rules.key_fields or "stamp" not in provider.varies:
        return []
    return [
        Warning(
            f"WEBHOOK_GUARD source {source.name!r}: nothing but nonce or signed content tells its events apart, and "
            f"{provider.name} signs each try afresh.",
            hint="A retry cannot be told from a new event: give EVENT_ID or KEY_FIELDS.",
            id="django_webhook_guard.W004",
        )
    ]


def _guessed_url(source: Source) -> Sequence[CheckMessage]:
    if "url" not in source.provider.signs or source.public_url is not None:
        return []
    return [
        Warning(
            f"WEBHOOK_GUARD source {source.name!r}: {source.provider.name} signs the URL, and PUBLIC_URL is not set.",
            hint="Behind a proxy the request's own host is not the one that was signed: give scheme and host.",
            id="django_webhook_guard.W005",
        )
    ]


@register("django_webhook_guard")
def check_retention(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Report rows that RETENTION would let go while their event may still be delivered again."""
    return [
        Warning(
            f"WEBHOOK_GUARD source {source.name!r}: RETENTION[{name!r}] is {days!r} days, and an event of "
            f"{source.provider.name} may come again for {source.comes_again / 86_400:.6g}.",
            hint=f"Its row is kept for so long all the same: give {ceil(source.comes_again / 86_400)} or more.",
            id="django_webhook_guard.W007",
        )
        for source in configuration().sources.values()
        for name, days in (("row", source.retention.row), ("unstamped_row", source.retention.unstamped_row))
        if isinstance(days, int | float) and days * 86_400 < source.comes_again
    ]


@register("django_webhook_guard")
def check_asgi_connections(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Point to persistent connections under ASGI, where each thread of a burst keeps one."""
    alias = receipts_alias()
    database = connections.settings[alias]
    pooled = bool(database["OPTIONS"].get("pool"))
    if database["CONN_MAX_AGE"] == 0 or pooled or not _runs_on_asgi():
        return []
    return [
        Warning(
            f"DATABASES[{alias!r}]['CONN_MAX_AGE'] is {database['CONN_MAX_AGE']!r}, and the project runs on ASGI.",
            hint="Each of many threads would keep a connection until the server refuses more: set it to 0, or use a "
            "pool (OPTIONS: {'pool': True} with psycopg).",
            id="django_webhook_guard.W006",
        )
    ]


def _runs_on_asgi() -> bool:
    return bool(getattr(settings, "ASGI_APPLICATION", None)) or any(_async_doors(get_resolver().url_patterns))


def _async_doors(patterns: Iterable[Any]) -> Iterator[bool]:
    """Yield True for each URL that an async door of this package serves."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _async_doors(pattern.url_patterns)
        else:
            view = getattr(pattern.callback, "view_class", None)
            if isinstance(view, type) and issubclass(view, AsyncSignedWebhookMixin):
                yield True

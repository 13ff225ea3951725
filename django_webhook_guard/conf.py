"""The ``WEBHOOK_GUARD`` setting, read at use, as frozen values."""

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models.receipts import receipts_alias
from django_webhook_guard.reading import read
from django_webhook_guard.sources import SETTING, Configuration, Problem, Retention, Source

__all__ = [
    "Configuration", "Problem", "Retention", "Source", "UnknownSource", "configuration", "get_source",
    "names_of", "receipts_alias", "runnable_names", "source_of",
]  # fmt: skip


class UnknownSource(LookupError):
    """No source of that name is configured."""


_cache: dict[str, tuple[Any, Configuration]] = {}


def configuration() -> Configuration:
    """Return what the setting says now; read again whenever the setting is another object."""
    raw = getattr(settings, SETTING, None)
    cached = _cache.get(SETTING)
    if cached is None or cached[0] is not raw:
        cached = (raw, read(raw))
        _cache[SETTING] = cached
    return cached[1]


def get_source(name: str) -> Source:
    """Return a source that may accept deliveries.

    Raises:
        UnknownSource: None of that name is configured.
        Misconfigured: It has a problem that ``manage.py check`` reports as an error.
    """
    known = configuration()
    problem = known.broken(name)
    if problem is not None:
        raise Misconfigured(f"{problem.message} {problem.hint} (django_webhook_guard.{problem.id})")
    if name not in known.sources:
        raise UnknownSource(name)
    return known.sources[name]


def source_of(stored: str) -> Source | None:
    """Return the source that runs a receipt's stored source name, which may be a former one.

    A source whose secrets are unusable still runs what it accepted before.
    """
    known = configuration().sources
    if stored in known:
        return known[stored]
    return next((source for source in known.values() if stored in source.formerly), None)


def runnable_names() -> list[str]:
    """Return every stored source name that this process can run."""
    return [name for source in configuration().sources.values() for name in (source.name, *source.formerly)]


def names_of(name: str) -> list[str]:
    """Return the stored source names that ``name`` stands for: with a source's own name, its former ones, too."""
    source = source_of(name)
    if source is None:
        return []
    return [name] if name != source.name else [name, *source.formerly]


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in (SETTING, "DATABASES", "DATABASE_ROUTERS", "USE_TZ"):
        _cache.clear()


setting_changed.connect(_forget, dispatch_uid="django_webhook_guard.conf")

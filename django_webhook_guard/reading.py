"""From the setting's raw value to sources, and every problem found on the way.

One reading serves both the system checks, which report every problem, and the receiving path, which refuses a
source that has one.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest

from django_webhook_guard import options
from django_webhook_guard.identity import IdentityRules
from django_webhook_guard.locators import parts
from django_webhook_guard.models.receipts import WebhookReceipt, receipts_alias
from django_webhook_guard.options import COMMON, PER_SOURCE, TOP_ONLY, Invalid
from django_webhook_guard.providers import Provider
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.secrets import Secret
from django_webhook_guard.sources import (
    EVERYTHING,
    KEPT,
    SETTING,
    URL_TENANT,
    Configuration,
    Problem,
    ReceiptsFor,
    Retention,
    Source,
)

MAX_SOURCE_NAME = 100


def read(raw: Any) -> Configuration:
    """Read the setting's value.

    Args:
        raw: What the project wrote, or None.

    Returns:
        Every source that could be read, and every problem found.
    """
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping) or not isinstance(raw.get("SOURCES", {}), Mapping):
        problem = Problem(
            id="E001",
            message=f"{SETTING} must be a dict with a dict SOURCES in it.",
            hint="Write WEBHOOK_GUARD = {'SOURCES': {'stripe': {'PROVIDER': 'stripe', 'SECRETS': [...]}}}.",
            everywhere=True,
        )
        return Configuration(sources=MappingProxyType({}), problems=(problem,))
    defaults = {name: value for name, value in raw.items() if name in COMMON}
    problems = [_unknown_key(name, None) for name in raw if name not in COMMON | TOP_ONLY | {"SOURCES"}]
    sources: dict[str, Source] = {}
    for name, given in raw.get("SOURCES", {}).items():
        found, source = _read_source(name, given, defaults)
        problems.extend(found)
        if source is not None:
            sources[name] = source
    sources, shared = _without_shared(sources)
    problems.extend(shared)
    sources = _with_incomparable(sources)
    problems.extend(_former_names(sources))
    problems.extend(_databases())
    retention, unread = _default_retention(raw)
    if not any(problem.id == "E027" for problem in problems):  # else a source has reported it as its own
        problems.extend(unread)
    visible, unread = _receipts_for(raw)
    problems.extend(unread)
    return Configuration(
        sources=MappingProxyType(sources), problems=tuple(problems), retention=retention, receipts_for=visible
    )


def _receipts_for(raw: Mapping[str, Any]) -> tuple[ReceiptsFor | None, list[Problem]]:
    """Return who may see what; where that cannot be read, nobody sees anything."""
    try:
        return options.receipts_for(raw), []
    except Invalid as invalid:
        return nothing, [replace(invalid.problem, message=f"{SETTING}: {invalid.problem.message}")]


def _default_retention(raw: Mapping[str, Any]) -> tuple[Retention, list[Problem]]:
    """Return what is kept of sources that are not configured any more."""
    try:
        return options.retention(raw), []
    except Invalid as invalid:
        return KEPT, [replace(invalid.problem, message=f"{SETTING}: {invalid.problem.message}")]


def _unknown_key(name: str, source: str | None) -> Problem:
    where = f"{SETTING} source {source!r}" if source else SETTING
    kind = "may only stand in a source" if name in PER_SOURCE else "is not known"
    if source and name in TOP_ONLY:
        kind = f"may only stand in {SETTING} itself"
    known = ", ".join(sorted(COMMON | (PER_SOURCE if source else TOP_ONLY)))
    # A misspelled TENANT or TOLERANCE must not be left out without a word.
    return Problem(
        id="E002",
        message=f"{where}: {name} {kind}.",
        hint=f"Known here: {known}.",
        source=source,
        everywhere=source is None,
    )


def _read_source(name: Any, given: Any, defaults: Mapping[str, Any]) -> tuple[list[Problem], Source | None]:
    if not _is_slug(name) or not isinstance(given, Mapping):
        problem = Problem(
            id="E003",
            message=f"{SETTING} source {name!r} is not a name with a dict behind it.",
            hint=f"Use at most {MAX_SOURCE_NAME} of a-z, A-Z, 0-9, - and _.",
            source=name if isinstance(name, str) else None,
        )
        return [problem], None
    problems = [_unknown_key(key, name) for key in given if key not in PER_SOURCE | COMMON]
    values = {**defaults, **given}

    def attempt(reader: Callable[[Mapping[str, Any]], Any], default: Any = None) -> Any:
        try:
            return reader(values)
        except Invalid as invalid:
            message = f"{SETTING} source {name!r}: {invalid.problem.message}"
            problems.append(replace(invalid.problem, message=message, source=name))
            return default

    provider = attempt(options.provider)
    rules = attempt(lambda given: options.rules(name, given, provider)) if provider is not None else None
    if rules is None:
        return problems, None
    source = _source(name, values, provider, rules, attempt)
    if source.secrets_for is None:
        found, secrets = _secrets(values.get("SECRETS"), source)
        problems.extend(found)
        source = replace(source, secrets=secrets)
    if source.lease < 30:
        problems.append(
            Problem(
                id="W001",
                message=f"{SETTING} source {name!r}: LEASE is {source.lease!r} seconds.",
                hint="A run that takes longer loses its lease and is run again; use 30 or more.",
                source=name,
            )
        )
    return problems, source


def _source(
    name: str, values: Mapping[str, Any], provider: Provider, rules: IdentityRules, attempt: Callable[..., Any]
) -> Source:
    """Build a source; where an option cannot be used, the problem is noted and something harmless stands for it."""
    return Source(
        name=name,
        provider=provider,
        rules=rules,
        tenant=URL_TENANT if values.get("TENANT") == URL_TENANT else rules.tenant,
        formerly=attempt(options.formerly, ()),
        tolerance=attempt(lambda given: options.tolerance(given, provider), provider.tolerance),
        late=attempt(options.late, "reject"),
        invalid=attempt(options.invalid, "quarantine"),
        unhandled=attempt(options.unhandled, "store"),
        accept=attempt(options.accept),
        schemas=attempt(options.schemas, ()),
        max_body=attempt(options.max_body, 0),
        lease=attempt(options.lease, 60),
        retry=attempt(options.retry, RetryPolicy()),
        processing=attempt(options.processing, "inline"),
        dispatcher=attempt(options.dispatcher, "sweeper"),
        wake=attempt(options.wake),
        dispatcher_options=attempt(options.dispatcher_options, MappingProxyType({})),
        retention=attempt(options.retention, KEPT),
        responses=attempt(lambda given: options.responses(given, provider), MappingProxyType({})),
        public_url=attempt(options.public_url),
        route=attempt(options.route, False),
        release=str(values.get("RELEASE", "")),
        capture_rejected=attempt(options.capture_rejected, 0),
        expect_every=attempt(options.expect_every),
        personal=attempt(options.personal, EVERYTHING),
        secrets_for=attempt(options.secrets_for),
        secrets_ttl=attempt(options.secrets_ttl, 0),
    )


def _is_slug(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_SOURCE_NAME
        and name.isascii()
        and name.replace("-", "").replace("_", "").isalnum()
    )


def _secrets(given: Any, source: Source) -> tuple[list[Problem], tuple[Secret, ...]]:
    """Return the problems of the listed secrets, and those that may be used."""
    problems: list[Problem] = []
    usable: list[Secret] = []
    listed = given if isinstance(given, list | tuple) else ()
    for number, item in enumerate(listed, start=1):
        secret = _secret(item)
        flaw = "is neither text nor a dict of secret, id, not_after, tenant" if secret is None else None
        if secret is not None:
            flaw = secret.flaw(source.provider.verifier.decoding) or _untrusted(secret, source)
        if secret is not None and flaw is None:
            usable.append(secret)
            continue
        name = repr(secret.id) if secret is not None and secret.id else f"number {number}"
        problems.append(
            Problem(
                id="E013",
                message=f"{SETTING} source {source.name!r}: secret {name} {flaw}.",
                hint="It is never used. Set the secret that the sender shows for this endpoint.",
            )
        )
    if not isinstance(given, str) and not usable:
        problems.append(
            Problem(
                id="E014",
                message=f"{SETTING} source {source.name!r}: SECRETS holds no usable secret.",
                hint="It accepts nothing (503) until there is one; nothing turns verification off.",
                source=source.name,
            )
        )
    return problems, tuple(usable)


def _secret(item: Any) -> Secret | None:
    if isinstance(item, Secret):
        return item
    if isinstance(item, str):
        return Secret(item)
    if not isinstance(item, Mapping) or not {"secret"} <= set(item) <= {
        "secret",
        "id",
        "not_after",
        "tenant",
    }:
        return None
    try:
        return Secret(item["secret"], **{name: item[name] for name in item if name != "secret"})
    except (ValueError, TypeError):
        return None


def _untrusted(secret: Secret, source: Source) -> str | None:
    """Return why a listed secret cannot vouch for the source's tenant."""
    if source.tenant is None or source.tenant_signed or secret.tenant is not None:
        return None
    return "has no tenant, and the proof does not cover the tenant either"


def _without_shared(sources: dict[str, Source]) -> tuple[dict[str, Source], list[Problem]]:
    """Take secrets away that vouch for one message in two ways: one event would have two receipts."""
    owners: dict[bytes, set[Any]] = defaultdict(set)
    names: dict[bytes, set[str]] = defaultdict(set)
    for source in sources.values():
        for secret in source.secrets:
            digest = sha256(secret.seen_key).digest()
            owners[digest].add((source.rules.namespace, secret.tenant, *_identity_of(source)))
            names[digest].add(source.name)
    shared = {digest for digest, spaces in owners.items() if len(spaces) > 1}
    problems = [
        Problem(
            id="E015",
            message=f"{SETTING} sources {', '.join(sorted(names[digest]))} share a secret, "
            "but not NAMESPACE, tenant and key.",
            hint="It is never used. Give them one NAMESPACE, TENANT and key, or each a secret of its own.",
        )
        for digest in sorted(shared)
    ]
    kept = {
        name: replace(
            source,
            secrets=tuple(each for each in source.secrets if sha256(each.seen_key).digest() not in shared),
        )
        for name, source in sources.items()
    }
    return kept, problems


def _with_incomparable(sources: dict[str, Source]) -> dict[str, Source]:
    """Mark the sources of a project in which a look-up may return what another namespace's source has, too."""
    namespaces = {source.rules.namespace for source in sources.values()}
    if len(namespaces) < 2 or not any(source.secrets_for for source in sources.values()):
        return sources
    return {name: replace(source, incomparable=True) for name, source in sources.items()}


def _identity_of(source: Source) -> tuple[Any, ...]:
    rules = source.rules
    ids = None if rules.event_id is None else parts(rules.event_id)
    tenant = source.tenant if source.tenant in (None, URL_TENANT) else parts(source.tenant)
    return ids, rules.key_fields, tenant


def _former_names(sources: Mapping[str, Source]) -> list[Problem]:
    claimed: dict[str, str] = {}
    problems = []
    for source in sources.values():
        for former in source.formerly:
            if former in sources or former in claimed:
                problems.append(
                    Problem(
                        id="E006",
                        message=f"{SETTING} source {source.name!r}: FORMERLY names {former!r}, "
                        "which is another source's.",
                        hint="A former name belongs to one source that is not configured any more.",
                        source=source.name,
                    )
                )
            claimed[former] = source.name
    return problems


def _databases() -> list[Problem]:
    alias = receipts_alias()
    problems = []
    database = connections.settings[alias]
    if not database.get("AUTOCOMMIT", True):
        problems.append(
            Problem(
                id="E016",
                message=f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: no receipt would ever be committed.",
                hint="Set it to True, or route the receipts to another alias.",
                everywhere=True,
            )
        )
    if not settings.USE_TZ:
        problems.append(
            Problem(
                id="E021",
                message="USE_TZ is False: stamps and leases need times with a zone.",
                hint="Set it to True; what a page shows follows TIME_ZONE all the same.",
                everywhere=True,
            )
        )
    if database.get("TIME_ZONE") and not database["ENGINE"].endswith("postgresql"):
        problems.append(
            Problem(
                id="E017",
                message=f"DATABASES[{alias!r}]['TIME_ZONE'] is set: leases would run by two clocks.",
                hint="Remove it, or route the receipts to another alias.",
                everywhere=True,
            )
        )
    return problems


def nothing(request: HttpRequest) -> QuerySet[WebhookReceipt]:
    """Stands for a ``RECEIPTS_FOR`` that cannot be read."""
    return WebhookReceipt.objects.none()

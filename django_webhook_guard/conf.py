"""The ``WEBHOOK_GUARD`` setting, read at use, as frozen values.

One reading serves both the system checks, which report every problem, and the receiving path, which refuses a
source that has one.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.db import connections, router
from django.utils.module_loading import import_string

from django_webhook_guard.exceptions import Misconfigured, UnknownTenant
from django_webhook_guard.identity import IdentityRules
from django_webhook_guard.locators import Body, Either, Form, Header, Locator, Query, Single, parts
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import PROVIDERS, Provider
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.secrets import Secret

SETTING = "WEBHOOK_GUARD"
URL_TENANT = "url"
MAX_SOURCE_NAME = 100
#: No setting is a larger number: 300 years in seconds, ten gigabytes.
MAX_NUMBER = 10**10
#: Every decision, and the HTTP status that it is answered with unless the provider or ``RESPONSES`` says otherwise.
STATUS: Mapping[str, int] = MappingProxyType(
    {
        "processed": 200,
        "ignored": 200,
        "failed": 500,
        "retry_later": 503,
        "gave_up": 200,
        "accepted": 202,
        "duplicate": 200,
        "busy": 503,
        "quarantined": 202,
        "declined": 200,
        "handshake": 200,
        "rejected": 401,
        "late": 400,
        "malformed": 400,
        "not_found": 404,
        "wrong_method": 405,
        "too_large": 413,
        "unavailable": 503,
    }
)
DECISIONS = frozenset(STATUS)
#: Decisions after which the event is not stored, or nobody will run it: a 2xx would lose it.
NOT_HELD = DECISIONS - {
    "processed", "ignored", "gave_up", "accepted", "duplicate", "quarantined", "declined", "handshake"
}  # fmt: skip

_BASE_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")

SecretsFor = Callable[[str, str | None], Iterable[Secret]]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a setting that makes a source unusable, or that is worth a warning.

    Args:
        id: The stable id of the system check, such as ``E003``.
        message: Names the setting and the value seen, never a secret.
        hint: The next step.
        source: The source it makes unusable, None where it concerns no source as a whole.
        everywhere: Whether it makes every source unusable.
    """

    id: str
    message: str
    hint: str
    source: str | None = None
    everywhere: bool = False

    @property
    def fatal(self) -> bool:
        return self.id.startswith("E")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A configured sender.

    Args:
        name: Its name in the setting.
        provider: What is known about its kind.
        rules: Where the parts of its events are.
        secrets: The listed secrets that may be used; empty where a callable is asked.
        secrets_for: The project's look-up, or None.
        tenant: None, ``"url"``, or the locator of the tenant.
        formerly: Former names; their events are still known, their receipts run as this source's.
        tolerance: Half of the acceptance window, in seconds; None: no window.
        max_body: Bytes.
        lease: Seconds that a run may take.
        retry: When what failed runs again.
        responses: Decision → HTTP status.
        public_url: Scheme and host as the sender calls them, or None.
        route: Whether the catch-all URLs serve it.
        incomparable: Whether a look-up may give another source its secrets, which no check can see.
        release: Text kept on attempts.
    """

    name: str
    provider: Provider
    rules: IdentityRules
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    secrets_for: SecretsFor | None = None
    tenant: Locator | None = None
    formerly: tuple[str, ...] = ()
    tolerance: float | None = 300
    max_body: int = 1_048_576
    lease: float = 60
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    responses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    public_url: str | None = None
    route: bool = True
    incomparable: bool = False
    release: str = ""

    @cached_property
    def keeps_seen(self) -> bool:
        """Whether signed messages must be remembered: the id or the tenant is not covered by the proof, or a
        message may be genuine at another door too."""
        ids = self.rules.event_id if self.rules.event_id is not None else self.rules.key_fields
        if self.incomparable:
            return True
        unsigned_id = bool(ids) and not self.rules.covered(ids)
        return unsigned_id or (self.tenant is not None and not self.tenant_signed)

    @cached_property
    def tenant_signed(self) -> bool:
        """Whether the proof covers the tenant."""
        return self.tenant is not None and self.tenant != URL_TENANT and self.rules.covered(self.tenant)

    @cached_property
    def keep_headers(self) -> frozenset[str]:
        """Headers, in lower case, that are kept on the receipt."""
        return frozenset({"content-type", "user-agent", *self.provider.keep_headers})

    def redacted(self, text: str) -> str:
        """Return a text in which no listed secret stands."""
        for secret in self.secrets:
            text = text.replace(secret.secret, "***")
        return text

    def live_secrets(self, tenant: str | None, now: datetime) -> list[Secret]:
        """Return the secrets that may prove a delivery now.

        Args:
            tenant: The tenant that the URL names, or None.
            now: The receiver's time.

        Raises:
            UnknownTenant: The project's look-up, or the list, knows no such tenant.
            Misconfigured: There is no usable secret, or the look-up failed.
        """
        if self.secrets_for is None:
            found: Iterable[Secret] = self.secrets
        else:
            found = self._looked_up(self.secrets_for, tenant)
        live = [secret for secret in found if secret.live(now)]
        if self.tenant == URL_TENANT and self.secrets_for is None:
            live = [secret for secret in live if secret.tenant == tenant]
            if not live and self.secrets:
                raise UnknownTenant
        if not live:
            raise Misconfigured(
                f"{SETTING} source {self.name!r}: no usable secret. "
                "Run manage.py check, and look at SECRETS and not_after."
            )
        return live

    def _looked_up(self, secrets_for: SecretsFor, tenant: str | None) -> list[Secret]:
        decoding = self.provider.verifier.decoding
        try:
            found = [secret for secret in secrets_for(self.name, tenant) or () if isinstance(secret, Secret)]
        except UnknownTenant:
            raise
        except Exception as error:
            where = f"{type(error).__name__} {_place(error)}"
        else:
            usable = [secret for secret in found if secret.flaw(decoding) is None]
            if self.tenant == URL_TENANT:
                return [secret for secret in usable if secret.tenant in (None, tenant)]
            if self.tenant is not None and not self.tenant_signed:
                return [secret for secret in usable if secret.tenant is not None]
            return usable
        raise Misconfigured(f"{SETTING} source {self.name!r}: the look-up of SECRETS failed with {where}.")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All that the setting says."""

    sources: Mapping[str, Source]
    problems: tuple[Problem, ...]

    def broken(self, name: str) -> Problem | None:
        """Return the first problem that makes a source unusable."""
        return next((each for each in self.problems if each.fatal and (each.everywhere or each.source == name)), None)


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


def receipts_alias() -> str:
    """Return the database alias that receipts are written to."""
    return router.db_for_write(WebhookReceipt)


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in (SETTING, "DATABASES", "DATABASE_ROUTERS", "USE_TZ"):
        _cache.clear()


setting_changed.connect(_forget, dispatch_uid="django_webhook_guard.conf")


# -- reading -----------------------------------------------------------------------------------------------------------


class _Invalid(Exception):
    """A value that cannot be used; becomes a ``Problem``."""

    def __init__(self, id: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.problem = Problem(id=id, message=message, hint=hint)


_PER_SOURCE = frozenset(
    {
        "PROVIDER", "SECRETS", "TENANT", "NAMESPACE", "FORMERLY", "EVENT_ID", "EVENT_TYPE", "OCCURRED_AT", "OBJECT",
        "KEY_FIELDS", "PUBLIC_URL", "ROUTE",
    }
)  # fmt: skip
_COMMON = frozenset({"TOLERANCE", "MAX_BODY", "LEASE", "RETRY", "RELEASE", "RESPONSES"})
_LOCATORS = (Body, Header, Query, Form, Either, str)


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
    defaults = {name: value for name, value in raw.items() if name in _COMMON}
    problems = [_unknown_key(name, None) for name in raw if name not in _COMMON | {"SOURCES"}]
    sources: dict[str, Source] = {}
    for name, options in raw.get("SOURCES", {}).items():
        found, source = _read_source(name, options, defaults)
        problems.extend(found)
        if source is not None:
            sources[name] = source
    sources, shared = _without_shared(sources)
    problems.extend(shared)
    sources = _with_incomparable(sources)
    problems.extend(_former_names(sources))
    problems.extend(_databases())
    return Configuration(sources=MappingProxyType(sources), problems=tuple(problems))


def _unknown_key(name: str, source: str | None) -> Problem:
    where = f"{SETTING} source {source!r}" if source else SETTING
    kind = "may only stand in a source" if name in _PER_SOURCE else "is not known"
    known = ", ".join(sorted(_COMMON | (_PER_SOURCE if source else set())))
    # A misspelled TENANT or TOLERANCE must not be left out without a word.
    return Problem(
        id="E002",
        message=f"{where}: {name} {kind}.",
        hint=f"Known here: {known}.",
        source=source,
        everywhere=source is None,
    )


def _read_source(name: Any, options: Any, defaults: Mapping[str, Any]) -> tuple[list[Problem], Source | None]:
    problems: list[Problem] = []
    if not _is_slug(name) or not isinstance(options, Mapping):
        problem = Problem(
            id="E003",
            message=f"{SETTING} source {name!r} is not a name with a dict behind it.",
            hint=f"Use at most {MAX_SOURCE_NAME} of a-z, A-Z, 0-9, - and _.",
            source=name if isinstance(name, str) else None,
        )
        return [problem], None
    problems.extend(_unknown_key(key, name) for key in options if key not in _PER_SOURCE | _COMMON)
    values = {**defaults, **options}

    def attempt(reader: Callable[[Mapping[str, Any]], Any], default: Any = None) -> Any:
        try:
            return reader(values)
        except _Invalid as invalid:
            message = f"{SETTING} source {name!r}: {invalid.problem.message}"
            problems.append(replace(invalid.problem, message=message, source=name))
            return default

    provider = attempt(_provider)
    if provider is None:
        return problems, None
    rules = attempt(lambda given: _rules(name, given, provider))
    if rules is None:
        return problems, None
    source = Source(
        name=name,
        provider=provider,
        rules=rules,
        tenant=URL_TENANT if values.get("TENANT") == URL_TENANT else rules.tenant,
        formerly=attempt(_formerly, ()),
        tolerance=attempt(lambda given: _tolerance(given, provider), provider.tolerance),
        max_body=attempt(_max_body, 0),
        lease=attempt(_lease, 60),
        retry=attempt(_retry, RetryPolicy()),
        responses=attempt(lambda given: _responses(given, provider), MappingProxyType({})),
        public_url=attempt(_public_url),
        route=attempt(_route, False),
        release=str(values.get("RELEASE", "")),
    )
    source = replace(source, secrets_for=attempt(_secrets_for))
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


def _is_slug(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_SOURCE_NAME
        and name.isascii()
        and name.replace("-", "").replace("_", "").isalnum()
    )


def _provider(values: Mapping[str, Any]) -> Provider:
    given = values.get("PROVIDER")
    if isinstance(given, str) and given in PROVIDERS:
        return PROVIDERS[given]
    hint = f"Use one of {', '.join(PROVIDERS)}, or the dotted path to a Provider value."
    if isinstance(given, str) and "." in given:
        try:
            found = import_string(given)
        except Exception as error:
            raise _Invalid("E004", f"PROVIDER {given!r} cannot be imported ({type(error).__name__}).", hint) from None
        if isinstance(found, Provider):
            return found
    raise _Invalid("E004", f"PROVIDER {given!r} is not known.", hint)


def _rules(name: str, values: Mapping[str, Any], provider: Provider) -> IdentityRules:
    own = provider.event_id if not values.get("KEY_FIELDS") else None
    tenant = values.get("TENANT")
    if tenant is True:
        tenant = provider.tenant
        if tenant is None:
            raise _Invalid("E005", "TENANT is True, but the provider does not say where it is.", "Give a locator.")
    elif tenant == URL_TENANT:
        tenant = None
    event_id = _locator("EVENT_ID", values.get("EVENT_ID", own))
    namespace = values.get("NAMESPACE", name)
    if not isinstance(namespace, str) or not namespace.strip():
        raise _Invalid("E006", f"NAMESPACE {namespace!r} is no text.", "Give a name, or leave it away.")
    verifier = provider.verifier
    return IdentityRules(
        source=name,
        namespace=namespace,
        event_id=event_id,
        key_fields=_key_fields(values.get("KEY_FIELDS", ())),
        event_type=_locator("EVENT_TYPE", values.get("EVENT_TYPE", provider.event_type)),
        type_in_key=provider.type_in_key,
        tenant=_locator("TENANT", tenant),
        occurred_at=_locator("OCCURRED_AT", values.get("OCCURRED_AT", provider.occurred_at)),
        object_key=_locator("OBJECT", values.get("OBJECT", provider.object)),
        covers=verifier.covers,
        covered_headers=verifier.covered_headers,
    )


def _key_fields(given: Any) -> tuple[Single, ...]:
    if not isinstance(given, tuple | list) or None in given:
        raise _Invalid("E005", f"KEY_FIELDS is {given!r}, not a list of locators.", "Give a list or tuple.")
    located = [_locator("KEY_FIELDS", each) for each in given]
    return tuple(each for locator in located if locator is not None for each in parts(locator))


def _locator(setting: str, given: Any) -> Locator | None:
    if given is None:
        return None
    for each in given if isinstance(given, tuple) else (given,):
        if not isinstance(each, _LOCATORS) or each == "":
            raise _Invalid(
                "E005",
                f"{setting} is {given!r}, which is no locator.",
                "Give a dotted body path, Body, Header, Query, Form, Either, or a tuple of them.",
            )
    if given == ():
        raise _Invalid("E005", f"{setting} is an empty tuple.", "Give a locator, or None.")
    return given  # type: ignore[no-any-return]


def _formerly(values: Mapping[str, Any]) -> tuple[str, ...]:
    given = values.get("FORMERLY", ())
    if not isinstance(given, tuple | list) or not all(isinstance(each, str) and each for each in given):
        raise _Invalid("E006", f"FORMERLY is {given!r}.", "Give a list of former names.")
    return tuple(given)


def _number(given: Any) -> float | None:
    # The bound also keeps out infinity, and NaN, of which no comparison is true.
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= MAX_NUMBER:
        return None
    return given


def _positive(setting: str, given: Any, unit: str, id: str) -> float:
    number = _number(given)
    if number is None or number <= 0:
        raise _Invalid(id, f"{setting} is {given!r}.", f"Give a positive number of {unit}.")
    return number


def _tolerance(values: Mapping[str, Any], provider: Provider) -> float | None:
    given = values.get("TOLERANCE", provider.tolerance)
    if given is None:
        return None
    number = _number(given)
    if number is None or number <= 0:
        raise _Invalid(
            "E007",
            f"TOLERANCE is {given!r}.",
            "Give positive seconds; None is the one explicit way to have no window.",
        )
    return number


def _max_body(values: Mapping[str, Any]) -> int:
    given = values.get("MAX_BODY", Source.max_body)
    if not isinstance(given, int):
        raise _Invalid("E008", f"MAX_BODY is {given!r}.", "Give a positive whole number of bytes.")
    return int(_positive("MAX_BODY", given, "bytes", "E008"))


def _lease(values: Mapping[str, Any]) -> float:
    return _positive("LEASE", values.get("LEASE", Source.lease), "seconds", "E008")


def _retry(values: Mapping[str, Any]) -> RetryPolicy:
    given = values.get("RETRY", {})
    known = {each.name for each in fields(RetryPolicy)}
    if not isinstance(given, Mapping) or not set(given) <= known:
        raise _Invalid("E009", f"RETRY is {given!r}.", f"Give a dict with {', '.join(sorted(known))}.")
    for name, value in given.items():
        number = _number(value)
        fits = number is not None and (0 <= number <= 1 if name == "jitter" else number > 0)
        whole = name != "max_attempts" or isinstance(value, int)
        if not fits or not whole or (name == "factor" and value < 1):
            raise _Invalid("E009", f"RETRY[{name!r}] is {value!r}.", "See the settings reference for its unit.")
    return RetryPolicy(**given)


def _responses(values: Mapping[str, Any], provider: Provider) -> Mapping[str, int]:
    given = values.get("RESPONSES", {})
    if not isinstance(given, Mapping) or not set(given) <= DECISIONS:
        raise _Invalid("E010", f"RESPONSES is {given!r}.", f"Keys are of {', '.join(sorted(DECISIONS))}.")
    merged = {**provider.answers, **given}
    for decision, status in merged.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
            raise _Invalid("E010", f"RESPONSES[{decision!r}] is {status!r}.", "Give an HTTP status.")
        if 300 <= status < 400:
            raise _Invalid("E010", f"RESPONSES[{decision!r}] is {status}.", "A redirect loses the body.")
        if status < 300 and decision in NOT_HELD:
            raise _Invalid(
                "E010", f"RESPONSES[{decision!r}] is {status}.", "The event is not held: a 2xx would lose it."
            )
    return MappingProxyType(merged)


def _public_url(values: Mapping[str, Any]) -> str | None:
    given = values.get("PUBLIC_URL")
    if given is None:
        return None
    base = given.rstrip("/") if isinstance(given, str) else ""
    if not _BASE_URL.fullmatch(base):
        # Not shown: it may hold a user and a password.
        raise _Invalid(
            "E011",
            "PUBLIC_URL is not scheme and host alone.",
            "Give them as https://hooks.example.org, without a path.",
        )
    return base


def _route(values: Mapping[str, Any]) -> bool:
    given = values.get("ROUTE", True)
    if not isinstance(given, bool):
        raise _Invalid("E011", f"ROUTE is {given!r}.", "Give True or False.")
    return given


def _secrets_for(values: Mapping[str, Any]) -> SecretsFor | None:
    given = values.get("SECRETS")
    if not isinstance(given, str):
        return given if callable(given) else None
    hint = "Give a list of secrets, or the dotted path of a callable (source, tenant) -> Iterable[Secret]."
    # The text may be a secret that somebody forgot to put into a list: it is never shown.
    try:
        found = import_string(given)
    except Exception as error:
        kind = type(error).__name__
    else:
        if callable(found):
            return found  # type: ignore[no-any-return]
        kind = "not callable"
    raise _Invalid("E012", f"SECRETS is text that names no callable ({kind}).", hint)


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


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else ""


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
    options = connections.settings[alias]
    if not options.get("AUTOCOMMIT", True):
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
    if options.get("TIME_ZONE") and not options["ENGINE"].endswith("postgresql"):
        problems.append(
            Problem(
                id="E017",
                message=f"DATABASES[{alias!r}]['TIME_ZONE'] is set: leases would run by two clocks.",
                hint="Remove it, or route the receipts to another alias.",
                everywhere=True,
            )
        )
    return problems

"""One reader for each option of a source: what a project wrote in, a value that can be used out."""

import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any

import django
from django.utils.module_loading import import_string
from rest_framework.serializers import BaseSerializer

from django_webhook_guard.identity import IdentityRules
from django_webhook_guard.locators import Body, Either, Form, Header, Locator, Query, Single, parts, single
from django_webhook_guard.providers import GENERIC_HMAC, PROVIDERS, Provider, generic_hmac
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.schemas import Schema, Schemas
from django_webhook_guard.sources import (
    DECISIONS,
    DISPATCHERS,
    NOT_HELD,
    URL_TENANT,
    Accept,
    Problem,
    ReceiptsFor,
    Retention,
    SecretsFor,
    Source,
    Wake,
)

#: Seconds that a run may take where no sender waits for it.
DEFERRED_LEASE = 300
#: No setting is a larger number: 300 years in seconds, ten gigabytes.
MAX_NUMBER = 10**10
PER_SOURCE = frozenset(
    {
        "PROVIDER", "SECRETS", "TENANT", "OPTIONS", "NAMESPACE", "FORMERLY", "EVENT_ID", "EVENT_TYPE", "OCCURRED_AT",
        "OBJECT", "KEY_FIELDS", "PUBLIC_URL", "ROUTE",
    }
)  # fmt: skip
COMMON = frozenset(
    {
        "TOLERANCE", "LATE", "INVALID", "ACCEPT", "SCHEMA", "UNHANDLED", "SECRETS_TTL", "MAX_BODY", "LEASE", "RETRY",
        "RETENTION", "RELEASE", "RESPONSES", "PROCESSING", "DISPATCHER", "DISPATCHER_OPTIONS",
        "CAPTURE_REJECTED", "EXPECT_EVERY", "PERSONAL",
    }
)  # fmt: skip
TOP_ONLY = frozenset({"RECEIPTS_FOR"})
#: Samples of rejected deliveries that a source may keep.
MAX_CAPTURED = 1_000
_BASE_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


class Invalid(Exception):
    """A value that cannot be used; becomes a ``Problem``."""

    def __init__(self, id: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.problem = Problem(id=id, message=message, hint=hint)


_LOCATORS = (Body, Header, Query, Form, Either, str)


def provider(values: Mapping[str, Any]) -> Provider:
    given = values.get("PROVIDER")
    if given == GENERIC_HMAC:
        try:
            return generic_hmac(values.get("OPTIONS", {}))
        except ValueError as error:
            raise Invalid("E026", str(error), "docs/settings.md describes every option.") from None
    if values.get("OPTIONS"):
        raise Invalid("E026", f"OPTIONS stands beside PROVIDER {given!r}.", f"It is for {GENERIC_HMAC!r} alone.")
    if isinstance(given, str) and given in PROVIDERS:
        return PROVIDERS[given]
    hint = f"Use one of {', '.join(PROVIDERS)}, {GENERIC_HMAC}, or the dotted path to a Provider value."
    if isinstance(given, str) and "." in given:
        found = _imported("E004", "PROVIDER", given, hint)
        if isinstance(found, Provider):
            return found
    raise Invalid("E004", f"PROVIDER {given!r} is not known.", hint)


def _chosen(values: Mapping[str, Any], setting: str, choices: tuple[str, str]) -> str:
    given = values.get(setting, choices[0])
    if given not in choices:
        raise Invalid("E022", f"{setting} is {given!r}.", f"Give {choices[0]!r} or {choices[1]!r}.")
    return str(given)


def late(values: Mapping[str, Any]) -> str:
    return _chosen(values, "LATE", ("reject", "quarantine"))


def invalid(values: Mapping[str, Any]) -> str:
    return _chosen(values, "INVALID", ("quarantine", "reject"))


def unhandled(values: Mapping[str, Any]) -> str:
    return _chosen(values, "UNHANDLED", ("store", "drop"))


def processing(values: Mapping[str, Any]) -> str:
    return _chosen(values, "PROCESSING", ("inline", "deferred"))


def dispatcher(values: Mapping[str, Any]) -> str:
    given = values.get("DISPATCHER", Source.dispatcher)
    if given in DISPATCHERS:
        _installed(given)
        return str(given)
    if isinstance(given, str) and "." in given:
        return given
    raise Invalid(
        "E028", f"DISPATCHER is {given!r}.", f"Give one of {', '.join(DISPATCHERS)}, or the dotted path of a callable."
    )


def _installed(name: str) -> None:
    """Refuse an engine that this process cannot import."""
    if name == "celery" and find_spec("celery") is None:
        raise Invalid("E028", "DISPATCHER is 'celery', which is not installed.", "pip install celery")
    if name == "tasks" and django.VERSION < (6, 0) and find_spec("django_tasks") is None:
        raise Invalid(
            "E028", "DISPATCHER is 'tasks', and this Django has none.", "Use Django 6, or pip install django-tasks."
        )


def wake(values: Mapping[str, Any]) -> Wake | None:
    given = values.get("DISPATCHER", Source.dispatcher)
    if not isinstance(given, str) or given in DISPATCHERS or "." not in given:
        return None
    hint = "Give the dotted path of a plain callable that takes a receipt's number and wakes a worker for it."
    found = _imported("E028", "DISPATCHER", given, hint)
    if not callable(found) or iscoroutinefunction(found):
        raise Invalid("E028", f"DISPATCHER {given!r} is {'async' if callable(found) else 'not callable'}.", hint)
    return found  # type: ignore[no-any-return]


def dispatcher_options(values: Mapping[str, Any]) -> Mapping[str, Any]:
    given = values.get("DISPATCHER_OPTIONS", {})
    known = {"queue": str, "priority": int, "backend": str}
    fits = isinstance(given, Mapping) and all(
        name in known and isinstance(value, known[name]) and not isinstance(value, bool)
        for name, value in given.items()
    )
    if not fits:
        raise Invalid(
            "E028",
            f"DISPATCHER_OPTIONS is {given!r}.",
            "Give a dict of queue (text), priority (a whole number) and, for Django Tasks, backend (text).",
        )
    return MappingProxyType(dict(given))


def accept(values: Mapping[str, Any]) -> Accept | None:
    given = values.get("ACCEPT")
    if given is None:
        return None
    hint = "Give the dotted path of a plain callable that takes an Event and returns whether to accept it."
    found = given if callable(given) else _imported("E023", "ACCEPT", given, hint)
    if not callable(found) or iscoroutinefunction(found):
        raise Invalid("E023", f"ACCEPT {given!r} is {'async' if callable(found) else 'not callable'}.", hint)
    return found  # type: ignore[no-any-return]


def schemas(values: Mapping[str, Any]) -> Schemas:
    given = values.get("SCHEMA")
    if given is None:
        return ()
    listed = given if isinstance(given, Mapping) else {"*": given}
    return tuple((_pattern(pattern), _schema(path)) for pattern, path in listed.items())


def _pattern(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise Invalid("E024", f"SCHEMA has a key {given!r}.", "Keys are patterns of event types.")
    return given


def _schema(given: Any) -> Schema:
    hint = "Give the dotted path of a DRF serializer class, or a dict of type pattern and path."
    found = given if isinstance(given, type) else _imported("E024", "SCHEMA", given, hint)
    if not isinstance(found, type) or not issubclass(found, BaseSerializer):
        raise Invalid("E024", f"SCHEMA {given!r} is no serializer class.", hint)
    return found


def _imported(id: str, setting: str, given: Any, hint: str) -> Any:
    try:
        return import_string(given)
    except Exception as error:
        raise Invalid(id, f"{setting} {given!r} cannot be imported ({type(error).__name__}).", hint) from None


def rules(name: str, values: Mapping[str, Any], provider: Provider) -> IdentityRules:
    own = provider.event_id if not values.get("KEY_FIELDS") else None
    tenant = values.get("TENANT")
    if tenant is True:
        tenant = provider.tenant
        if tenant is None:
            raise Invalid("E005", "TENANT is True, but the provider does not say where it is.", "Give a locator.")
    elif tenant == URL_TENANT:
        tenant = None
    event_id = _locator("EVENT_ID", values.get("EVENT_ID", own))
    namespace = values.get("NAMESPACE", name)
    if not isinstance(namespace, str) or not namespace.strip():
        raise Invalid("E006", f"NAMESPACE {namespace!r} is no text.", "Give a name, or leave it away.")
    verifier = provider.verifier
    return IdentityRules(
        source=name,
        namespace=namespace,
        event_id=event_id,
        key_fields=key_fields(values.get("KEY_FIELDS", ())),
        event_type=_locator("EVENT_TYPE", values.get("EVENT_TYPE", provider.event_type)),
        type_in_key=provider.type_in_key,
        tenant=_locator("TENANT", tenant),
        occurred_at=_locator("OCCURRED_AT", values.get("OCCURRED_AT", provider.occurred_at)),
        object_key=_locator("OBJECT", values.get("OBJECT", provider.object)),
        covers=verifier.covers,
        covered_headers=verifier.covered_headers,
    )


def key_fields(given: Any) -> tuple[Single, ...]:
    if not isinstance(given, tuple | list) or None in given:
        raise Invalid("E005", f"KEY_FIELDS is {given!r}, not a list of locators.", "Give a list or tuple.")
    located = [_locator("KEY_FIELDS", each) for each in given]
    return tuple(each for locator in located if locator is not None for each in parts(locator))


def _locator(setting: str, given: Any) -> Locator | None:
    if given is None:
        return None
    for each in given if isinstance(given, tuple) else (given,):
        if not isinstance(each, _LOCATORS) or each == "":
            raise Invalid(
                "E005",
                f"{setting} is {given!r}, which is no locator.",
                "Give a dotted body path, Body, Header, Query, Form, Either, or a tuple of them.",
            )
    if given == ():
        raise Invalid("E005", f"{setting} is an empty tuple.", "Give a locator, or None.")
    return given  # type: ignore[no-any-return]


def formerly(values: Mapping[str, Any]) -> tuple[str, ...]:
    given = values.get("FORMERLY", ())
    if not isinstance(given, tuple | list) or not all(isinstance(each, str) and each for each in given):
        raise Invalid("E006", f"FORMERLY is {given!r}.", "Give a list of former names.")
    return tuple(given)


def _number(given: Any) -> float | None:
    # The bound also keeps out infinity, and NaN, of which no comparison is true.
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= MAX_NUMBER:
        return None
    return given


def _positive(setting: str, given: Any, unit: str, id: str) -> float:
    number = _number(given)
    if number is None or number <= 0:
        raise Invalid(id, f"{setting} is {given!r}.", f"Give a positive number of {unit}.")
    return number


def tolerance(values: Mapping[str, Any], provider: Provider) -> float | None:
    given = values.get("TOLERANCE", provider.tolerance)
    if given is None:
        return None
    number = _number(given)
    if number is None or number <= 0:
        raise Invalid(
            "E007",
            f"TOLERANCE is {given!r}.",
            "Give positive seconds; None is the one explicit way to have no window.",
        )
    return number


def max_body(values: Mapping[str, Any]) -> int:
    given = values.get("MAX_BODY", Source.max_body)
    if not isinstance(given, int):
        raise Invalid("E008", f"MAX_BODY is {given!r}.", "Give a positive whole number of bytes.")
    return int(_positive("MAX_BODY", given, "bytes", "E008"))


def secrets_ttl(values: Mapping[str, Any]) -> float:
    number = _number(values.get("SECRETS_TTL", 0))
    if number is None or number < 0:
        raise Invalid("E025", f"SECRETS_TTL is {values['SECRETS_TTL']!r}.", "Give seconds of zero or more.")
    return number


def lease(values: Mapping[str, Any]) -> float:
    default = DEFERRED_LEASE if values.get("PROCESSING") == "deferred" else Source.lease
    return _positive("LEASE", values.get("LEASE", default), "seconds", "E008")


def retry(values: Mapping[str, Any]) -> RetryPolicy:
    given = values.get("RETRY", {})
    known = {each.name for each in fields(RetryPolicy)}
    if not isinstance(given, Mapping) or not set(given) <= known:
        raise Invalid("E009", f"RETRY is {given!r}.", f"Give a dict with {', '.join(sorted(known))}.")
    for name, value in given.items():
        number = _number(value)
        fits = number is not None and (0 <= number <= 1 if name == "jitter" else number > 0)
        whole = name != "max_attempts" or isinstance(value, int)
        if not fits or not whole or (name == "factor" and value < 1):
            raise Invalid("E009", f"RETRY[{name!r}] is {value!r}.", "See the settings reference for its unit.")
    return RetryPolicy(**given)


def retention(values: Mapping[str, Any]) -> Retention:
    given = values.get("RETENTION", {})
    known = [each.name for each in fields(Retention)]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise Invalid("E027", f"RETENTION is {given!r}.", f"Give a dict with {', '.join(known)}.")
    for name, value in given.items():
        number = _number(value)
        if value is not None and (number is None or number < 0):
            raise Invalid("E027", f"RETENTION[{name!r}] is {value!r}.", "Give days of zero or more; None: for ever.")
    return Retention(**given)


def capture_rejected(values: Mapping[str, Any]) -> int:
    given = values.get("CAPTURE_REJECTED", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_CAPTURED:
        raise Invalid("E031", f"CAPTURE_REJECTED is {given!r}.", f"Give a number of samples, 0 to {MAX_CAPTURED}.")
    return given


def expect_every(values: Mapping[str, Any]) -> float | None:
    given = values.get("EXPECT_EVERY")
    return None if given is None else _positive("EXPECT_EVERY", given, "seconds", "E031")


def personal(values: Mapping[str, Any]) -> tuple[Body, ...]:
    given = values.get("PERSONAL", ())
    hint = "Give a list of dotted body paths, such as 'customer.email'; '*' stands for every item of a list."
    if not isinstance(given, tuple | list):
        raise Invalid("E031", f"PERSONAL is {given!r}.", hint)
    for each in given:
        if not isinstance(each, Body | str) or each == "":
            raise Invalid("E031", f"PERSONAL has {each!r}.", hint)
    return tuple(path for path in map(single, given) if isinstance(path, Body))


def receipts_for(values: Mapping[str, Any]) -> ReceiptsFor | None:
    given = values.get("RECEIPTS_FOR")
    if given is None:
        return None
    hint = "Give the dotted path of a plain callable that takes a request and returns a queryset of WebhookReceipt."
    found = given if callable(given) else _imported("E032", "RECEIPTS_FOR", given, hint)
    if not callable(found) or iscoroutinefunction(found):
        raise Invalid("E032", f"RECEIPTS_FOR {given!r} is {'async' if callable(found) else 'not callable'}.", hint)
    return found  # type: ignore[no-any-return]


def responses(values: Mapping[str, Any], provider: Provider) -> Mapping[str, int]:
    given = values.get("RESPONSES", {})
    if not isinstance(given, Mapping) or not set(given) <= DECISIONS:
        raise Invalid("E010", f"RESPONSES is {given!r}.", f"Keys are of {', '.join(sorted(DECISIONS))}.")
    merged = {**provider.answers, **given}
    for decision, status in merged.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
            raise Invalid("E010", f"RESPONSES[{decision!r}] is {status!r}.", "Give an HTTP status.")
        if 300 <= status < 400:
            raise Invalid("E010", f"RESPONSES[{decision!r}] is {status}.", "A redirect loses the body.")
        if status < 300 and decision in NOT_HELD:
            raise Invalid(
                "E010", f"RESPONSES[{decision!r}] is {status}.", "The event is not held: a 2xx would lose it."
            )
    return MappingProxyType(merged)


def public_url(values: Mapping[str, Any]) -> str | None:
    given = values.get("PUBLIC_URL")
    if given is None:
        return None
    base = given.rstrip("/") if isinstance(given, str) else ""
    if not _BASE_URL.fullmatch(base):
        # Not shown: it may hold a user and a password.
        raise Invalid(
            "E011",
            "PUBLIC_URL is not scheme and host alone.",
            "Give them as https://hooks.example.org, without a path.",
        )
    return base


def route(values: Mapping[str, Any]) -> bool:
    given = values.get("ROUTE", True)
    if not isinstance(given, bool):
        raise Invalid("E011", f"ROUTE is {given!r}.", "Give True or False.")
    return given


def secrets_for(values: Mapping[str, Any]) -> SecretsFor | None:
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
    raise Invalid("E012", f"SECRETS is text that names no callable ({kind}).", hint)

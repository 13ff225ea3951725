"""The guard against events that come out of order: the newest version of an object that a handler has seen."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.dateparse import parse_datetime

from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.handlers import Handler
from django_webhook_guard.identity import digest
from django_webhook_guard.leases import Lease
from django_webhook_guard.locators import MISSING, Body, single
from django_webhook_guard.models import WebhookVersion
from django_webhook_guard.text import storable
from django_webhook_guard.transactions import Conflict, is_unique_violation

#: How often a mark that somebody else writes at the same moment is looked at again.
LOOKS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of an object as a handler sees it.

    Args:
        digests: Under which its mark may stand; the first is its own, the others are of former names.
        handler: The handler's name.
        object_key: The object.
        kind: ``number`` or ``time``, which are not compared with each other.
        number: The version, or microseconds since 1970.
        fingerprint: Of the receipt that brings it.
    """

    digests: tuple[str, ...]
    handler: str
    object_key: str
    kind: str
    number: int
    fingerprint: str


def version_of(lease: Lease, handler: Handler, tenant: str | None, object_key: str, version: int | datetime) -> Version:
    """Read a version.

    Args:
        lease: What the handler runs under.
        handler: The handler.
        tenant: The event's.
        object_key: What the event is about.
        version: A 64-bit number, or an aware datetime.

    Raises:
        ValueError: The object is blank, or the version is neither.
    """
    if not isinstance(object_key, str) or not object_key:
        raise ValueError(f"The object of a version is {object_key!r}; give its key as text.")
    kind, number = _number(version)
    namespaces = (lease.source.rules.namespace, *lease.source.formerly)
    return Version(
        digests=tuple(
            digest((namespace, tenant, name, object_key)) for namespace in namespaces for name in handler.names
        ),
        handler=handler.name,
        object_key=object_key,
        kind=kind,
        number=number,
        fingerprint=lease.fingerprint,
    )


def _number(version: Any) -> tuple[str, int]:
    if isinstance(version, datetime):
        if version.tzinfo is None or version.utcoffset() is None:
            raise ValueError("A version that is a datetime needs a time zone.")
        return "time", (version - _EPOCH) // _MICROSECOND
    if isinstance(version, int) and not isinstance(version, bool) and abs(version) <= _MAX:
        return "number", version
    raise ValueError(f"A version is a 64-bit number or an aware datetime, not {type(version).__name__}.")


def advance(using: str, version: Version, *, strict: bool) -> bool:
    """Move the mark of an object to a version, inside a transaction of the caller's.

    Args:
        using: The database alias of that transaction.
        version: The version.
        strict: Whether an equal version of another event is stale, too.

    Returns:
        Whether the event may take effect: False where a newer version was seen.

    Raises:
        Conflict: The transaction must begin again to see the mark.
        ValueError: Numbers and times are mixed for this object.
    """
    rows = WebhookVersion.objects.using(using)
    for _ in range(LOOKS):
        moved = rows.advance(version.digests, version.kind, version.number, version.fingerprint, strict=strict)
        if moved == len(version.digests):
            return True
        marks = list(rows.locked(version.digests))
        for mark in marks:
            if mark.kind != version.kind:
                raise ValueError(f"Versions of {version.object_key!r} are {mark.kind}s so far, now a {version.kind}.")
        if any(_is_newer(mark, version, strict=strict) for mark in marks):
            return False
        if marks:
            # One that was made between the two statements was not moved yet; nobody can change it any more.
            rows.advance(version.digests, version.kind, version.number, version.fingerprint, strict=strict)
            return True
        try:
            with transaction.atomic(using=using):
                rows.first_seen(
                    digest=version.digests[0], handler=version.handler,
                    object_key=storable(version.object_key, 255), kind=version.kind, version=version.number,
                    fingerprint=version.fingerprint,
                )  # fmt: skip
        except IntegrityError as error:
            if not is_unique_violation(error):
                raise
            continue
        return True
    raise Conflict(f"The mark of {version.object_key!r} is not visible to this transaction, or changes too fast.")


def _is_newer(mark: WebhookVersion, version: Version, *, strict: bool) -> bool:
    """Tell whether a mark of another event is ahead of a version."""
    ahead = mark.version > version.number or (strict and mark.version == version.number)
    return ahead and mark.fingerprint != version.fingerprint


def is_stale(handler: Handler, event: WebhookEvent) -> bool:
    """Tell whether a handler that declares ``version=`` has seen a newer version of the event's object.

    Raises:
        ValueError: The event has no such version or object.
    """
    if handler.version is None:
        return False
    version = _declared(handler.version, event, "version")
    if isinstance(version, str):
        version = _moment(version)
    key: Any = event.object_key if handler.object_key is None else _declared(handler.object_key, event, "object_key")
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    return not event.supersedes(key, version)


def _declared(given: str | Callable[[Any], Any], event: WebhookEvent, what: str) -> Any:
    if not isinstance(given, str):
        return given(event)
    path = single(given)
    value = path.find_in(event.data) if isinstance(path, Body) else MISSING
    if value is MISSING:
        raise ValueError(f"The event has nothing at {what}={given!r}.")
    return value


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError("The event's version is text, but no ISO 8601 time.")
    return moment

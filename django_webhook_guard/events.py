"""What a handler gets, and which handlers want it."""

import base64
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from django.dispatch import Signal

from django_webhook_guard import statements
from django_webhook_guard.conf import Source
from django_webhook_guard.handlers import DRILL, SIGNAL, Handler, matching, registered
from django_webhook_guard.locators import MISSING
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import Provider
from django_webhook_guard.schemas import Schema, schema_for, validated
from django_webhook_guard.signals import webhook_dead, webhook_received
from django_webhook_guard.transactions import committed

logger = logging.getLogger("django_webhook_guard")


MAX_REPLY = 4_096
_CONTENT_TYPE = re.compile(r"[!-~][ -~]{0,254}")


@dataclass(frozen=True)
class Reply:
    """What an inline handler returns to say what the sender hears, now and for every duplicate.

    Args:
        body: Text, or bytes, at most 4,096 bytes.
        status: A 2xx: the handler has done its work.
        content_type: Of the body.

    Raises:
        ValueError: The body is no text or bytes or too long, the status no 2xx, or the content type no header value.
    """

    body: str | bytes = b""
    status: int = 200
    content_type: str = "application/json"

    def __post_init__(self) -> None:
        if not isinstance(self.body, str | bytes):
            raise ValueError(f"Reply: body is {type(self.body).__name__}; give text or bytes.")
        if len(self.content) > MAX_REPLY:
            raise ValueError(f"Reply: a body of {len(self.content)} bytes; at most {MAX_REPLY}.")
        if type(self.status) is not int or not 200 <= self.status < 300:
            raise ValueError(f"Reply: status {self.status!r}; give a 2xx, or raise an error for another try.")
        if not isinstance(self.content_type, str) or not _CONTENT_TYPE.fullmatch(self.content_type):
            raise ValueError(f"Reply: content_type {self.content_type!r} is no header value of 1 to 255 characters.")

    @property
    def content(self) -> bytes:
        try:
            return self.body.encode() if isinstance(self.body, str) else self.body
        except UnicodeEncodeError:
            raise ValueError("Reply: the body holds a lone surrogate.") from None

    def kept(self) -> str:
        """Return the form in which a receipt keeps it."""
        return json.dumps([self.status, self.content_type, base64.b64encode(self.content).decode()])

    @classmethod
    def of(cls, kept: str) -> "Reply | None":
        """Return what a receipt keeps; None where it keeps nothing."""
        if not kept:
            return None
        status, content_type, body = json.loads(kept)
        return cls(base64.b64decode(body), status, content_type)


class Running(Protocol):
    """The running handler that an event was handed to."""

    def once(self, name: str, function: Callable[[str], Any], key_lifetime: float | timedelta) -> Any: ...
    def atomic(self) -> AbstractContextManager[None]: ...
    def supersedes(self, tenant: str | None, object_key: str, version: int | datetime, strict: bool) -> bool: ...
    def renew(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class WebhookEvent:
    """A genuine event, the same at the first run and at every later one.

    Args:
        source: The source's name.
        tenant: The proven tenant, or None.
        event_id: The sender's id as text, or an empty string.
        event_type: The type, or an empty string.
        object_key: The object that it is about, or an empty string.
        occurred_at: When it happened, as the sender says.
        signed_at: The signed time stamp of the delivery that was stored.
        received_at: When that delivery came.
        body: The raw bytes that were signed.
        headers: The headers that are kept, names in lower case.
        key_id: Which key signed.
        receipt_id: The receipt's number.
        attempt: The number of this run, from 1.
        signed: Names of the parts of a delivery that the proof covers.
        item: Its number in a batch, from 0; None where it came alone.
        part: That item as it was parsed, where it is at hand.
        fetched: What the handler's ``fetch`` returned.
        running: The handler that it was handed to; None outside of a run.
        expired: Whether the body is not kept any more; no handler is called with such an event.
    """

    source: str
    tenant: str | None
    event_id: str
    event_type: str
    object_key: str
    occurred_at: datetime | None
    signed_at: datetime | None
    received_at: datetime
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    key_id: str
    receipt_id: int
    attempt: int
    signed: frozenset[str]
    provider: Provider = field(repr=False)
    schema: Schema | None = field(default=None, repr=False)
    item: int | None = None
    part: Any = field(default=MISSING, repr=False, compare=False)
    fetched: Any = field(default=None, repr=False, compare=False)
    running: Running | None = field(default=None, repr=False, compare=False)
    expired: bool = False

    @cached_property
    def data(self) -> Any:
        """The parsed body, or the item of a batch: a dict, or form fields. Every handler gets one of its own."""
        if self.part is not MISSING:
            return deepcopy(self.part)
        data = self.provider.parse(self.body, self.headers.get("content-type", ""))[0]
        if self.item is None or self.provider.split is None:
            return data
        return self.provider.split(data)[self.item]

    @cached_property
    def validated(self) -> Any:
        """What the source's ``SCHEMA`` makes of ``data``; None where there is none for this type.

        Raises:
            SchemaMismatch: The content does not fit, and a person released it all the same.
        """
        return None if self.schema is None else validated(self.schema, self.data)

    def fresh(self) -> "WebhookEvent":
        """Return the same event without what another handler may have changed in ``data``."""
        return replace(self)

    def bound(self, running: Running, fetched: Any = None) -> "WebhookEvent":
        """Return the same event in the hands of a handler; what was parsed stays parsed."""
        event = copy(self)
        vars(event).update(running=running, fetched=fetched)
        return event

    # -- what a handler may ask for ------------------------------------------------------------------------------------

    def once(self, name: str, function: Callable[[str], Any], *, key_lifetime: float | timedelta = 86_400) -> Any:
        """Make a call outside of the database that must take effect once, however often the handler runs.

        A row is committed as started before ``function(key)`` runs, and its result after it. A later attempt gets
        that result and calls nothing. A call that never came back is made again with the same key while the other
        side remembers it; after that the receipt is dead with the reason ``effect_unknown``, for a person.

        Args:
            name: Of the effect, unique in its handler.
            function: Makes the call; its argument is the idempotency key for the other side, a text of 36
                characters. It raises ``NotDone`` where the effect surely did not happen.
            key_lifetime: How long the other side knows a key again, in seconds or as a timedelta.

        Returns:
            What the function returned, as JSON gives it back (dates as text, tuples as lists). What JSON cannot
            hold is returned as it is this time, and as None to later attempts.

        Raises:
            EffectUnknown: An earlier call was started, and its key is too old to be used again.
            LeaseLost: Another attempt has taken over.
            RuntimeError: The handler is atomic, or this is inside or after ``event.atomic()``.
        """
        return self._running("event.once()").once(name, function, key_lifetime)

    def atomic(self) -> AbstractContextManager[None]:
        """Return the transaction of an ``atomic=False`` handler: it commits together with the handler's checkpoint.

        What stands in the block happens exactly once; after it the handler counts as done, whatever it raises.

        Raises:
            LeaseLost: At its end: another attempt has taken over, and the block is rolled back.
            RuntimeError: The handler is atomic, or it has entered one before.
        """
        return self._running("event.atomic()").atomic()

    def supersedes(self, object_key: str, version: int | datetime, strict: bool = False) -> bool:
        """Tell whether the event may take effect, and remember its version: False if a newer one was seen.

        Marks are kept per namespace, tenant, handler and object. An event is never superseded by itself.

        Args:
            object_key: What the event is about.
            version: A 64-bit number, or an aware datetime; not mixed for one object.
            strict: Whether an equal version is stale, too: for true sequence numbers only, for times tie.

        Raises:
            ValueError: The version is neither, or of the other kind than before.
        """
        return self._running("event.supersedes()").supersedes(self.tenant, object_key, version, strict)

    def renew(self) -> None:
        """Extend the lease of a long run by its full length; an atomic handler says ``lease=`` instead.

        Raises:
            LeaseLost: Another attempt has taken over.
            RuntimeError: The handler is atomic, or this is inside or after ``event.atomic()``.
        """
        self._running("event.renew()").renew()

    def _running(self, what: str) -> Running:
        if self.running is None:
            raise RuntimeError(f"{what} is for the event that a running handler was given.")
        return self.running

    @classmethod
    def stored(cls, receipt: WebhookReceipt, source: Source, attempt: int) -> "WebhookEvent":
        """Build the event of a receipt for a later run."""
        body = receipt.raw_body
        return cls(
            source=source.name,
            tenant=receipt.tenant,
            event_id=receipt.event_id,
            event_type=receipt.event_type,
            object_key=receipt.object_key,
            occurred_at=receipt.occurred_at,
            signed_at=receipt.signed_at,
            received_at=receipt.received_at,
            body=body or b"",
            expired=body is None,
            headers=receipt.headers,
            key_id=receipt.key_id,
            receipt_id=receipt.pk,
            attempt=attempt,
            signed=source.provider.signs,
            provider=source.provider,
            schema=schema_for(source.schemas, receipt.event_type),
            item=receipt.item,
        )


def _send(event: WebhookEvent) -> None:
    webhook_received.send(sender=WebhookReceipt, event=event)


_SIGNAL_HANDLER = Handler(name=SIGNAL, function=_send, sources=frozenset(), patterns=("*",))


def _listening() -> tuple[Handler, ...]:
    return (_SIGNAL_HANDLER,) if webhook_received.has_listeners(WebhookReceipt) else ()


def wanted(source: str, event_type: str) -> tuple[Handler, ...]:
    """Return the handlers that want an event, in the order in which they run.

    Args:
        source: The source's name.
        event_type: The type.

    Raises:
        Misconfigured: Two of them have one name.
    """
    return matching(source, event_type) + (() if event_type == DRILL else _listening())


def named(source: str, names: Iterable[str]) -> dict[str, Handler]:
    """Return name → handler for the names, former ones too, that this process knows for a source.

    A name is unique within a source only: another source's handler of that name is another handler.
    """
    serving = [handler for handler in (*registered(), *_listening()) if handler.serves(source)]
    known = {name: handler for handler in serving for name in handler.names}
    return {name: known[name] for name in names if name in known}


def owed(source: str, event_type: str, names: Iterable[str]) -> list[Handler]:
    """Return the handlers that a receipt waits for or has run, in order: those that match, then those it kept.

    A receipt keeps the names that were in use when it came. While a handler is being renamed, processes with the new
    name mark it under the kept one; and a process that does not know a kept name, which may be that of a handler
    that it knows otherwise, runs no handler that the receipt does not keep.

    Args:
        source: The name of the source that runs it.
        event_type: The type.
        names: The names that the receipt keeps.
    """
    kept = tuple(names)
    handlers = {handler.name: handler for handler in wanted(source, event_type)}
    others = [name for name in kept if name not in handlers]
    if not others:
        return list(handlers.values())
    known = named(source, others)
    for handler in known.values():
        handlers.setdefault(handler.name, handler)
    found = [handler.known_as(kept) for handler in handlers.values()]
    return found if len(known) == len(others) else [handler for handler in found if handler.name in kept]


def marks(
    fingerprint: str,
    handlers: Iterable[Handler],
    using: str,
    last_handler: str,
    unreadable: dict[str, Exception] | None = None,
) -> dict[str, str]:
    """Return handler → mark of everything that ended for a receipt, on every database that its handlers write to.

    Args:
        fingerprint: The receipt's.
        handlers: Its handlers.
        using: The receipts' database alias.
        last_handler: The handler whose mark is on the receipt itself, or an empty string.
        unreadable: Where it is given, gets alias → error of each other database that cannot be read.
    """
    found = {last_handler: "done"} if last_handler else {}
    for alias in dict.fromkeys([using, *(handler.using or using for handler in handlers)]):
        try:
            found |= statements.checkpoints(alias, fingerprint)
        except Exception as error:
            if unreadable is None or alias == using:
                raise
            unreadable[alias] = error
    return found


def lease_seconds(handlers: Iterable[Handler], source: Source) -> float:
    """Return how long a run of the handlers may take, in seconds."""
    return max([source.lease, *(handler.lease or 0 for handler in handlers)])


def bury(using: str, row: statements.Row) -> bool:
    """Write a receipt dead whose attempts are spent, and tell onlookers.

    Args:
        using: The receipts' database alias.
        row: The receipt as it was read.

    Returns:
        Whether this call did it.
    """
    with committed(using):
        buried = statements.bury(using, row)
    if buried:
        announce(webhook_dead, receipt_id=row.id, source=row.source, event_type=row.event_type, reason="exhausted")
    return buried


def announce(signal: Signal, **about: Any) -> None:
    """Tell onlookers; nothing that they do changes an outcome."""
    for receiver, answer in signal.send_robust(sender=WebhookReceipt, **about):
        if isinstance(answer, Exception):
            logger.error("receiver %r of a webhook signal failed", receiver, exc_info=answer)

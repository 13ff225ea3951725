"""What a handler gets, and which handlers want it."""

import base64
import json
import logging
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.dispatch import Signal

from django_webhook_guard import statements
from django_webhook_guard.conf import Source
from django_webhook_guard.handlers import SIGNAL, Handler, matching, registered
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
    return matching(source, event_type) + _listening()


def named(source: str, names: Iterable[str]) -> dict[str, Handler]:
    """Return name → handler for the names, former ones too, that this process knows for a source.

    A name is unique within a source only: another source's handler of that name is another handler.
    """
    serving = [handler for handler in (*registered(), *_listening()) if handler.serves(source)]
    known = {name: handler for handler in serving for name in handler.names}
    return {name: known[name] for name in names if name in known}


def owed(source: str, event_type: str, names: Iterable[str]) -> list[Handler]:
    """Return the handlers that a receipt waits for or has run, in order: those that match, then those it kept.

    Args:
        source: The name of the source that runs it.
        event_type: The type.
        names: The names that the receipt keeps.
    """
    handlers = {handler.name: handler for handler in wanted(source, event_type)}
    others = [name for name in names if name not in handlers]
    for handler in named(source, others).values() if others else ():
        handlers.setdefault(handler.name, handler)
    return list(handlers.values())


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

"""The ledger of outside effects: what a later attempt must know about a call that the database cannot undo.

A row is committed as *started* before the call and gets its result after it. Between the two nobody knows what
happened; the call is then made again with the same key for as long as the other side remembers keys, and never
after that.
"""

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from inspect import isawaitable
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.core.serializers.json import DjangoJSONEncoder

from django_webhook_guard import leases
from django_webhook_guard.exceptions import EffectUnknown, NotDone
from django_webhook_guard.handlers import Handler, awaited
from django_webhook_guard.identity import digest
from django_webhook_guard.leases import Lease
from django_webhook_guard.models import WebhookEffect
from django_webhook_guard.text import storable
from django_webhook_guard.transactions import committed, durable, repeated

handlers_logger = logging.getLogger("django_webhook_guard.handlers")

MAX_NAME = 255
#: Characters of JSON that are kept of a result.
MAX_RESULT = 65_536


def once(
    lease: Lease, handler: Handler, name: str, function: Callable[[str], Any], key_lifetime: float | timedelta
) -> Any:
    """Make a call that must happen once, or return what it returned in an earlier attempt.

    Args:
        lease: What the handler runs under.
        handler: The handler.
        name: Of the effect, unique in its handler.
        function: Makes the call with the key that it is given.
        key_lifetime: How long the other side knows a key again, in seconds or as a timedelta.

    Raises:
        EffectUnknown: An earlier call was started and never came back, and its key is too old.
        LeaseLost: Another attempt has taken over.
        ValueError: The name or the lifetime cannot be used.
    """
    lifetime = key_lifetime.total_seconds() if isinstance(key_lifetime, timedelta) else key_lifetime
    if not isinstance(name, str) or not name or storable(name, MAX_NAME) != name:
        raise ValueError(f"event.once(): the name must be a text of 1 to {MAX_NAME} characters, without NUL.")
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or not lifetime > 0:
        raise ValueError(f"event.once({name!r}): key_lifetime={key_lifetime!r}; give positive seconds.")
    effect = repeated(lambda: _begin(lease, handler, name, lifetime))
    if effect.state == WebhookEffect.State.DONE:
        return json.loads(effect.result)
    if effect.state == WebhookEffect.State.UNKNOWN:
        raise EffectUnknown(f"effect {name!r} of handler {handler.name!r}: effect outcome unknown; settle it")
    try:
        result = function(effect.key)
        if isawaitable(result):
            result = async_to_sync(awaited)(result)
    except NotDone:
        repeated(lambda: _not_done(lease, effect))
        raise
    kept = _json(result, name, handler)
    repeated(lambda: _done(lease, effect, kept))
    return result if kept is None else json.loads(kept)


def _begin(lease: Lease, handler: Handler, name: str, lifetime: float) -> WebhookEffect:
    """Commit that a call begins, and return the row as it then is."""
    digests = [effect_digest(lease.fingerprint, each, name) for each in handler.names]
    with durable(lease.using):
        leases.fence(lease)  # first: on SQLite a transaction that writes first waits for its turn
        rows = WebhookEffect.objects.using(lease.using)
        effect = rows.of(digests)
        if effect is None:
            return rows.start(
                digest=digests[0], fingerprint=lease.fingerprint, handler=handler.name, name=name,
                key=_key(digests[0], 1), attempt=lease.attempt,
            )  # fmt: skip
        if effect.state == WebhookEffect.State.STARTED:
            effect.begin_again(lifetime=lifetime, next_key=_key(effect.digest, effect.keys + 1), attempt=lease.attempt)
        return effect


def effect_digest(fingerprint: str, handler: str, name: str) -> str:
    """Return the unique digest of an effect's row."""
    return digest((fingerprint, handler, name))


def _key(effect: str, number: int) -> str:
    """Return the key of a call: made of what it is for, so that a lost row gives the same one again."""
    return str(UUID(hex=digest((effect, number))[:32], version=4))  # the shape that payment interfaces ask for


def _not_done(lease: Lease, effect: WebhookEffect) -> None:
    with committed(lease.using):
        WebhookEffect.objects.using(lease.using).not_done(effect)


def _done(lease: Lease, effect: WebhookEffect, kept: str | None) -> None:
    with committed(lease.using):
        WebhookEffect.objects.using(lease.using).done(effect, "null" if kept is None else kept)


def _json(result: Any, name: str, handler: Handler) -> str | None:
    """Return a result as JSON; None where it cannot be kept."""
    try:
        text = json.dumps(result, cls=DjangoJSONEncoder, allow_nan=False)
        if len(text) <= MAX_RESULT:
            return text
        why = f"{len(text)} characters of JSON, over {MAX_RESULT}"
    except (TypeError, ValueError, RecursionError) as error:
        why = type(error).__name__
    handlers_logger.warning(
        "webhook handler %s: the result of effect %r cannot be kept (%s); a later attempt gets None",
        handler.name, name, why,
    )  # fmt: skip
    return None

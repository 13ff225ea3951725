"""What a handler can do besides its work while it runs: effects, its own transaction, order, a longer lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from django_webhook_guard import effects, leases, ordering
from django_webhook_guard.exceptions import EffectUnknown
from django_webhook_guard.handlers import Handler
from django_webhook_guard.leases import Lease
from django_webhook_guard.transactions import committed, durable, repeated


class HandlerRun:
    """One call of one handler: what ``WebhookEvent`` asks about itself.

    What is allowed goes by the handler's declaration, never by the connection's state, so that it is the same in
    tests that run inside a transaction.

    Args:
        lease: What it runs under.
        handler: The handler.
    """

    def __init__(self, lease: Lease, handler: Handler) -> None:
        self.lease = lease
        self.handler = handler
        #: Whether ``event.atomic()`` has written the handler's checkpoint.
        self.committed = False
        #: Set when an effect's outcome is unknown, whether or not the handler lets the error pass.
        self.unknown: EffectUnknown | None = None
        self._inside = False

    @property
    def using(self) -> str:
        """The database alias of the handler's effects."""
        return self.handler.using or self.lease.using

    def once(self, name: str, function: Callable[[str], Any], key_lifetime: float | timedelta) -> Any:
        """See ``WebhookEvent.once``."""
        self._only_outside("event.once()")
        try:
            return effects.once(self.lease, self.handler, name, function, key_lifetime)
        except EffectUnknown as error:
            self.unknown = error
            raise

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """See ``WebhookEvent.atomic``; refused where an effect's outcome is unknown, which a commit would hide."""
        self._only_outside("event.atomic()")
        if self.unknown is not None:
            raise self.unknown
        using, complete = self.using, False
        self._inside = True
        try:
            with durable(using):
                if connections[using].vendor == "sqlite" and using == self.lease.using:
                    leases.fence(self.lease)  # a transaction that writes first waits for SQLite's lock
                yield
                leases.mark(self.lease, self.handler, "done", "", using)
                complete = True
        except Exception:
            self.committed = complete and leases.is_committed(self.lease, self.handler, using)
            raise
        finally:
            self._inside = False
        self.committed = True

    def supersedes(self, tenant: str | None, object_key: str, version: int | datetime, strict: bool) -> bool:
        """See ``WebhookEvent.supersedes``."""
        mark = ordering.version_of(self.lease, self.handler, tenant, object_key, version)
        if self.handler.atomic or self._inside:
            return ordering.advance(self.using, mark, strict=strict)

        def advance() -> bool:
            with durable(self.using):
                if self.using == self.lease.using:
                    leases.fence(self.lease)  # a run that is over moves no mark
                return ordering.advance(self.using, mark, strict=strict)

        return repeated(advance)

    def renew(self) -> None:
        """See ``WebhookEvent.renew``."""
        self._only_outside("event.renew()")
        with committed(self.lease.using):
            leases.fence(self.lease)

    def _only_outside(self, what: str) -> None:
        name = self.handler.name
        if self.handler.atomic:
            raise RuntimeError(f"{what} in webhook handler {name!r}: register it with atomic=False.")
        if self._inside:
            raise RuntimeError(f"{what} in webhook handler {name!r}: call it before event.atomic(), not inside.")
        if self.committed:
            raise RuntimeError(f"{what} in webhook handler {name!r}: event.atomic() has ended its work already.")

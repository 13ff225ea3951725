"""The registry of business work."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from inspect import isasyncgenfunction, isawaitable, isgeneratorfunction
from typing import Any, TypeVar

from asgiref.sync import async_to_sync

from django_webhook_guard.exceptions import Misconfigured

Function = TypeVar("Function", bound=Callable[..., Any])

#: The name under which all receivers of ``webhook_received`` together are one handler.
SIGNAL = "signal"
#: The type of events that ``webhook_drill`` sends, which only a handler gets that names it.
DRILL = "webhook_guard.drill"
MAX_NAME = 255
#: Seconds, as for ``LEASE``: what no database can add to its clock would be a lease without an end.
MAX_LEASE = 10**10


@dataclass(frozen=True, kw_only=True)
class Handler:
    """One unit of business work and of retry.

    Args:
        name: What checkpoints keep.
        formerly: Names before a rename.
        function: What runs.
        sources: Names of the sources it takes events of; empty: all.
        patterns: Patterns of types, matched by ``fnmatchcase``.
        atomic: Whether it runs inside the fenced transaction.
        using: The database alias of that transaction; None: the receipts'.
        lease: How long a run may take, in seconds; None: the source's.
        fetch: What runs first, outside the transaction, or None.
        object_key: The object of the event, as a body path or a function of the event; None: the event's own.
        version: Its version, likewise; None: events are taken in any order.
    """

    name: str
    function: Callable[..., Any]
    sources: frozenset[str]
    patterns: tuple[str, ...]
    formerly: tuple[str, ...] = ()
    atomic: bool = True
    using: str | None = None
    lease: float | None = None
    fetch: Callable[..., Any] | None = None
    object_key: str | Callable[..., Any] | None = None
    version: str | Callable[..., Any] | None = None

    def serves(self, source: str) -> bool:
        """Tell whether the handler takes events of a source at all."""
        return not self.sources or source in self.sources

    def matches(self, source: str, event_type: str) -> bool:
        """Tell whether the handler wants an event; a missing type is matched by ``*`` only, a drill by no pattern."""
        if not self.serves(source):
            return False
        if event_type == DRILL:
            return DRILL in self.patterns
        if not event_type:
            return "*" in self.patterns
        return any(fnmatchcase(event_type, pattern) for pattern in self.patterns)

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the former ones."""
        return (self.name, *self.formerly)

    def known_as(self, kept: Sequence[str]) -> "Handler":
        """Return the handler under the first of its names that a receipt keeps, or as it is where it keeps none."""
        name = next((each for each in self.names if each in kept), self.name)
        if name == self.name:
            return self
        return replace(self, name=name, formerly=tuple(each for each in self.names if each != name))

    def call(self, event: Any) -> Any:
        """Run the function; what it leaves to be awaited, on an event loop of its own."""
        return _called(self.function, event)

    def fetched(self, event: Any) -> Any:
        """Call ``fetch``."""
        return None if self.fetch is None else _called(self.fetch, event)


def _called(function: Callable[..., Any], event: Any) -> Any:
    result = function(event)
    return async_to_sync(awaited)(result) if isawaitable(result) else result


async def awaited(result: Awaitable[Any]) -> Any:
    """Await what a function left to be awaited."""
    return await result


_registry: list[Handler] = []


def webhook_handler(
    sources: str | Iterable[str],
    patterns: str | Iterable[str],
    *,
    name: str | None = None,
    formerly: str | Iterable[str] = (),
    atomic: bool = True,
    using: str | None = None,
    lease: float | timedelta | None = None,
    fetch: Callable[[Any], Any] | None = None,
    object_key: str | Callable[[Any], str] | None = None,
    version: str | Callable[[Any], Any] | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the work to do for events.

    The function takes a ``WebhookEvent``. What it returns as text is kept as the result and shown on the
    receipt. It runs inside a transaction that commits together with the mark that it ran, so that its effects
    on that database happen exactly once; its body may run more than once, after a deadlock for example. With
    ``atomic=False`` it runs outside of any transaction, at least once.

    Args:
        sources: Name of a source, or several.
        patterns: Pattern of event types, or several: ``"invoice.*"``; only ``"*"`` matches an event without type.
        name: What is kept in the database; ``module:qualname`` where it is not given. It must not change
            while receipts are open, or the old one goes into ``formerly``.
        formerly: Names before a rename.
        atomic: Whether it runs inside the transaction.
        using: The database alias of its effects; by default the receipts'.
        lease: How long it may run, in seconds or as a timedelta; by default the source's ``LEASE``.
        fetch: A function of the event that runs first, outside the transaction: for senders whose event only says
            "look again". What it returns is ``event.fetched``.
        object_key: The object of the event, for ``version``: a dotted body path, or a function of the event; by
            default ``event.object_key``.
        version: The version of that object: a dotted body path, or a function of the event, to a number or an aware
            time. An event that is older than one that this handler has seen is not handed to it, and ends as
            ignored, with the reason ``superseded``. Equal versions are both handed to it.

    Raises:
        ImproperlyConfigured: An empty list, a name over 255 characters or the reserved ``signal``, a generator,
            a lease that is not positive, or an ``object_key`` without ``version``.
    """
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease

    def register(function: Function) -> Function:
        handler = Handler(
            name=name or f"{function.__module__}:{function.__qualname__}",
            function=function,
            sources=frozenset(_listed(sources)),
            patterns=tuple(_listed(patterns)),
            formerly=tuple(_listed(formerly)),
            atomic=atomic,
            using=using,
            lease=seconds,
            fetch=fetch,
            object_key=object_key,
            version=version,
        )
        _check(handler)
        _registry.append(handler)
        matching.cache_clear()
        return function

    return register


def _listed(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _check(handler: Handler) -> None:
    where = f"webhook_handler {handler.name!r}"
    if not handler.sources or not handler.patterns:
        raise Misconfigured(f"{where}: name at least one source and one type pattern.")
    if any(len(each) > MAX_NAME or each == SIGNAL for each in handler.names):
        raise Misconfigured(f"{where}: a name has at most {MAX_NAME} characters and is not {SIGNAL!r}.")
    if isgeneratorfunction(handler.function) or isasyncgenfunction(handler.function):
        raise Misconfigured(f"{where}: it is a generator, which calling does not run; write it without yield.")
    if handler.object_key is not None and handler.version is None:
        raise Misconfigured(f"{where}: object_key= is only looked at together with version=.")
    if handler.lease is not None and not 0 < handler.lease <= MAX_LEASE:
        raise Misconfigured(f"{where}: lease={handler.lease!r}; give positive seconds, at most {MAX_LEASE}.")


def registered() -> tuple[Handler, ...]:
    """Return all handlers in order of registration."""
    return tuple(_registry)


@lru_cache(maxsize=1024)
def matching(source: str, event_type: str) -> tuple[Handler, ...]:
    """Return the handlers of an event in order of registration.

    Raises:
        Misconfigured: Two functions have one name, so that one of them would never run.
    """
    found: dict[str, Handler] = {}
    owners: dict[str, Handler] = {}
    for handler in _registry:
        if handler.matches(source, event_type):
            found.setdefault(handler.name, handler)
            for name in handler.names:
                if owners.setdefault(name, handler).function is not handler.function:
                    raise Misconfigured(
                        f"Two webhook handlers of source {source!r} are or were named {name!r}: rename one of them."
                    )
    return tuple(found.values())


def unregister(*functions: Callable[..., Any]) -> None:
    """Forget functions, for tests that register their own."""
    _registry[:] = [handler for handler in _registry if handler.function not in functions]
    matching.cache_clear()

"""Deliveries as a source's sender would make them: composed from where the parts are, and signed by the scheme."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from django.core.management.base import CommandError

from django_webhook_guard.conf import UnknownSource, configuration, get_source
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent, Misconfigured, UnknownTenant, VerificationError
from django_webhook_guard.identity import identify
from django_webhook_guard.locators import MISSING, Body, Either, Header, Locator, Query, Reading, Single, parts
from django_webhook_guard.secrets import Secret
from django_webhook_guard.sources import URL_TENANT, Source
from django_webhook_guard.verifiers import HMACVerifier

#: What the connection says by itself.
_OF_THE_CONNECTION = frozenset({"connection", "content-length", "host", "transfer-encoding"})


@dataclass(frozen=True, kw_only=True)
class Message:
    """A signed request.

    Args:
        url: Where it goes.
        headers: Names in lower case.
        body: The bytes.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def source_named(name: str) -> Source:
    """Return a source that may accept deliveries.

    Raises:
        CommandError: There is none, or it is misconfigured.
    """
    try:
        return get_source(name)
    except UnknownSource:
        known = ", ".join(configuration().sources) or "none"
        raise CommandError(f"Source {name!r} is not configured; known: {known}.") from None
    except Misconfigured as error:
        raise CommandError(str(error)) from None


def signed(
    source: Source, url: str, headers: Mapping[str, str], body: bytes, *, tenant: str | None, now: datetime
) -> Message:
    """Sign a body with the source's first live secret.

    Args:
        source: Whose scheme and secret.
        url: Where it goes.
        headers: Those that it has beside the proof, in lower case.
        body: The bytes.
        tenant: The tenant, where the source has some.
        now: The stamp.

    Raises:
        CommandError: The scheme cannot be signed from its declaration, or there is no secret.
    """
    return _signed(source, url, headers, body, _secret(source, tenant, now), now)[0]


def composed(source: Source, url: str, event_type: str, *, tenant: str | None, now: datetime) -> Message:
    """Compose and sign an event that nobody else has sent, with its parts where the source looks for them.

    Args:
        source: The source.
        url: Where it goes.
        event_type: Its type.
        tenant: Its tenant, where the source has some; by default that of the secret.
        now: The stamp.

    Raises:
        CommandError: The source's locators or scheme do not allow it.
    """
    secret, rules = _secret(source, tenant, now), source.rules
    tenant = tenant if tenant is not None else secret.tenant
    draft, mark = _Draft(source.name), f"drill_{uuid4().hex}"
    draft.type(rules.event_type, event_type)
    if rules.tenant is not None:
        draft.fill(rules.tenant, tenant if tenant is not None else "drill")
    draft.fill(rules.event_id if rules.event_id is not None else rules.key_fields, mark)
    draft.data.setdefault("drill", mark)
    target = url + (("&" if "?" in url else "?") + urlencode(draft.query) if draft.query else "")
    body = json.dumps(draft.data).encode()
    message, delivery = _signed(source, target, draft.headers, body, secret, now)
    _check(source, delivery, secret, event_type)
    return message


def _secret(source: Source, tenant: str | None, now: datetime) -> Secret:
    if source.tenant == URL_TENANT and tenant is None:
        raise CommandError(f"The URL of source {source.name!r} names a tenant: give --tenant.")
    try:
        live = source.live_secrets(tenant if source.tenant == URL_TENANT else None, now)
    except UnknownTenant:
        raise CommandError(f"Source {source.name!r} has no tenant {tenant!r}.") from None
    except Misconfigured as error:
        raise CommandError(str(error)) from None
    found = next((each for each in live if tenant is None or each.tenant in (None, tenant)), None)
    if found is None:
        raise CommandError(f"Source {source.name!r} has no secret for tenant {tenant!r}.")
    return found


def _signed(
    source: Source, url: str, headers: Mapping[str, str], body: bytes, secret: Secret, now: datetime
) -> tuple[Message, Delivery]:
    verifier = source.provider.verifier
    if not isinstance(verifier, HMACVerifier):
        raise CommandError(
            f"Source {source.name!r} is proven by a {type(verifier).__name__}, which this command cannot make: it "
            "signs only what an HMACVerifier declares."
        )
    base = {"content-type": "application/json", "user-agent": "django-webhook-guard"}
    kept = {**base, **{name: value for name, value in headers.items() if name not in _OF_THE_CONNECTION}}
    split = urlsplit(url)
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    received = source.public_url + target if source.public_url is not None else url
    unsigned = Delivery(method="POST", url=received, headers=kept, body=body)
    try:
        proof = verifier.sign(unsigned, secret, at=now, nonce=_nonce(verifier.nonce_pattern))
        kept |= {name.lower(): value for name, value in proof.items()}
        delivery = Delivery(method="POST", url=received, headers=kept, body=body)
        verifier.verify(delivery, [secret])
    except (VerificationError, ValueError) as error:
        raise CommandError(f"Source {source.name!r}: its scheme cannot be signed ({type(error).__name__}).") from None
    return Message(url=url, headers=kept, body=body), delivery


def _nonce(pattern: str) -> str:
    made = uuid4()
    choices = (made.hex, str(made), str(made.int), str(made.int)[:16], made.hex[:16])
    return next((each for each in choices if re.fullmatch(pattern, each)), made.hex)


def _check(source: Source, delivery: Delivery, secret: Secret, event_type: str) -> None:
    """Read the delivery as the source will.

    Raises:
        CommandError: The source would find something else in it than was meant.
    """
    provider = source.provider
    try:
        data, form = provider.parse(delivery.body, delivery.headers["content-type"])
        item = None if provider.split is None else 0
        part = data if provider.split is None else provider.split(data)[0]
        verification = provider.verifier.verify(delivery, [secret])
        event = identify(Reading(delivery, part, form), verification, source.rules, tenant=None, late=False, item=item)
    except (MalformedContent, LookupError, TypeError, ValueError) as error:
        raise CommandError(f"No event can be made up for source {source.name!r} ({error}).") from None
    if event.event_type != event_type:
        raise CommandError(
            f"No event of type {event_type!r} can be made up for source {source.name!r}: it would read "
            f"{event.event_type!r}. Send an exported one."
        )


class _Draft:
    """The parts of an event that is being made up, each where its locator looks for it."""

    def __init__(self, source: str) -> None:
        self.data: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.query: dict[str, str] = {}
        self._source = source

    def type(self, locator: Locator | None, event_type: str) -> None:
        """Put a type where it is looked for; where several parts make it, at its last dots."""
        if locator is None:
            raise CommandError(f"Source {self._source!r} says nowhere where an event's type is.")
        needed = [each for each in parts(locator) if not each.optional] or [*parts(locator)][:1]
        words = event_type.rsplit(".", len(needed) - 1)
        if len(words) < len(needed):
            raise CommandError(f"The type of an event of source {self._source!r} has {len(needed)} parts.")
        for each, word in zip(needed, words, strict=True):
            self._put(each, word)

    def fill(self, locator: Locator, value: str) -> None:
        """Put a value at each part of a locator where nothing is yet."""
        for each in parts(locator):
            self._put(each, value)

    def _put(self, locator: Single, value: str) -> None:
        if isinstance(locator, Either):
            self._put(locator.choices[0], value)
        elif isinstance(locator, Header):
            self.headers.setdefault(locator.name.lower(), value)
        elif isinstance(locator, Query):
            self.query.setdefault(locator.name, value)
        elif isinstance(locator, Body) and locator.path:
            self._into_the_body(locator, value)
        else:
            raise CommandError(f"Source {self._source!r} reads {locator!r}, which this command cannot make up.")

    def _into_the_body(self, locator: Body, value: str) -> None:
        if locator.find_in(self.data) is not MISSING:
            return
        place = self.data
        for step in locator.path[:-1]:
            place = place.setdefault(str(step), {})
            if not isinstance(place, dict):
                raise CommandError(f"Source {self._source!r} reads {locator!r} inside of another value.")
        place[str(locator.path[-1])] = value

"""Which event is it, and was this signed message used before? Two questions, two digests.

What the digests are made of is a stored format: tests pin it by golden values, and a change of a byte here
would make every stored event new again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import MISSING, Locator, Reading, Single, is_covered, parts
from django_webhook_guard.verifiers.base import Verification

Part = str | int | bytes | None
Kind = Literal["id", "paired", "fields", "nonce", "content"]

#: The longest id, nonce, tenant or type, in characters; the same on every database.
MAX_LENGTH = 255


@dataclass(frozen=True, kw_only=True)
class IdentityRules:
    """Where the parts of an event's identity are, and what the proof covers.

    Args:
        source: The source's name.
        namespace: What ids are unique within.
        event_id: Locator of the event's id, or None.
        key_fields: Locators of the fields that are the key where there is no id.
        event_type: Locator of the type; the parts of a tuple are joined by a dot.
        type_in_key: Whether the type is part of the key, because one body may carry several types.
        tenant: Locator of the tenant, None where the URL or nothing names it.
        occurred_at: Locator of the event's own time.
        object_key: Locator of the object that the event is about.
        covers: Parts that the proof covers.
        covered_headers: Headers, in lower case, that the proof covers.
    """

    source: str
    namespace: str
    event_id: Locator | None = None
    key_fields: tuple[Single, ...] = ()
    event_type: Locator | None = None
    type_in_key: bool = False
    tenant: Locator | None = None
    occurred_at: Locator | None = None
    object_key: Locator | None = None
    covers: frozenset[str] = frozenset()
    covered_headers: frozenset[str] = frozenset()

    def covered(self, locator: Locator) -> bool:
        """Tell whether the proof covers every part of a locator."""
        return all(is_covered(each, self.covers, self.covered_headers) for each in parts(locator))

    @cached_property
    def id_covered(self) -> bool:
        """Whether the proof covers the id."""
        return self.event_id is not None and self.covered(self.event_id)


@dataclass(frozen=True, kw_only=True)
class Key:
    """The event key: its kind, its parts, and one readable form for people."""

    kind: Kind
    parts: tuple[Part, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """A verified, identified event, before it is claimed.

    Args:
        source: The source's name.
        namespace: What its ids are unique within.
        tenant: The proven tenant, or None.
        event_id: The id as text, or an empty string.
        event_type: The type, or an empty string.
        object_key: The object it is about, or an empty string.
        key: The event key.
        data: The parsed body.
        body_digest: SHA-256 of the body, 32 bytes.
        verification: What the proof proved.
        typed: The type where it is part of the key, else None.
        signed_at: The signed stamp.
        occurred_at: The event's own time.
        key_id: Which key signed.
        late: Whether the stamp lies before the window.
        item: Its number in a batch, from 0; None where it came alone.
        held: Why it may not have the fingerprint of a key, or an empty string.
    """

    source: str
    namespace: str
    tenant: str | None
    event_id: str
    event_type: str
    object_key: str
    key: Key
    data: Any = field(repr=False)
    body_digest: bytes = field(repr=False)
    verification: Verification = field(repr=False)
    typed: str | None
    signed_at: datetime | None
    occurred_at: datetime | None
    key_id: str
    late: bool = False
    item: int | None = None
    held: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The 64 hex under which the event has its one receipt."""
        if self.held:
            return held_fingerprint(self.held, self.seen_digest)
        return fingerprint(self.namespace, self.tenant, self.key)

    @cached_property
    def seen_digest(self) -> str:
        """The 64 hex of the authenticated content, whatever event it claims to be."""
        return seen_digest(self.verification.secret.seen_key, self.verification.content, self.item or 0, self.typed)

    def under(self, namespace: str) -> "Event":
        """Return the same event under another namespace."""
        return replace(self, namespace=namespace)


def digest(values: Iterable[Part]) -> str:
    """Return the SHA-256, as 64 hex, of values that are told apart by tag and length.

    Each value is one tag byte (``s`` text, ``i`` int in decimal, ``b`` bytes, ``n`` none), its length in
    8 bytes big-endian, and its bytes (text in UTF-8).
    """
    hashed = sha256()
    for value in values:
        if isinstance(value, str):
            tag, content = b"s", value.encode("utf-8", "surrogatepass")
        elif isinstance(value, bytes):
            tag, content = b"b", value
        elif value is None:
            tag, content = b"n", b""
        else:
            tag, content = b"i", str(value).encode()
        hashed.update(tag + len(content).to_bytes(8, "big") + content)
    return hashed.hexdigest()


def fingerprint(namespace: str, tenant: str | None, key: Key) -> str:
    """Return the fingerprint of an event key within a namespace and tenant."""
    return digest(("v1", namespace, tenant, key.kind, *key.parts))


def seen_digest(seen_key: bytes, content: bytes, item: int = 0, event_type: str | None = None) -> str:
    """Return the digest of an authenticated content.

    Args:
        seen_key: What stands for the secret that verified, 32 bytes; neither source nor tenant nor key id
            is part of it, so a captured message is the same one at every door.
        content: The very bytes that were signed.
        item: The event's number in a batch.
        event_type: The type where it is part of the key, else None.
    """
    return digest((seen_key, content, item, event_type))


def held_fingerprint(reason: str, *parts: Part) -> str:
    """Return the fingerprint of a held row, which never is that of the key it claims.

    Args:
        reason: The code why it is held.
        parts: The seen digest; for a reused key its fingerprint and the body's digest.
    """
    return digest(("held", reason, *parts))


def identify(
    reading: Reading,
    verification: Verification,
    rules: IdentityRules,
    *,
    tenant: str | None,
    late: bool,
    item: int | None = None,
) -> Event:
    """Find out which event a verified delivery reports.

    Args:
        reading: The delivery and its parsed body.
        verification: What the proof proved.
        rules: Where the parts are.
        tenant: The proven tenant of the URL, or None; a locator in the rules is asked here.
        late: Whether the stamp lies before the window.
        item: The event's number in a batch.

    Raises:
        MalformedContent: A declared part is missing, or is no id.
    """
    if rules.tenant is not None:
        tenant = _tenant(rules.tenant, reading)
    elif tenant is not None:
        tenant = _text(tenant, "tenant")
    event_type = _event_type(rules.event_type, reading)
    typed = event_type if rules.type_in_key else None
    event_id = _parts_of(rules.event_id, reading, "event id") if rules.event_id is not None else None
    extra: tuple[Part, ...] = () if typed is None else (typed,)
    key = _key(rules, reading, verification, event_id, extra, item)
    readable_id = " ".join(str(part) for part in event_id or ())
    _check_text(readable_id, "event id")
    return Event(
        source=rules.source,
        namespace=rules.namespace,
        tenant=tenant,
        event_id=readable_id,
        event_type=event_type,
        object_key=_object_key(rules.object_key, reading),
        key=key,
        data=reading.data,
        body_digest=reading.delivery.body_digest,
        verification=verification,
        typed=typed,
        signed_at=verification.signed_at,
        occurred_at=_moment(rules.occurred_at, reading),
        key_id=verification.secret.key_id,
        late=late,
        item=item,
    )


def unidentified(
    reading: Reading, verification: Verification, rules: IdentityRules, *, tenant: str | None, late: bool, item: int
) -> Event:
    """Return what stands for an item of a batch that nothing identifies: it is kept for a person.

    Args:
        reading: The delivery and the item.
        verification: What the proof proved.
        rules: Where the parts would be.
        late: Whether the stamp lies before the window.
        item: The item's number.
    """
    content = sha256(verification.content).digest()
    return Event(
        source=rules.source,
        namespace=rules.namespace,
        tenant=tenant,
        event_id="",
        event_type="",
        object_key="",
        key=Key(kind="content", parts=(content, item), text=f"{content.hex()} {item}"),
        data=reading.data,
        body_digest=reading.delivery.body_digest,
        verification=verification,
        typed=None,
        signed_at=verification.signed_at,
        occurred_at=None,
        key_id=verification.secret.key_id,
        late=late,
        item=item,
        held="no_key",
    )


def _key(
    rules: IdentityRules,
    reading: Reading,
    verification: Verification,
    event_id: tuple[str | int, ...] | None,
    extra: tuple[Part, ...],
    item: int | None,
) -> Key:
    body = reading.delivery.body_digest
    if event_id is not None:
        return _paired_unless(rules.id_covered, "id", event_id, body, extra)
    fields = _parts_of(rules.key_fields, reading, "key field") if rules.key_fields else None
    if fields is not None:
        return _paired_unless(rules.covered(rules.key_fields), "fields", fields, body, extra)
    if item is not None:
        extra = (*extra, item)  # nonce and content are the whole delivery's
    if verification.nonce is not None:
        return Key(kind="nonce", parts=(verification.nonce, *extra), text=verification.nonce)
    content = sha256(verification.content).digest()
    return Key(kind="content", parts=(content, *extra), text=content.hex())


def _paired_unless(
    covered: bool, kind: Kind, values: tuple[str | int, ...], body: bytes, extra: tuple[Part, ...]
) -> Key:
    text = " ".join(str(value) for value in values)
    if covered:
        return Key(kind=kind, parts=(*values, *extra), text=text)
    return Key(kind="paired", parts=(*values, body, *extra), text=text)


def _tenant(locator: Locator, reading: Reading) -> str:
    values = _parts_of(locator, reading, "tenant")
    if not values:
        raise MalformedContent("tenant is missing")
    if len(values) == 1:
        return _text(values[0], "tenant")
    # Escaped, so that no two tenants are joined into one text.
    escaped = [str(value).replace("%", "%25").replace(" ", "%20") for value in values]
    return _text(" ".join(escaped), "tenant")


def _parts_of(locator: Locator, reading: Reading, name: str) -> tuple[str | int, ...] | None:
    """Return all parts of a locator, or None where a part marked optional is missing."""
    values: list[str | int] = []
    for each in parts(locator):
        value = each.find(reading)
        if value is MISSING:
            if each.optional:
                return None
            raise MalformedContent(f"{name} is missing")
        values.append(_identifier(value, name))
    return tuple(values)


def _identifier(value: Any, name: str) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(10**MAX_LENGTH) < value < 10**MAX_LENGTH:
            raise MalformedContent(f"{name} has more than {MAX_LENGTH} digits")
        return value
    return _text(value, name)


def _text(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise MalformedContent(f"{name} is neither text nor a whole number")
    if not value.strip():
        raise MalformedContent(f"{name} is blank")
    _check_text(value, name)
    return value


def is_name(value: str) -> bool:
    """Tell whether a text may be an id or a tenant: not blank, not too long, and fit for every database."""
    return bool(value.strip()) and len(value) <= MAX_LENGTH and _storable(value)


def _check_text(value: str, name: str) -> None:
    if len(value) > MAX_LENGTH:
        raise MalformedContent(f"{name} is longer than {MAX_LENGTH} characters")
    if not _storable(value):
        raise MalformedContent(f"{name} holds a NUL or a lone surrogate")


def _storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _event_type(locator: Locator | None, reading: Reading) -> str:
    """Return the type, its parts joined by a dot without the optional ones that are missing, else an empty text."""
    found: list[str] = []
    for each in parts(locator) if locator is not None else ():
        value = each.find(reading)
        if value is not MISSING and value is not None and value != "":
            found.append(_typed(value))
        elif not each.optional:
            return ""
    event_type = ".".join(found)
    _check_text(event_type, "event type")
    return event_type


def _typed(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise MalformedContent("event type is neither text nor a whole number")
    return str(value)


def _object_key(locator: Locator | None, reading: Reading) -> str:
    """Return the object's key, or an empty string: it orders and finds events, it does not identify them."""
    if locator is None:
        return ""
    try:
        values = _parts_of(locator, reading, "object")
    except MalformedContent:
        return ""
    text = " ".join(str(value) for value in values or ())
    return text if len(text) <= MAX_LENGTH else ""


def _moment(locator: Locator | None, reading: Reading) -> datetime | None:
    """Return the event's own time; unix seconds or milliseconds, or ISO 8601 with a zone, else None."""
    if locator is None:
        return None
    value = parts(locator)[0].find(reading)
    try:
        if isinstance(value, str) and not value.isdigit():
            moment = datetime.fromisoformat(value)
            return _showable(moment.astimezone(UTC)) if moment.tzinfo else None
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        number = float(value)
        seconds = number / 1000 if number > 1e11 else number
        return _showable(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
    except (ValueError, OverflowError):
        return None


def _showable(moment: datetime) -> datetime | None:
    """Return a moment that every database keeps and every time zone can show, else None."""
    return moment if 1000 < moment.year < MAXYEAR else None

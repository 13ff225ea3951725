"""A shared secret that never shows itself."""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from types import MappingProxyType

#: The shortest key for HMAC that NIST SP 800-131A (revision 2, section 10) allows is 112 bits: 14 bytes.
MINIMUM_LENGTH = 14
#: The longest name of a key, and of the tenant that holds it: what their columns take.
MAX_ID = 64
MAX_TENANT = 255

_KEY_ID_LABEL = b"django-webhook-guard key id"
_SEEN_LABEL = b"django-webhook-guard seen"
#: What a copied secret may carry unseen: byte order mark, zero-width space and joiners.
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_API_KEYS = re.compile(
    r"(sk|pk|rk)_(test|live)_|pk_|ghp_|gho_|ghu_|ghs_|github_pat_|glpat-|xox[abprs]-|shpat_|AKIA|SG\.|AIza"
)
_PLACEHOLDER = re.compile(
    r"change[-_ ]?me|place[-_ ]?holder|replace[-_ ]?(me|this)|(your|my)[-_ ](webhook[-_ ])?(secret|key|token)"
    r"|insert[-_ ]|x{6,}|\.{3}|^<.*>$|^\$?\{.*\}$|^todo",
    re.IGNORECASE,
)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(text: str) -> bytes:
    """Decode base64 whose padding may be missing, as the Standard Webhooks libraries do."""
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _whsec(text: str) -> bytes:
    return _base64(text.removeprefix("whsec_"))


DECODINGS: Mapping[str, Callable[[str], bytes]] = MappingProxyType(
    {"raw": _raw, "hex": bytes.fromhex, "base64": _base64, "whsec": _whsec}
)


def _end_of(moment: datetime | date | str | None) -> datetime | None:
    if moment is None:
        return None
    if isinstance(moment, str):
        return _end_of(_read(moment))
    if isinstance(moment, datetime):
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if not isinstance(moment, date):
        raise ValueError("not_after is no date")
    try:
        return datetime.combine(moment, time.min, tzinfo=UTC) + timedelta(days=1)
    except OverflowError:  # the last day of the calendar: for ever
        return datetime.max.replace(tzinfo=UTC)


def _read(text: str) -> datetime | date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


@dataclass(frozen=True, init=False)
class Secret:
    """A secret shared with a sender.

    Args:
        secret: The text as the sender shows it.
        id: A name for this key, shown in the admin; made from the secret where it is not given.
        not_after: Until when it is accepted; a bare date is the end of that day in UTC, a time without
            zone is UTC.
        tenant: The tenant that alone holds this secret.

    Raises:
        ValueError: ``not_after`` is no date.
    """

    secret: str = field(repr=False)
    id: str | None = None
    not_after: datetime | None = None
    tenant: str | None = None

    def __init__(
        self,
        secret: str,
        *,
        id: str | None = None,
        not_after: datetime | date | str | None = None,
        tenant: str | None = None,
    ) -> None:
        object.__setattr__(self, "secret", secret)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "not_after", _end_of(not_after))
        object.__setattr__(self, "tenant", tenant)

    @cached_property
    def key_id(self) -> str:
        """The name, or the first 8 hex of an HMAC of a fixed label; never the position."""
        return self.id or hmac.digest(_raw(self.secret), _KEY_ID_LABEL, "sha256").hex()[:8]

    @cached_property
    def seen_key(self) -> bytes:
        """What stands for this secret in the digest of a seen message."""
        return hmac.digest(_raw(self.secret), _SEEN_LABEL, "sha256")

    def mac(self, content: bytes, *, algorithm: str, decoding: str = "raw") -> bytes:
        """Return the HMAC of the content. The key's bytes never leave this frame.

        Args:
            content: The signed bytes.
            algorithm: A hash name of hashlib.
            decoding: ``raw``, ``hex``, ``base64`` or ``whsec``: how the text becomes a key.

        Raises:
            ValueError: The text cannot be decoded that way.
        """
        return hmac.digest(DECODINGS[decoding](self.secret), content, algorithm)

    def live(self, now: datetime) -> bool:
        """Tell whether the secret is still accepted."""
        return self.not_after is None or now < self.not_after

    def flaw(self, decoding: str = "raw") -> str | None:
        """Return why the secret must not be used, without its value, or None.

        Args:
            decoding: ``raw``, ``hex``, ``base64`` or ``whsec``.
        """
        if not isinstance(self.secret, str):
            return "is not text"
        for name, value, longest in (("id", self.id, MAX_ID), ("tenant", self.tenant, MAX_TENANT)):
            if value is not None and not _is_name(value, longest):
                return f"has as {name} no printable text of 1 to {longest} characters"
        return _flaw_of(self.secret, decoding)


def _is_name(value: object, longest: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= longest and value.strip() != "" and value.isprintable()


def _flaw_of(text: str, decoding: str) -> str | None:
    if not text.strip():
        return "is blank"
    if text != text.strip() or text != text.strip(_INVISIBLE):
        return "has white space around it"
    if _API_KEYS.match(text):
        return "looks like an API key, not like a signing secret"
    if len(set(text)) == 1 or _PLACEHOLDER.search(text):
        return "looks like a placeholder"
    try:
        key = DECODINGS[decoding](text)
    except (ValueError, binascii.Error):
        return f"cannot be read as {decoding}"
    if len(key) < MINIMUM_LENGTH:
        return f"is shorter than {MINIMUM_LENGTH} bytes"
    return None

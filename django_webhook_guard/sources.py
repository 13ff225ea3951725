"""What the ``WEBHOOK_GUARD`` setting says, as frozen values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from django.db import models
from django.http import HttpRequest

from django_webhook_guard.exceptions import Misconfigured, UnknownTenant
from django_webhook_guard.identity import Event, IdentityRules
from django_webhook_guard.locators import Body, Locator
from django_webhook_guard.providers import Provider
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.schemas import Schemas
from django_webhook_guard.secrets import Secret

Key = TypeVar("Key")
Value = TypeVar("Value")

SETTING = "WEBHOOK_GUARD"
#: How many tenants' secrets a process remembers of a source.
MAX_REMEMBERED = 1024
URL_TENANT = "url"
#: Every decision, and the HTTP status that it is answered with unless the provider or ``RESPONSES`` says otherwise.
STATUS: Mapping[str, int] = MappingProxyType(
    {
        "processed": 200,
        "ignored": 200,
        "failed": 500,
        "retry_later": 503,
        "gave_up": 200,
        "accepted": 202,
        "duplicate": 200,
        "busy": 503,
        "quarantined": 202,
        "declined": 200,
        "handshake": 200,
        "rejected": 401,
        "late": 400,
        "malformed": 400,
        "not_found": 404,
        "wrong_method": 405,
        "too_large": 413,
        "unavailable": 503,
    }
)
DECISIONS = frozenset(STATUS)
#: Decisions after which the event is not stored, or nobody will run it: a 2xx would lose it.
NOT_HELD = DECISIONS - {
    "processed", "ignored", "gave_up", "accepted", "duplicate", "quarantined", "declined", "handshake"
}  # fmt: skip

#: What wakes a worker, by its short name.
DISPATCHERS = ("sweeper", "tasks", "celery")

SecretsFor = Callable[[str, str | None], Iterable[Secret]]
Accept = Callable[[Event], bool]
Wake = Callable[[int], Any]
ReceiptsFor = Callable[[HttpRequest], "models.QuerySet[Any]"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a setting that makes a source unusable, or that is worth a warning.

    Args:
        id: The stable id of the system check, such as ``E003``.
        message: Names the setting and the value seen, never a secret.
        hint: The next step.
        source: The source it makes unusable, None where it concerns no source as a whole.
        everywhere: Whether it makes every source unusable.
    """

    id: str
    message: str
    hint: str
    source: str | None = None
    everywhere: bool = False

    @property
    def fatal(self) -> bool:
        return self.id.startswith("E")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """For how many days something of a finished receipt is kept; None: for ever.

    Args:
        body: Its body.
        headers: Its kept headers.
        row: The receipt itself.
        unstamped_row: A receipt that is the only guard against a replay; ``"key"``: as long as ``row`` says, and until
            the key that signed it is gone.
    """

    body: float | None = 30
    headers: float | None = 30
    row: float | None = 400
    unstamped_row: float | Literal["key"] | None = "key"


#: What stands for a ``PERSONAL`` that cannot be read: the whole body is personal.
EVERYTHING = (Body(),)
#: What stands for a ``RETENTION`` that cannot be read: nothing goes.
KEPT = Retention(body=None, headers=None, row=None, unstamped_row=None)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A configured sender.

    Args:
        name: Its name in the setting.
        provider: What is known about its kind.
        rules: Where the parts of its events are.
        secrets: The listed secrets that may be used; empty where a callable is asked.
        secrets_for: The project's look-up, or None.
        secrets_ttl: For how many seconds this process keeps what the look-up returned.
        tenant: None, ``"url"``, or the locator of the tenant.
        formerly: Former names; their events are still known, their receipts run as this source's.
        tolerance: Half of the acceptance window, in seconds; None: no window.
        late: ``reject`` or ``quarantine``: what becomes of an unknown event that comes after its window.
        invalid: ``quarantine`` or ``reject``: what becomes of content that does not fit its schema.
        unhandled: ``store`` or ``drop``: what becomes of an event that no handler wants.
        accept: The project's say, before the claim, or None.
        schemas: Pattern of types → serializer.
        max_body: Bytes.
        lease: Seconds that a run may take.
        retry: When what failed runs again.
        processing: ``inline`` or ``deferred``: whether the event runs before the sender is answered, or later.
        dispatcher: What wakes a worker: one of ``DISPATCHERS``, or the dotted path of a project's own.
        wake: The project's own dispatcher, or None.
        dispatcher_options: ``queue``, ``priority`` and ``backend`` for the dispatcher.
        retention: How long finished receipts are kept.
        responses: Decision → HTTP status.
        public_url: Scheme and host as the sender calls them, or None.
        route: Whether the catch-all URLs serve it.
        incomparable: Whether a look-up may give another source its secrets, which no check can see.
        release: Text kept on attempts.
        capture_rejected: How many raw samples of rejected deliveries are kept.
        expect_every: Seconds after which silence is worth an alarm; None: any silence is fine.
        personal: Where in a body personal data is.
    """

    name: str
    provider: Provider
    rules: IdentityRules
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    secrets_for: SecretsFor | None = None
    secrets_ttl: float = 0
    tenant: Locator | None = None
    formerly: tuple[str, ...] = ()
    tolerance: float | None = 300
    late: str = "reject"
    invalid: str = "quarantine"
    unhandled: str = "store"
    accept: Accept | None = None
    schemas: Schemas = ()
    max_body: int = 1_048_576
    lease: float = 60
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    processing: str = "inline"
    dispatcher: str = "sweeper"
    wake: Wake | None = None
    dispatcher_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    retention: Retention = field(default_factory=Retention)
    responses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    public_url: str | None = None
    route: bool = True
    incomparable: bool = False
    release: str = ""
    capture_rejected: int = 0
    expect_every: float | None = None
    personal: tuple[Body, ...] = ()

    @property
    def deferred(self) -> bool:
        """Whether events run later, and the sender is only told that they are held."""
        return self.processing == "deferred"

    @property
    def wakes(self) -> bool:
        """Whether a worker is woken; else the sweeper runs what is due."""
        return self.dispatcher != "sweeper"

    @cached_property
    def keeps_seen(self) -> bool:
        """Whether signed messages must be remembered: the id or the tenant is not covered by the proof, or a
        message may be genuine at another door too."""
        ids = self.rules.event_id if self.rules.event_id is not None else self.rules.key_fields
        if self.incomparable:
            return True
        unsigned_id = bool(ids) and not self.rules.covered(ids)
        return unsigned_id or (self.tenant is not None and not self.tenant_signed)

    @property
    def stamp_guards(self) -> bool:
        """Whether a message's signed time keeps it out for good once its window is over."""
        return self.tolerance is not None and self.late != "quarantine"

    @property
    def comes_again(self) -> float:
        """For how many seconds an event may be delivered again: by itself, by a person, or from a capture."""
        return self.provider.retry_span + self.provider.resend_span + 2 * (self.tolerance or 0)

    @cached_property
    def tenant_signed(self) -> bool:
        """Whether the proof covers the tenant."""
        return self.tenant is not None and self.tenant != URL_TENANT and self.rules.covered(self.tenant)

    @cached_property
    def keep_headers(self) -> frozenset[str]:
        """Headers, in lower case, that are kept on the receipt."""
        return frozenset({"content-type", "user-agent", *self.provider.keep_headers})

    def redacted(self, text: str) -> str:
        """Return a text in which no secret stands that is listed, or that this process has looked up."""
        for secret in (*(each.secret for each in self.secrets), *list(self._met)):
            text = text.replace(secret, "***")
        return text

    @cached_property
    def _met(self) -> dict[str, None]:
        """Secrets that the look-up has returned, so that they can be taken out of texts."""
        return {}

    @cached_property
    def _looked(self) -> dict[str | None, tuple[float, list[Secret]]]:
        """Tenant → when it was looked up, by the monotonic clock, and what came back."""
        return {}

    def live_secrets(self, tenant: str | None, now: datetime) -> list[Secret]:
        """Return the secrets that may prove a delivery now.

        Args:
            tenant: The tenant that the URL names, or None.
            now: The receiver's time.

        Raises:
            UnknownTenant: The project's look-up, or the list, knows no such tenant.
            Misconfigured: There is no usable secret, or the look-up failed.
        """
        if self.secrets_for is None:
            found: Iterable[Secret] = self.secrets
        else:
            found = self._looked_up(self.secrets_for, tenant)
        live = [secret for secret in found if secret.live(now)]
        if self.tenant == URL_TENANT and self.secrets_for is None:
            live = [secret for secret in live if secret.tenant == tenant]
            if not live and self.secrets:
                raise UnknownTenant
        if not live:
            raise Misconfigured(
                f"{SETTING} source {self.name!r}: no usable secret. "
                "Run manage.py check, and look at SECRETS and not_after."
            )
        return live

    def _looked_up(self, secrets_for: SecretsFor, tenant: str | None) -> list[Secret]:
        kept = self._looked.get(tenant)
        if kept is not None and monotonic() - kept[0] < self.secrets_ttl:
            return kept[1]
        try:
            found = [secret for secret in secrets_for(self.name, tenant) or () if isinstance(secret, Secret)]
        except UnknownTenant:
            raise
        except Exception as error:
            where = f"{type(error).__name__} {_place(error)}"
        else:
            usable = self._trusted(found, tenant)
            if self.secrets_ttl:
                _keep(self._looked, tenant, (monotonic(), usable))
            for secret in usable:
                _keep(self._met, secret.secret, None)
            return usable
        raise Misconfigured(f"{SETTING} source {self.name!r}: the look-up of SECRETS failed with {where}.")

    def _trusted(self, found: Iterable[Secret], tenant: str | None) -> list[Secret]:
        """Return the secrets that may be used, and that can vouch for the source's tenant."""
        usable = [secret for secret in found if secret.flaw(self.provider.verifier.decoding) is None]
        if self.tenant == URL_TENANT:
            return [secret for secret in usable if secret.tenant in (None, tenant)]
        if self.tenant is not None and not self.tenant_signed:
            return [secret for secret in usable if secret.tenant is not None]
        return usable


def _keep(memory: dict[Key, Value], key: Key, value: Value) -> None:
    """Remember a value in a memory that strangers' tenants cannot make grow without end."""
    if len(memory) >= MAX_REMEMBERED:
        memory.clear()
    memory[key] = value


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All that the setting says.

    Args:
        sources: Name → source, of those that could be read.
        problems: Everything that is wrong.
        retention: How long receipts of sources are kept that are not configured any more.
        receipts_for: Which receipts the user of a request may see and act on; None: all.
    """

    sources: Mapping[str, Source]
    problems: tuple[Problem, ...]
    retention: Retention = field(default_factory=Retention)
    receipts_for: ReceiptsFor | None = None

    def broken(self, name: str) -> Problem | None:
        """Return the first problem that makes a source unusable."""
        return next((each for each in self.problems if each.fatal and (each.everywhere or each.source == name)), None)


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else ""

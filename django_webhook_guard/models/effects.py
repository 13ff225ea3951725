"""What handlers did outside of the database, and how far they have come with each object."""

from collections.abc import Sequence
from typing import Any, Self

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.models.clock import DatabaseNow


class EffectQuerySet(models.QuerySet["WebhookEffect"]):
    """The changes of the ledger."""

    def of_receipt(self, fingerprint: str) -> Self:
        return self.filter(fingerprint=fingerprint).order_by("started_at", "pk")

    def of(self, digests: Sequence[str]) -> "WebhookEffect | None":
        """Lock and return the row of an effect, under its handler's name or a former one, with the database's ``now``.

        It is locked because an earlier attempt, late, may write its result at this moment.
        """
        return self.filter(digest__in=digests).select_for_update().annotate(now=DatabaseNow()).first()

    def start(self, **values: Any) -> "WebhookEffect":
        """Insert the row of a call that begins."""
        return self.create(
            state=WebhookEffect.State.STARTED, calls=1, keys=1, result="null",
            started_at=DatabaseNow(), key_since=DatabaseNow(), **values,
        )  # fmt: skip

    def not_done(self, effect: "WebhookEffect") -> bool:
        """Let the next call have a new key, if there was only one call with the old one."""
        return bool(self._same_call(effect).filter(calls=1).update(calls=0))

    def done(self, effect: "WebhookEffect", result: str) -> bool:
        """Keep the result of a call; it counts whoever made it."""
        done = {"state": WebhookEffect.State.DONE, "result": result, "finished_at": DatabaseNow()}
        return bool(self.filter(pk=effect.pk, key=effect.key).exclude(state=WebhookEffect.State.DONE).update(**done))

    def _same_call(self, effect: "WebhookEffect") -> Self:
        return self.filter(pk=effect.pk, key=effect.key, state=WebhookEffect.State.STARTED)


class WebhookEffect(models.Model):
    """An effect outside of the database: started, done, or nobody knows."""

    class State(models.TextChoices):
        """How far an effect has come."""

        STARTED = "started", _("started")
        DONE = "done", _("done")
        UNKNOWN = "unknown", _("outcome unknown")

    digest = models.CharField(_("digest of receipt, handler and name"), max_length=64, editable=False)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    handler = models.CharField(_("handler"), max_length=255)
    name = models.CharField(_("name"), max_length=255)
    state = models.CharField(_("state"), max_length=16, choices=State)
    key = models.CharField(_("idempotency key"), max_length=64)
    keys = models.PositiveIntegerField(_("keys used"), default=1)
    calls = models.PositiveIntegerField(_("calls with this key"), default=0)
    result = models.TextField(_("result"), default="null")
    attempt = models.PositiveIntegerField(_("attempt"))
    started_at = models.DateTimeField(_("started at"))
    key_since = models.DateTimeField(_("key used since"))
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    objects = EffectQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook effect")
        verbose_name_plural = _("webhook effects")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_effect_digest")]
        indexes = [models.Index(fields=["fingerprint"], name="webhook_effect_receipt")]

    def __str__(self) -> str:
        return f"{self.handler}: {self.name}: {self.state}"

    def begin_again(self, *, lifetime: float, next_key: str, attempt: int) -> None:
        """Count one more call, with the same key while it is remembered; else nobody can know the outcome any more.

        Args:
            lifetime: For how long the other side knows a key again, in seconds.
            next_key: The key to use where the last call surely did not happen.
            attempt: The number of the run.

        Raises:
            RuntimeError: The row has changed since ``of`` returned it: that was in another transaction.
        """
        changes: dict[str, Any] = {"attempt": attempt}
        if self.calls == 0:
            changes |= {"key": next_key, "keys": self.keys + 1, "calls": 1, "key_since": DatabaseNow()}
        elif self.age <= lifetime:
            changes |= {"calls": F("calls") + 1}
        else:
            changes |= {"state": self.State.UNKNOWN}
        rows = type(self)._base_manager.using(self._state.db)
        if not rows.filter(pk=self.pk, key=self.key, state=self.State.STARTED, calls=self.calls).update(**changes):
            raise RuntimeError(f"The effect {self.name!r} was changed while it was locked.")
        self.refresh_from_db(fields=["state", "key", "keys", "calls", "result"])

    @property
    def age(self) -> float:
        """How long the key has been in use, in seconds by the database's clock; asks for a row that ``of`` returned."""
        now = vars(self)["now"]
        return float((now - self.key_since).total_seconds())

    def settle(self, *, happened: bool, result: str = "null") -> bool:
        """Write down what a person found out about an effect of unknown outcome.

        Args:
            happened: Whether it did; else the next attempt makes the call with a new key.
            result: What the call returned, as JSON.

        Returns:
            Whether it was this call that did it.
        """
        if happened:
            changes: dict[str, Any] = {"state": self.State.DONE, "result": result, "finished_at": DatabaseNow()}
        else:
            changes = {"state": self.State.STARTED, "calls": 0}
        rows = type(self)._base_manager.using(self._state.db)
        return bool(rows.filter(pk=self.pk, key=self.key, state=self.State.UNKNOWN).update(**changes))


class VersionQuerySet(models.QuerySet["WebhookVersion"]):
    """The changes of the marks of objects."""

    def advance(self, digests: Sequence[str], kind: str, version: int, fingerprint: str, *, strict: bool) -> int:
        """Move those marks of an object to a version that have seen no newer one; returns how many."""
        older = Q(version__lt=version) if strict else Q(version__lte=version)
        rows = self.filter(older, digest__in=digests, kind=kind)
        return rows.update(version=version, fingerprint=fingerprint, updated_at=DatabaseNow())

    def locked(self, digests: Sequence[str]) -> Self:
        """The marks of an object as they are now, not as an older snapshot shows them."""
        return self.filter(digest__in=digests).order_by("digest").select_for_update()

    def first_seen(self, **values: Any) -> "WebhookVersion":
        """Insert the mark of an object that was not seen before."""
        return self.create(updated_at=DatabaseNow(), **values)


class WebhookVersion(models.Model):
    """The newest version of an object that a handler has seen; it stands on the database of the handler's effects.

    While a handler is being renamed, an object may have a mark under each name.
    """

    class Kind(models.TextChoices):
        """What versions of an object are."""

        NUMBER = "number", _("number")
        TIME = "time", _("time")

    digest = models.CharField(_("digest of namespace, tenant, handler and object"), max_length=64, editable=False)
    handler = models.CharField(_("handler"), max_length=255)
    object_key = models.CharField(_("object"), max_length=255)
    kind = models.CharField(_("kind"), max_length=8, choices=Kind)
    version = models.BigIntegerField(_("version"))
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    updated_at = models.DateTimeField(_("updated at"))

    objects = VersionQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook object version")
        verbose_name_plural = _("webhook object versions")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_version_digest")]

    def __str__(self) -> str:
        return f"{self.handler}: {self.object_key} {self.version}"

"""What a person has stopped for a while."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.identity import digest


class PauseQuerySet(models.QuerySet["WebhookPause"]):
    def begin(self, source: str, handler: str, *, actor: str, reason: str) -> bool:
        """Pause a source, or one of its handlers.

        Returns:
            Whether it was this call that did it; False where it is paused already.
        """
        values = {"source": source, "handler": handler, "actor": actor, "reason": reason, "since": timezone.now()}
        return self.get_or_create(digest=digest((source, handler)), defaults=values)[1]

    def end(self, source: str, handler: str) -> bool:
        """Let it go on.

        Returns:
            Whether it was this call that did it.
        """
        return bool(self.filter(digest=digest((source, handler))).delete()[0])


class WebhookPause(models.Model):
    """A source, or one of its handlers, that runs nothing until a person lets it go on."""

    digest = models.CharField(_("digest of source and handler"), max_length=64, editable=False)
    source = models.CharField(_("source"), max_length=100)
    handler = models.CharField(_("handler"), max_length=255, blank=True)
    actor = models.CharField(_("by"), max_length=255)
    reason = models.CharField(_("reason"), max_length=255, blank=True)
    since = models.DateTimeField(_("since"))

    objects = PauseQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook pause")
        verbose_name_plural = _("webhook pauses")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_pause_digest")]

    def __str__(self) -> str:
        return f"{self.source}: {self.handler}" if self.handler else self.source

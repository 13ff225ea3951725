"""What onlookers have been told of, so that each thing is told once by all processes together."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.identity import digest


class AlertQuerySet(models.QuerySet["WebhookAlert"]):
    def begin(self, code: str, source: str, words: str) -> bool:
        """Note that something began.

        Returns:
            Whether it was this call that did it.
        """
        values = {"code": code, "source": source, "words": words, "since": timezone.now()}
        return self.get_or_create(digest=digest((code, source)), defaults=values)[1]

    def end(self, code: str, source: str) -> bool:
        """Note that it is over.

        Returns:
            Whether it was this call that did it.
        """
        return bool(self.filter(digest=digest((code, source))).delete()[0])


class WebhookAlert(models.Model):
    """Something that a person should look at, and that onlookers have been told of."""

    digest = models.CharField(_("digest of code and source"), max_length=64, editable=False)
    code = models.CharField(_("code"), max_length=32)
    source = models.CharField(_("source"), max_length=400, blank=True)
    words = models.TextField(_("words"))
    since = models.DateTimeField(_("since"))

    objects = AlertQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook alert")
        verbose_name_plural = _("webhook alerts")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["digest"], name="webhook_alert_digest")]

    def __str__(self) -> str:
        return f"{self.code} {self.source}".strip()

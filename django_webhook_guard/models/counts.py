"""How often something was decided: also of deliveries that leave no receipt."""

from django.db import models
from django.utils.translation import gettext_lazy as _

#: For how many days counts are kept.
COUNTS_KEPT = 35


class WebhookCount(models.Model):
    """How many deliveries of a source ended with a decision within a minute."""

    minute = models.PositiveIntegerField(_("minutes since 1970, UTC"))
    source = models.CharField(_("source"), max_length=100, blank=True)
    decision = models.CharField(_("decision"), max_length=16)
    count = models.PositiveBigIntegerField(_("number of deliveries"))

    class Meta:
        verbose_name = _("webhook count")
        verbose_name_plural = _("webhook counts")
        default_permissions = ()
        constraints = [
            # The minute first: what is asked for, and what goes, is a span of time.
            models.UniqueConstraint(fields=["minute", "source", "decision"], name="webhook_count_minute")
        ]

    def __str__(self) -> str:
        return f"{self.source or '-'} {self.decision}: {self.count}"

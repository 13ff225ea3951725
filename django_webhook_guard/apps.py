"""Start-up."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class WebhookGuardConfig(AppConfig):
    """Find the project's handlers and register the system checks."""

    name = "django_webhook_guard"
    label = "django_webhook_guard"
    verbose_name = _("Webhook guard")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_webhook_guard import checks  # noqa: F401 - registers them, once the models are loaded

        autodiscover_modules("webhook_handlers")

"""Start-up of the shop."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ShopConfig(AppConfig):
    name = "example_project.shop"
    label = "shop"
    verbose_name = _("Shop")

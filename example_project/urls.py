"""The admin, and one line for all webhooks: ``/webhooks/<source>/``."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("webhooks/", include("django_webhook_guard.urls")),
]

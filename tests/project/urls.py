import os

from django.contrib import admin
from django.urls import include, path

from django_webhook_guard.views import AsyncWebhookView


class AsyncDoor(AsyncWebhookView):
    """The catch-all URL of the live servers that ``LIVE_ASYNC`` asks for."""

    def get_source(self, request, **kwargs):
        return kwargs["source"]


urlpatterns = [path("webhooks/<str:source>/", AsyncDoor.as_view())] if os.environ.get("LIVE_ASYNC") else []
urlpatterns += [
    path("admin/", admin.site.urls),
    path("webhooks/", include("django_webhook_guard.urls")),
]

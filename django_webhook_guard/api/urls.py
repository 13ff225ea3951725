"""The addresses: ``path("api/webhooks/", include("django_webhook_guard.api.urls"))``."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from django_webhook_guard.api.views import ReceiptViewSet, StatsView

app_name = "django_webhook_guard_api"

_router = SimpleRouter()
_router.register("receipts", ReceiptViewSet, basename="receipt")

urlpatterns = [path("stats/", StatsView.as_view(), name="stats"), path("", include(_router.urls))]

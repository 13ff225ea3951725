"""``path("webhooks/", include("django_webhook_guard.urls"))`` serves every source that does not say otherwise.

The spelling without the last slash works as well, because a redirect would lose the body.
"""

from django.urls import path

from django_webhook_guard.views import RoutedWebhookView

app_name = "django_webhook_guard"

_view = RoutedWebhookView.as_view()

urlpatterns = [
    path("<str:source>/", _view, name="receive"),
    path("<str:source>", _view),
    path("<str:source>/<str:tenant>/", _view, name="receive-tenant"),
    path("<str:source>/<str:tenant>", _view),
]

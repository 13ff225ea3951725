import pytest
from django.urls import resolve, reverse

from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.views import RoutedWebhookView

pytestmark = pytest.mark.django_db


def test_a_delivery_is_received_with_and_without_the_last_slash(post):
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 200
    assert post("stripe", {"id": "evt_1", "type": "x"}, path="/webhooks/stripe").json()["status"] == "duplicate"


def test_urls_are_found_by_name():
    assert reverse("django_webhook_guard:receive", args=["stripe"]) == "/webhooks/stripe/"
    assert reverse("django_webhook_guard:receive-tenant", args=["shops", "a"]) == "/webhooks/shops/a/"
    assert resolve("/webhooks/shops/a").func.view_class is RoutedWebhookView


@pytest.mark.parametrize("path", ["/webhooks/", "/webhooks//", "/webhooks/stripe//", "/webhooks/stripe/a/b/"])
def test_nothing_else_is_served(post, path):
    assert post("stripe", {"id": "evt_1", "type": "x"}, path=path).status_code == 404
    assert not WebhookReceipt.objects.exists()

"""The check of django-health-check, through its own view."""

import pytest
from django.contrib.auth.decorators import login_not_required
from django.urls import path

from django_webhook_guard import health, operations

pytest.importorskip("health_check")
from health_check.exceptions import ServiceUnavailable, ServiceWarning
from health_check.views import HealthCheckView

from django_webhook_guard.contrib.health_check import Webhooks

pytestmark = pytest.mark.django_db
CHECK = "django_webhook_guard.contrib.health_check.Webhooks"
urlpatterns = [path("health/", login_not_required(HealthCheckView.as_view(checks=[CHECK])))]


def test_nothing_to_look_at():
    Webhooks().run()


def test_an_error_is_unavailable(sources):
    sources(stripe={"EXPECT_EVERY": 60})
    with pytest.raises(ServiceUnavailable, match="source stripe has sent nothing yet"):
        Webhooks().run()


def test_a_warning_is_a_warning():
    operations.pause("stripe", actor="anna")
    with pytest.raises(ServiceWarning, match="stripe is paused"):
        Webhooks().run()


def test_limits(monkeypatch):
    asked = []
    monkeypatch.setattr(health, "look", lambda limits: asked.append(limits) or type("H", (), {"findings": ()}))
    Webhooks(max_overdue=5, max_dead=0).run()
    assert asked == [health.Limits(overdue=5, dead=0)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("expect", [None, 60])
def test_the_view_says_so(anywhere, sources, settings, client, expect):
    settings.ROOT_URLCONF = __name__
    sources(stripe={"EXPECT_EVERY": expect})
    answer = client.get("/health/", headers={"Accept": "application/json"})
    assert answer.status_code == (200 if expect is None else 500)

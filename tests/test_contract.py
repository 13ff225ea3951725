"""Every door passes the same contract, with everything set up that usually breaks a webhook."""

from contextlib import ExitStack
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connections
from django.test import Client

from django_webhook_guard.models import WebhookReceipt
from tests import contract
from tests.project.models import Effect

HOSTILE_DEFAULTS = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"anon": "1/min"},
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.BrowsableAPIRenderer"],
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.AcceptHeaderVersioning",
    "ALLOWED_VERSIONS": ["2"],
}


#: Kind of delivery → the answer of the first door that was asked; nothing in it depends on time.
ANSWERS = {}


class DoorContract:
    """What a door must do; a subclass names the door."""

    name = ""

    @pytest.fixture
    def heard(self, settings, sources, handler):
        """What a sender heard, who has the cookie of somebody logged in."""
        settings.ROOT_URLCONF = "tests.contract"
        settings.REST_FRAMEWORK = HOSTILE_DEFAULTS
        cache.clear()
        sources(**contract.SOURCES)

        def book(event):
            Effect.objects.create(name=event.event_id)
            if event.data.get("fails") and event.attempt == 1:
                raise RuntimeError("asked to fail")

        handler(["stripe", "captured"], "*", name="book")(book)
        browser = Client()
        browser.force_login(User.objects.create_user("somebody"))
        with ExitStack() as stack:
            for alias in connections:
                stack.enter_context(mock.patch.dict(connections.settings[alias], ATOMIC_REQUESTS=True))
            return contract.play(contract.Door(self.name, browser.cookies))

    @pytest.mark.django_db(databases=["default", "other"])
    def test_h2_h6_the_contract(self, heard):
        assert {name: answer[0] for name, answer in heard.items()} == contract.STATUSES
        receipts = dict(WebhookReceipt.objects.exclude(source="captured").values_list("event_id", "status"))
        assert receipts == {f"evt_{number}": "processed" for number in (1, 2, 5, 6, 7)}
        # One effect each; the captured source's own event is "a", and "b" is held.
        assert sorted(Effect.objects.values_list("name", flat=True)) == [
            "a",
            "evt_1",
            "evt_2",
            "evt_5",
            "evt_6",
            "evt_7",
        ]
        for name, answer in heard.items():
            assert answer == ANSWERS.setdefault(name, answer), name
        for name, (status, body, retry_after, headers) in heard.items():
            assert retry_after == (status in (500, 503)), name
            assert headers["Content-Type"] == "application/json", name
            assert (b'{"status": "' in body) == (name != "HEAD"), name
            assert headers.get("Allow") == ("POST, OPTIONS" if name.isupper() else None), name
            assert not {"WWW-Authenticate", "Location"} & set(headers), name
        assert [contract.decision(heard[name]) for name in ("captured", "captured again", "retried", "valid")] == [
            "processed", "quarantined", "processed", "processed",
        ]  # fmt: skip


class TestSync(DoorContract):
    name = "sync"


class TestOwnDispatch(DoorContract):
    name = "own"


class TestAsync(DoorContract):
    name = "async"


class TestOwnAsyncDispatch(DoorContract):
    name = "own-async"


class TestRest(DoorContract):
    name = "rest"


class TestOwnRestDispatch(DoorContract):
    name = "own-rest"


class TestRouted(DoorContract):
    name = "routed"


def test_every_door_has_its_contract():
    assert {each.name for each in DoorContract.__subclasses__()} == set(contract.NAMES)

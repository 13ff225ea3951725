"""What every door must do, and the same thing: the sequence of cases, and the doors."""

import json
import time

from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.urls import path
from django.views import View
from rest_framework.views import APIView

from django_webhook_guard.drf import SignedWebhookAPIMixin
from django_webhook_guard.locators import Header
from django_webhook_guard.providers import Provider
from django_webhook_guard.urls import urlpatterns as routed
from django_webhook_guard.verifiers import HMACVerifier
from django_webhook_guard.views import AsyncSignedWebhookMixin, AsyncWebhookView, SignedWebhookMixin, WebhookView
from tests import senders

ROTATED = "whsec_rotated_0123456789"
CAPTURED_SECRET = "captured-s3cret-0123456789"
#: Its id is not signed.
CAPTURED = Provider(name="captured", verifier=HMACVerifier(header="X-Acme", signed="{body}"), event_id=Header("X-Id"))
SOURCES = {
    "stripe": {"SECRETS": [senders.STRIPE_SECRET, ROTATED], "MAX_BODY": 2000},
    "captured": {"PROVIDER": "tests.contract.CAPTURED", "SECRETS": [CAPTURED_SECRET]},
}


class Own(SignedWebhookMixin, View):
    def dispatch(self, request, *args, **kwargs):
        return super().dispatch(request, *args, **kwargs)


class OwnAsync(AsyncSignedWebhookMixin, View):
    async def dispatch(self, request, *args, **kwargs):
        return await super().dispatch(request, *args, **kwargs)


class Rest(SignedWebhookAPIMixin, APIView):
    pass


class OwnRest(SignedWebhookAPIMixin, APIView):
    def dispatch(self, request, *args, **kwargs):
        return super().dispatch(request, *args, **kwargs)


DOORS = {
    "sync": WebhookView,
    "own": Own,
    "async": AsyncWebhookView,
    "own-async": OwnAsync,
    "rest": Rest,
    "own-rest": OwnRest,
}
urlpatterns = [
    path(f"{door}/{source}/", view.as_view(source=source)) for door, view in DOORS.items() for source in SOURCES
]
urlpatterns += [path("routed/<str:source>/", routed[0].callback)]
NAMES = [*DOORS, "routed"]


class Door:
    """A door, and a sender in front of it who has a browser's cookies and wants XML."""

    def __init__(self, name, cookies=None):
        self.name = name
        self.sync = Client(enforce_csrf_checks=True)
        self.loop = AsyncClient(enforce_csrf_checks=True)
        for client in (self.sync, self.loop):
            client.cookies = cookies or client.cookies

    def send(self, body, headers, *, source="stripe", method="POST", content_type="text/plain"):
        """Return what the sender heard: status, body, whether and which of the headers that matter."""
        headers = {"Accept": "application/xml", **headers}
        where = f"/{self.name}/{source}/"
        if "async" in self.name:
            response = async_to_sync(self._send)(method, where, body, content_type, headers)
        else:
            response = self.sync.generic(method, where, body, content_type, headers=headers)
        told = ("Content-Type", "Allow", "WWW-Authenticate", "Location")
        return (
            response.status_code, response.content, "Retry-After" in response,
            {name: response[name] for name in told if name in response},
        )  # fmt: skip

    async def _send(self, method, where, body, content_type, headers):
        return await self.loop.generic(method, where, body, content_type, headers=headers)


def event(number, **more):
    return senders.dumps({"id": f"evt_{number}", "type": "x", **more})


def play(door):
    """Send every kind of delivery to a door; return name → what the sender heard."""
    one, now = event(1), int(time.time())
    good = senders.stripe(one)
    captured = {"X-Acme": senders.hexmac(CAPTURED_SECRET, one)}
    return {
        "tampered": door.send(one + b" ", good),
        "missing": door.send(one, {}),
        "valid": door.send(one, good),
        "duplicate": door.send(one, good),
        "rotated": door.send(event(2), senders.stripe(event(2), secret=ROTATED)),
        "malformed": door.send(b"{", senders.stripe(b"{")),
        "without id": door.send(b"{}", senders.stripe(b"{}")),
        "oversized": door.send(b"x" * 2001, senders.stripe(b"x" * 2001)),
        "late": door.send(event(3), senders.stripe(event(3), at=now - 1000)),
        "replayed in time": door.send(one, senders.stripe(one, at=now - 100)),
        "replayed late": door.send(one, senders.stripe(one, at=now - 1000)),
        "future": door.send(event(4), senders.stripe(event(4), at=now + 1000)),
        "failed": door.send(event(5, fails=True), senders.stripe(event(5, fails=True))),
        "retried": door.send(event(5, fails=True), senders.stripe(event(5, fails=True))),
        "captured": door.send(one, {**captured, "X-Id": "a"}, source="captured"),
        "captured again": door.send(one, {**captured, "X-Id": "b"}, source="captured"),
        "as a form": door.send(event(6), senders.stripe(event(6)), content_type="application/x-www-form-urlencoded"),
        "as multipart": door.send(event(7), senders.stripe(event(7)), content_type="multipart/form-data; boundary=x"),
        "empty": door.send(b"", senders.stripe(b"")),
        **{
            method: door.send(b"", {}, method=method) for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
        },
    }


STATUSES = {
    "tampered": 401, "missing": 401, "valid": 200, "duplicate": 200, "rotated": 200, "malformed": 400,
    "without id": 400, "oversized": 413, "late": 400, "replayed in time": 200, "replayed late": 400, "future": 400,
    "failed": 500, "retried": 200, "captured": 200, "captured again": 202, "as a form": 200, "as multipart": 200,
    "empty": 400, "GET": 405, "HEAD": 405, "PUT": 405, "PATCH": 405, "DELETE": 405, "OPTIONS": 200,
}  # fmt: skip


def decision(heard):
    return json.loads(heard[1])["status"]

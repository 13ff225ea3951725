"""The async door: the same outcome as the sync one, and a loop that goes on."""

import asyncio
import time
from unittest import mock

from django.db import connections
from django.test import AsyncClient, TestCase, override_settings
from django.urls import path
from django.views import View

from django_webhook_guard.handlers import unregister, webhook_handler
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.signals import webhook_received
from django_webhook_guard.views import AsyncSignedWebhookMixin, AsyncWebhookView, _running
from tests import senders
from tests.project.models import Effect


class OwnDispatch(AsyncSignedWebhookMixin, View):
    source = "stripe"

    async def dispatch(self, request, *args, **kwargs):
        return await super().dispatch(request, *args, **kwargs)


urlpatterns = [
    path("async/", AsyncWebhookView.as_view(source="stripe")),
    path("own/", OwnDispatch.as_view()),
]
BODY = senders.dumps({"id": "evt_1", "type": "x"})


@override_settings(ROOT_URLCONF=__name__)
class TestAsyncDoor(TestCase):
    def setUp(self):
        self.client = AsyncClient(enforce_csrf_checks=True)

    def handle(self, function):
        webhook_handler("stripe", "*", name="h")(function)
        self.addCleanup(unregister, function)

    async def send(self, url="/async/", body=BODY, **headers):
        headers = headers or senders.stripe(body)
        return await self.client.post(url, body, content_type="application/json", headers=headers)

    async def test_a_sync_handler_uses_the_orm_and_copies_are_duplicates(self):
        self.handle(lambda event: Effect.objects.create(name=event.event_id).name)
        answers = [(await self.send()).json()["status"] for _ in range(3)]
        assert answers == ["processed", "duplicate", "duplicate"]
        assert await Effect.objects.acount() == 1

    async def test_g5_an_async_handler_uses_the_async_orm(self):
        async def book(event):
            await Effect.objects.acreate(name=event.event_id)
            return "booked"

        self.handle(book)
        assert (await self.send()).json()["status"] == "processed"
        assert (await WebhookReceipt.objects.aget()).result == "booked"
        assert await Effect.objects.acount() == 1

    async def test_g8_receivers_of_both_kinds_do_their_work(self):
        def plain(sender, event, **kwargs):
            Effect.objects.create(name="plain")

        async def coroutine(sender, event, **kwargs):
            await Effect.objects.acreate(name="async")

        for receiver in (plain, coroutine):
            webhook_received.connect(receiver)
            self.addCleanup(webhook_received.disconnect, receiver)
        assert (await self.send()).json()["status"] == "processed"
        assert {effect.name async for effect in Effect.objects.all()} == {"plain", "async"}

    async def test_a_failure_rolls_back_and_the_redelivery_runs_again(self):
        def book(event):
            Effect.objects.create(name=event.event_id)
            if event.attempt == 1:
                raise ValueError

        self.handle(book)
        assert [(await self.send()).status_code for _ in range(2)] == [500, 200]
        assert await Effect.objects.acount() == 1

    async def test_forged_malformed_and_wrong_method(self):
        assert (await self.send(**{"Stripe-Signature": "t=1,v1=00"})).status_code == 401
        assert (await self.send(body=b"[]")).status_code == 400
        response = await self.client.get("/async/")
        assert (response.status_code, response["Allow"]) == (405, "POST, OPTIONS")

    async def test_a_subclass_with_its_own_dispatch_under_atomic_requests_on_every_alias(self):
        self.handle(lambda event: "done")
        for alias in connections:
            self.enterContext(mock.patch.dict(connections.settings[alias], ATOMIC_REQUESTS=True))
        assert (await self.send("/own/")).json()["status"] == "processed"

    async def test_the_loop_goes_on_while_a_handler_works(self):
        self.handle(lambda event: time.sleep(0.2))
        sending = asyncio.ensure_future(self.send())
        ticks = 0
        while not sending.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 5

    async def test_g6_a_run_that_has_begun_finishes_when_the_view_is_cancelled(self):
        began, ended = asyncio.Event(), asyncio.Event()

        async def book(event):
            began.set()
            await asyncio.sleep(0.1)
            await Effect.objects.acreate(name=event.event_id)
            ended.set()

        self.handle(book)
        sending = asyncio.ensure_future(self.send())
        await began.wait()
        sending.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await sending
        await ended.wait()
        while _running:
            await asyncio.sleep(0.01)
        assert (await WebhookReceipt.objects.aget()).status == "processed"
        assert await Effect.objects.acount() == 1

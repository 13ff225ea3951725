"""The doors for plain Django: they read a request, and map an outcome to a response."""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from time import perf_counter
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import DisallowedHost
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.common import no_append_slash
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import View

from django_webhook_guard import capturing, counting, logbook, receiving
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.receiving import Outcome
from django_webhook_guard.sources import Source

ViewFunction = Callable[..., Any]


class Door:
    """What the doors of plain Django have in common.

    Attributes:
        source: The source's name.
        delivery: The delivery, once its body is read; for ``get_response`` of a subclass.
    """

    source: str = ""
    delivery: Delivery | None = None
    _came: tuple[Source, Delivery] | None = None
    #: Whether the catch-all URLs use it, which serve only sources that do not say ``"ROUTE": False``.
    routed: bool = False

    @classmethod
    def as_view(cls, **initkwargs: Any) -> ViewFunction:
        """Return the view function, exempt from what is made for browsers."""
        view: ViewFunction = super().as_view(**initkwargs)  # type: ignore[misc]
        view = no_append_slash(csrf_exempt(login_not_required(view)))
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def get_source(self, request: HttpRequest, **kwargs: Any) -> str:
        """Return the name of the source that a request is for.

        Raises:
            Misconfigured: Neither the class nor ``as_view`` names one.
        """
        if not self.source:
            raise Misconfigured(f"{type(self).__name__}: set source, or override get_source.")
        return self.source

    def get_tenant(self, request: HttpRequest, **kwargs: Any) -> str | None:
        """Return the tenant that the URL names, for sources with ``"TENANT": "url"`` only."""
        tenant: str | None = kwargs.get("tenant")
        return tenant

    def get_response(self, outcome: Outcome) -> HttpResponse:
        """Return the answer to the sender.

        Args:
            outcome: What was decided.
        """
        return HttpResponse(
            outcome.body,
            status=outcome.http_status,
            content_type=outcome.content_type,
            headers=dict(outcome.headers),
        )

    def allow(self, request: HttpRequest, kwargs: Mapping[str, Any]) -> Outcome | None:
        """Return a refusal of a verified delivery, or None; asked before the event is claimed."""
        return None

    def respond(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Receive the request, and answer it; all of it in one thread."""
        response = self.get_response(self.receive(request, **kwargs))
        if response.status_code >= 400:
            # Our log has said why, once for a forger's thousand; Django would add a line for each.
            response._has_been_logged = True  # type: ignore[attr-defined]
        return response

    def receive(self, request: HttpRequest, **kwargs: Any) -> Outcome:
        """Read the request as a delivery, and run it through the one sequence.

        Args:
            request: The request, its body not yet read by anybody.
            kwargs: The URL's parts.
        """
        started = perf_counter()
        request_id = logbook.request_id(request.META.get("HTTP_X_REQUEST_ID"))
        known, outcome = self._receive(request, request_id, kwargs)
        logbook.write(outcome, source=known, request_id=request_id, seconds=perf_counter() - started)
        counting.count(known, outcome.decision)
        if self._came is not None:
            capturing.offer(*self._came, outcome)
        receiving.tell(outcome, known)
        return outcome

    def _receive(self, request: HttpRequest, request_id: str, kwargs: dict[str, Any]) -> tuple[str, Outcome]:
        """Return the name of the source, where it is a configured one, and the outcome."""
        if request.method != "POST":
            return "", _wrong_method(request)
        try:
            name = self.get_source(request, **kwargs)
        except Misconfigured as error:
            return "", receiving.unavailable(None, str(error))
        tenant = self.get_tenant(request, **kwargs)
        source = receiving.find_source(name, tenant=tenant, routed=self.routed)
        if isinstance(source, Outcome):
            return "", source
        head = _head(request, source, tenant)
        self._came = (source, head)
        refused = receiving.admit(source, head, length=_length(request))
        if refused is not None:
            return source.name, refused
        body = _read(request, source)
        if isinstance(body, Outcome):
            return source.name, body
        self.delivery = head.with_body(body)
        self._came = (source, self.delivery)
        return source.name, receiving.receive(
            source,
            self.delivery,
            now=timezone.now(),
            request_id=request_id,
            allow=lambda: self.allow(request, kwargs),
        )


class SignedWebhookMixin(Door):
    """Receive the signed deliveries of a source.

    The view is exempt from CSRF and login, and from request transactions on every database, also in subclasses
    that override ``dispatch``: a receipt must be committed before its handlers run.
    """

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Receive the request."""
        return self.respond(request, **kwargs)


class AsyncSignedWebhookMixin(Door):
    """``SignedWebhookMixin`` for an event loop: the whole sequence runs in a thread, and the loop goes on.

    A run that has begun finishes whatever the client does: a sender that hangs up cancels the view, and neither
    the run nor an async handler inside it.
    """

    view_is_async = True

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Receive the request in a thread of its own."""
        run = asyncio.ensure_future(sync_to_async(self.respond)(request, **kwargs))
        _running.add(run)
        run.add_done_callback(_running.discard)
        return await asyncio.shield(run)


#: Runs whose view may be gone; a task that nobody refers to could be collected in the middle.
_running: set["asyncio.Future[HttpResponse]"] = set()


class WebhookView(SignedWebhookMixin, View):
    """``WebhookView.as_view(source="stripe")`` at a URL of your own."""


class AsyncWebhookView(AsyncSignedWebhookMixin, View):  # type: ignore[misc] # a coroutine, as Django allows
    """``AsyncWebhookView.as_view(source="stripe")`` at a URL of your own."""


class RoutedWebhookView(WebhookView):
    """What the package's own URLs use: the URL names the source, and the tenant where it has one."""

    routed = True

    def get_source(self, request: HttpRequest, **kwargs: Any) -> str:
        name: str = kwargs["source"]
        return name


def _wrong_method(request: HttpRequest) -> Outcome:
    status = 200 if request.method == "OPTIONS" else None
    return receiving.answer("wrong_method", http_status=status, headers={"Allow": "POST, OPTIONS"})


@lru_cache(maxsize=512)
def _header_name(key: str) -> str | None:
    if key.startswith("HTTP_"):
        return key[5:].replace("_", "-").lower()
    return key.replace("_", "-").lower() if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else None


def _headers(meta: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for key, value in meta.items() if (name := _header_name(key)) is not None}


def _head(request: HttpRequest, source: Source, tenant: str | None) -> Delivery:
    path = request.get_full_path()
    if source.public_url is not None:
        url = source.public_url + path
    elif "url" in source.provider.signs:
        url = _absolute(request, path)
    else:
        url = path
    return Delivery(method=str(request.method), url=url, headers=_headers(request.META), tenant=tenant)


def _absolute(request: HttpRequest, path: str) -> str:
    try:
        return f"{request.scheme}://{request.get_host()}{path}"
    except DisallowedHost:
        return path  # then no signature over the URL can match


def _length(request: HttpRequest) -> int:
    text = str(request.META.get("CONTENT_LENGTH") or "0")
    return int(text[:16]) if text.isascii() and text.isdigit() else 0  # 16 digits are over any limit


def _read(request: HttpRequest, source: Source) -> bytes | Outcome:
    """Read the body as it came, bounded by the source's limit, and leave it as the request's body."""
    if hasattr(request, "_body"):
        body: bytes = request._body
    elif request._read_started:  # type: ignore[attr-defined]
        return receiving.unavailable(
            source,
            "something read the request's body before the view (request.POST of a multipart form, request.data or "
            "request.read in a middleware); let it leave this path alone",
        )
    else:
        try:
            found = _read_stream(request, source)
        except Exception as error:
            # A server's own classes too, for a chunk that is none: what a stranger sends is never a 500.
            return receiving.malformed(source, f"the body could not be read to its end ({type(error).__name__})")
        if found is None:
            return receiving.malformed(
                source,
                "chunked body without Content-Length, which this server does not pass on",
                http_status=411,
            )
        body = found
        request._body, request._stream = body, BytesIO(body)  # for whoever reads it later
    if len(body) > source.max_body:
        return receiving.too_large(source, len(body))
    return body


def _read_stream(request: HttpRequest, source: Source) -> bytes | None:
    """Return at most one byte more than the limit; None where a chunked body does not get here.

    WSGI servers that undo the chunks say so with ``wsgi.input_terminated``; Django itself reads nothing without
    a ``Content-Length``.
    """
    environ = request.META
    chunked = "chunked" in str(environ.get("HTTP_TRANSFER_ENCODING", "")).lower()
    if chunked and "wsgi.input" in environ and not environ.get("CONTENT_LENGTH"):
        if not environ.get("wsgi.input_terminated"):
            return None
        terminated: bytes = environ["wsgi.input"].read(source.max_body + 1)
        return terminated
    read: bytes = request.read(source.max_body + 1)
    return read

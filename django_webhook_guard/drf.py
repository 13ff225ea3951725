"""The door for Django REST framework.

A delivery is verified on its raw bytes before anything of REST framework looks at it. What a project has set for its
people's API plays no part: no authentication, permission, throttle, version, parser or renderer but those that the
view itself names. Those run between verification and claim, so that no forged delivery can use a limit up.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import APIException, Throttled
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from django_webhook_guard.conf import configuration
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.receiving import Outcome, answer
from django_webhook_guard.schemas import Schema
from django_webhook_guard.views import Door, ViewFunction


class IgnoreNegotiation(BaseContentNegotiation):
    """Take what a sender sends, and never refuse it for what it says that it accepts."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """Return the first parser: senders' content types are not signed, and often wrong."""
        return next(iter(parsers), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer; it renders nothing of ours."""
        first = next(iter(renderers))
        return first, first.media_type


class SignedWebhookAPIMixin(Door):
    """Receive the signed deliveries of a source in an ``APIView``: ``class Hook(SignedWebhookAPIMixin, APIView)``.

    ``authentication_classes``, ``permission_classes``, ``throttle_classes`` and ``versioning_class`` count where the
    view itself sets them; they are asked about verified deliveries inside
    their window only. A refusal stores nothing, and the sender
    hears 403, or 503 with ``Retry-After`` where it is throttled, so that it comes again. ``serializer_class`` is the
    source's ``SCHEMA``, for tools that describe an API.

    Raises:
        Misconfigured: The class has an async handler method, which REST framework cannot call, ``APIView`` stands
            before this class, or ``as_view`` is given a ``serializer_class``.
    """

    authentication_classes: Any = ()
    permission_classes: Any = ()
    throttle_classes: Any = ()
    versioning_class: Any = None
    parser_classes: Any = (JSONParser,)
    renderer_classes: Any = (JSONRenderer,)
    content_negotiation_class: Any = IgnoreNegotiation

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = cls.__mro__
        if APIView in order and order.index(APIView) < order.index(SignedWebhookAPIMixin):
            raise Misconfigured(f"{cls.__name__}: name SignedWebhookAPIMixin before APIView, or it does nothing.")

    @classmethod
    def as_view(cls, **initkwargs: Any) -> ViewFunction:
        """Return the view function."""
        if getattr(cls, "view_is_async", False):
            raise Misconfigured(f"{cls.__name__}: REST framework has no async views; use AsyncWebhookView, or def.")
        if "serializer_class" in initkwargs:
            raise Misconfigured(f"{cls.__name__}: serializer_class is the source's SCHEMA; say it there.")
        return super().as_view(**initkwargs)

    @property
    def serializer_class(self) -> Schema | None:
        """The source's one ``SCHEMA``; None where it has none, or several by type."""
        schemas = _schemas_of(self.source)
        return schemas.pop() if len(schemas) == 1 else None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Receive the request, before REST framework does anything with it."""
        return self.respond(request, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Receive a signed delivery of the source."""
        return self.respond(request, **kwargs)

    def allow(self, request: HttpRequest, kwargs: Mapping[str, Any]) -> Outcome | None:
        """Ask what the view has opted into, about a verified delivery whose body can be read again."""
        view = cast(APIView, self)
        name, declared = self.get_source(request, **kwargs), type(self).serializer_class
        if isinstance(declared, type) and declared not in _schemas_of(name):
            raise Misconfigured(
                f"{type(self).__name__}.serializer_class is {declared.__name__}, which is not a SCHEMA of source "
                f"{name!r}: say it in SCHEMA, because a later run has no view."
            )
        view.args, view.kwargs, view.headers = (), dict(kwargs), {}
        try:
            view.request = view.initialize_request(request, **kwargs)
            view.initial(view.request, **kwargs)
        except (APIException, PermissionDenied) as error:
            return _refusal(error)
        return None


def _schemas_of(name: str) -> set[Schema]:
    source = configuration().sources.get(name)
    return {schema for _, schema in source.schemas} if source is not None else set()


def _refusal(error: APIException | PermissionDenied) -> Outcome:
    reason = type(error).__name__
    detail = f"refused by the view's own classes: {reason}"
    if isinstance(error, Throttled):
        return answer("busy", retry_after=getattr(error, "wait", None), reason=reason, detail=detail)
    status = error.status_code if isinstance(error, APIException) else 403
    if not 400 <= status < 500:
        return answer("unavailable", reason=reason, detail=detail)
    if status in (400, 415):
        return answer("malformed", http_status=400, reason=reason, detail=detail)
    return answer("rejected", http_status=status, reason=reason, detail=detail)

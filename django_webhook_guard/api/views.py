"""The views: who asks is asked first, what is asked for is read strictly, and what is done goes through operations."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import Error, transaction
from django.db.models import BigIntegerField
from django.http import HttpRequest, HttpResponse
from django.utils.connection import ConnectionDoesNotExist
from django.utils.translation import gettext_lazy as _
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from django_webhook_guard import operations, plans, scope, sweeper
from django_webhook_guard.api import answering
from django_webhook_guard.api.answering import (
    COLUMNS,
    AttemptsSerializer,
    CountsSerializer,
    DetailSerializer,
    PageSerializer,
    ProblemSerializer,
    ReceiptSerializer,
)
from django_webhook_guard.api.asking import (
    ListQuery,
    Nothing,
    Seen,
    SeenAndEffect,
    SeenAndHandlers,
    asked,
    narrowed,
)
from django_webhook_guard.api.describing import described
from django_webhook_guard.api.paging import page_of
from django_webhook_guard.api.permissions import MayOperate
from django_webhook_guard.api.wire import OneRenderer, StrictJSONParser, VisibleJSONRenderer
from django_webhook_guard.conf import receipts_alias, runnable_names
from django_webhook_guard.counts import counted
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.models import WebhookAttempt, WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet

logger = logging.getLogger("django_webhook_guard")

#: How many attempts are shown, the newest.
ATTEMPTS = 50
_REFUSED = {401: ProblemSerializer, 403: ProblemSerializer}
_ASKED = {**_REFUSED, 400: ProblemSerializer}
_ABOUT_ONE = {**_ASKED, 404: ProblemSerializer}
_DONE = {**_ABOUT_ONE, 200: ReceiptSerializer, 409: ProblemSerializer, 413: ProblemSerializer, 503: ProblemSerializer}


class Conflict(APIException):
    """Nothing was done: the receipt is not, or not here, in a state for it."""

    status_code = 409

    def __init__(self, code: str, words: Any) -> None:
        super().__init__({"detail": words, "code": code}, code)


class Unwritten(APIException):
    """Nothing was done: a database is away or refused it."""

    status_code = 503
    default_detail = _("It could not be written; the log says why.")
    default_code = "unwritten"


class Operators(APIView):
    """What the views have in common: the project's authentication, our permissions, JSON in and out."""

    permission_classes = (MayOperate,)
    parser_classes = (StrictJSONParser,)
    renderer_classes = (VisibleJSONRenderer,)
    content_negotiation_class = OneRenderer
    metadata_class = None
    versioning_class = None

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Let nobody keep an answer, or take it for something else than it is."""
        found = super().finalize_response(request, response, *args, **kwargs)
        found["Cache-Control"] = "no-store"
        found["X-Content-Type-Options"] = "nosniff"
        return found


class ReceiptViewSet(Operators, GenericViewSet[WebhookReceipt]):
    """The receipts that the user may see, and what can be done to them."""

    queryset = WebhookReceipt.objects.all()  # its model is read by tools that describe an API; nothing is shown of it
    serializer_class = ReceiptSerializer
    lookup_value_regex = "[0-9]{1,19}"
    pagination_class = None
    filter_backends = ()

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        forms: dict[str, type[BaseSerializer[Any]]] = {"rerun": SeenAndHandlers, "settle": SeenAndEffect}
        return forms.get(self.action, Seen)

    @property
    def asking(self) -> HttpRequest:
        """The request as Django has it, with the user that was authenticated: what the project's hook is given."""
        return self.request._request

    def _receipts(self) -> ReceiptQuerySet:
        return scope.receipts_of(self.asking)

    def _receipt(self) -> WebhookReceipt:
        """Return the receipt of the address; one that the user may not see is not there."""
        number = int(self.kwargs["pk"])
        if number <= BigIntegerField.MAX_BIGINT:
            for receipt in self._receipts().filter(pk=number).defer("body"):
                return receipt
        raise NotFound

    # -- seeing --------------------------------------------------------------------------------------------------------

    @described({**_ASKED, 200: PageSerializer}, parameters=ListQuery)
    def list(self, request: Request) -> Response:
        """Return a page of receipts, the newest first."""
        wanted = asked(request, ListQuery)
        page = page_of(narrowed(self._receipts(), wanted), wanted.get("cursor"), wanted["limit"], COLUMNS)
        return Response(
            page.linked(request, ReceiptSerializer(page.rows, many=True, context={"asking": self.asking}).data)
        )

    @described({**_ABOUT_ONE, 200: DetailSerializer})
    def retrieve(self, request: Request, pk: str) -> Response:
        """Return a receipt with what hangs on it."""
        asked(request, Nothing)
        receipt = self._receipt()
        context = {"asking": self.asking, "marks": plans.marks(receipt)}
        return Response(DetailSerializer(receipt, context=context).data)

    @described({**_ABOUT_ONE, 200: AttemptsSerializer})
    @action(detail=True)
    def attempts(self, request: Request, pk: str) -> Response:
        """Return the newest attempts of a receipt; a first run that worked left none."""
        asked(request, Nothing)
        receipt = self._receipt()
        rows = WebhookAttempt.objects.using(receipt._state.db).filter(receipt_id=receipt.pk)
        newest = list(rows.order_by("-number", "-pk")[: ATTEMPTS + 1])
        found = {"earlier": len(newest) > ATTEMPTS, "results": newest[:ATTEMPTS][::-1]}
        return Response(AttemptsSerializer(found).data)

    @described({**_ABOUT_ONE, 200: bytes})
    @action(detail=True)
    def body(self, request: Request, pk: str) -> HttpResponse:
        """Return the raw bytes as they came; of an item of a batch, all of it."""
        asked(request, Nothing)
        receipt = self._receipt()
        if not scope.may_read_body(self.asking, receipt):
            raise PermissionDenied
        body = receipt.raw_body
        if body is None:
            raise NotFound
        return HttpResponse(
            body,
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="webhook-receipt-{receipt.pk}.bin"',
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
        )

    # -- doing ---------------------------------------------------------------------------------------------------------

    @described(_DONE, request=Seen)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Make a failed or dead receipt due, with a new budget of attempts."""
        return self._act("retry", operations.retry)

    @described(_DONE, request=SeenAndHandlers)
    @action(detail=True, methods=["post"])
    def rerun(self, request: Request, pk: str) -> Response:
        """Make a receipt due so that handlers run again that are done."""
        return self._act("rerun", operations.rerun)

    @described(_DONE, request=Seen)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Let a quarantined receipt run."""
        return self._act("release", operations.release)

    @described(_DONE, request=Seen)
    @action(detail=True, methods=["post"])
    def discard(self, request: Request, pk: str) -> Response:
        """End a receipt without its work being done."""
        return self._act("discard", operations.discard)

    @described(_DONE, request=SeenAndEffect)
    @action(detail=True, methods=["post"])
    def settle(self, request: Request, pk: str) -> Response:
        """Write down whether an effect of unknown outcome happened, and make the receipt due."""
        return self._act("settle", operations.settle)

    def _act(self, act: str, operation: Callable[..., bool]) -> Response:
        """Do something to a receipt that is as the client saw it; whoever brings what is due runs it."""
        asked(self.request, Nothing)
        form = self.get_serializer(data=self.request.data)
        form.is_valid(raise_exception=True)
        wish = dict(form.validated_data)
        receipt = self._receipt()
        if (receipt.status, receipt.attempts) != (wish.pop("status"), wish.pop("attempts")):
            raise Conflict("moved_on", _("The receipt moved on since it was read: nothing was done."))
        if not answering.possible(act, receipt):
            raise Conflict("wrong_state", _("The receipt is in no state for this: nothing was done."))
        if act == "rerun":
            _check_handlers(receipt, wish["handlers"])
        runs = act != "discard"
        if runs and not operations.runnable(receipt):
            raise Conflict("unknown_source", _("This process does not have the receipt's source: nothing was done."))
        if not _done(act, partial(operation, receipt, **wish, actor=self.request.user.get_username())):
            raise Conflict(
                "moved_on", _("The receipt moved on, or it has no such effect of unknown outcome: nothing was done.")
            )
        if runs:
            transaction.on_commit(partial(_wake, receipt.pk), using=receipts_alias(), robust=True)
        return Response(ReceiptSerializer(self._receipt(), context={"asking": self.asking}).data)


def _check_handlers(receipt: WebhookReceipt, names: list[str] | None) -> None:
    """Refuse a handler that the receipt does not have: a name that is misspelt would run nothing again."""
    found = plans.marks(receipt)
    known = {*plans.plan(receipt, found).handlers, *receipt.handlers, receipt.last_handler}
    known |= {row.handler for row in found.rows}
    if not known.issuperset(names or ()):
        raise ValidationError({"handlers": [_("The receipt has no such handler.")]})


def _done(act: str, operation: Callable[[], bool]) -> bool:
    try:
        return operation()
    except Misconfigured as error:
        logger.error("webhook API: %s was not done: %s", act, error)
        raise Conflict("misconfigured", _("The source's handlers cannot be told; the log says why.")) from None
    except (Error, ConnectionDoesNotExist) as error:
        logger.exception("webhook API: %s could not be written", act)
        raise Unwritten from error


def _wake(receipt_id: int) -> None:
    """Wake a worker where the source has one; the sweeper brings the rest."""
    try:
        sweeper.handed_over(receipt_id)
    except Exception:
        logger.exception("webhook receipt %s is due, and no worker could be woken", receipt_id)


class StatsView(Operators):
    """How many receipts there are, by source and status, and what waits."""

    @described({**_ASKED, 200: CountsSerializer})
    def get(self, request: Request) -> Response:
        """Count the receipts that the user may see."""
        asked(request, Nothing)
        receipts = scope.receipts_of(request._request)
        counts: dict[str, Any] = CountsSerializer(counted(receipts, runnable_names())).data
        if not scope.sees_all(request._request):  # a source's name may be another tenant's
            counts = {**counts, "sources": [row for row in counts["sources"] if row["week"]]}
        return Response(counts)

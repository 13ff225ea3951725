"""How requests are read and answers written: bounded, and nothing in them that a terminal or a browser would act on."""

from collections.abc import Iterable, Mapping
from typing import IO, Any

from django.http import UnreadablePostError
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import APIException, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.parsing import parse_json

#: The longest body of a request, in bytes.
LONGEST = 65_536


class TooLarge(APIException):
    """The request's body is too long."""

    status_code = 413
    default_detail = _("The request is too large.")
    default_code = "too_large"


class StrictJSONParser(BaseParser):
    """Reads JSON as strictly as a delivery's, and no more than ``LONGEST`` bytes."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            body = stream.read(LONGEST + 1)
        except UnreadablePostError:
            raise ParseError(_("The request broke off.")) from None
        if len(body) > LONGEST:
            raise TooLarge
        try:
            return parse_json(body)
        except MalformedContent:
            raise ParseError(_("The request is not JSON.")) from None


class VisibleJSONRenderer(JSONRenderer):
    """Writes everything but ASCII as escapes: lone surrogates stay, and no character turns a terminal's line around."""

    ensure_ascii = True

    def get_indent(self, accepted_media_type: str, renderer_context: Mapping[str, Any]) -> None:
        """Never indent, whatever is asked for: of deep content that would be many times as long."""
        return


class OneRenderer(DefaultContentNegotiation):
    """Answer in JSON whatever the client says that it takes."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type

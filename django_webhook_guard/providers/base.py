"""What is known about a kind of sender, as one frozen value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import Locator
from django_webhook_guard.parsing import FormData, holds_json, parse_form, parse_json
from django_webhook_guard.verifiers.base import Verifier

Varies = Literal["stamp", "id", "body"]
_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """What a sender wants to hear before it sends events.

    Args:
        body: The answer's body.
        content_type: Its content type.
    """

    body: bytes
    content_type: str = "text/plain"


def listed(data: Any) -> Sequence[Any]:
    """Return the items of a JSON array, or an object alone: for senders that send one event or many."""
    return data if isinstance(data, list) else [data]


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Knowledge about a kind of sender. A project adds one as a value, not as a class.

    Args:
        name: Its name in settings.
        verifier: The proof.
        event_id: Locator of the event's id, None where there is none.
        event_type: Locator of the type; the parts of a tuple are joined by a dot.
        type_in_key: Whether one body may come under several types that the proof does not cover.
        tenant: Locator of the tenant, for sources that say ``"TENANT": True``.
        occurred_at: Locator of the event's own time.
        object: Locator of the object that an event is about.
        varies: What changes between two tries of one event.
        tolerance: Half of the acceptance window, in seconds.
        retries: Whether the sender tries again by itself after a failure.
        retry_span: For how long it does, in seconds.
        resend_span: For how long a person can have it sent again there, in seconds.
        forms: Whether bodies may be forms.
        form_json: The form field that holds the JSON, for senders that may send it in a form. It stands there alone;
            without ``forms``, no other form is taken.
        handshake: Given the verified content, returns the answer to a handshake, or None where it is an event.
        split: Given the verified content, returns the events in it, for senders that send many in one body.
        keep_headers: Headers, in lower case, that are kept on the receipt.
        answers: Decision → HTTP status, where the sender wants another than the usual one.
    """

    name: str
    verifier: Verifier
    event_id: Locator | None = None
    event_type: Locator | None = None
    type_in_key: bool = False
    tenant: Locator | None = None
    occurred_at: Locator | None = None
    object: Locator | None = None
    varies: frozenset[Varies] = frozenset()
    tolerance: float | None = 300
    retries: bool = True
    retry_span: float = 3 * 86_400
    resend_span: float = 30 * 86_400
    forms: bool = False
    form_json: str | None = None
    handshake: Callable[[Any], "Handshake | None"] | None = None
    split: Callable[[Any], Sequence[Any]] | None = None
    keep_headers: tuple[str, ...] = ()
    answers: Mapping[str, int] = field(default_factory=lambda: _NOTHING)

    @cached_property
    def signs(self) -> frozenset[str]:
        """Which parts of a delivery the proof covers, derived from the verifier's template."""
        return self.verifier.covers

    def parse(self, body: bytes, content_type: str) -> tuple[Any, FormData]:
        """Read a verified body: strict JSON whatever the header says, a form only where the sender sends forms.

        Which of them it is, the body says.

        Args:
            body: The raw bytes.
            content_type: The header's value, which tells two kinds of forms apart.

        Returns:
            The content, and the form fields where it came as a form.

        Raises:
            MalformedContent: It cannot be read, or is no JSON object (nor array, where there is ``split``).
        """
        if not (self.forms or self.form_json is not None) or holds_json(body):
            return self._json(body), {}
        form = parse_form(body, content_type)
        if self.forms and self.form_json not in form:
            if not form:
                raise MalformedContent("the form holds no field")
            return form, form
        held = form.get(self.form_json or "")
        if not isinstance(held, str) or len(form) > 1:
            raise MalformedContent(f"the form does not hold {self.form_json!r} exactly once, and nothing else")
        return self._json(held.encode("utf-8", "surrogatepass")), form

    def _json(self, body: bytes) -> Any:
        data = parse_json(body)
        if not isinstance(data, dict) and not (self.split is not None and isinstance(data, list)):
            raise MalformedContent("the body is JSON, but not an object")
        return data

"""What a receipt's body says, parsed and bounded, for people who look at it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from django_webhook_guard.conf import source_of
from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import Body
from django_webhook_guard.masking import masked
from django_webhook_guard.models import WebhookReceipt

State = Literal["shown", "masked", "expired", "too_large", "unreadable", "unknown_source"]


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a receipt, or why there is none.

    Args:
        state: Whether it is shown, whole or masked, or why it is not.
        data: The parsed body, of an item of a batch that item.
    """

    state: State
    data: Any = field(default=None, repr=False)


def content(receipt: WebhookReceipt, hidden: Iterable[Body], *, longest: int) -> Content:
    """Parse the body of a receipt and take out what is hidden.

    What cannot be parsed has no data: nobody can say what stands where.

    Args:
        receipt: The receipt.
        hidden: Where the values are that must not be read.
        longest: How long a body may be so that it is read from the database at all, in bytes.
    """
    source = source_of(receipt.source)
    if source is None:
        return Content(state="unknown_source")
    if receipt.body_size > longest:
        return Content(state="too_large")
    event = WebhookEvent.stored(receipt, source, receipt.attempts)
    if event.expired:
        return Content(state="expired")
    paths = tuple(hidden)
    try:
        data = masked(event.data, paths)
    except (MalformedContent, LookupError, RecursionError):
        return Content(state="unreadable")
    return Content(state="masked" if paths else "shown", data=data)

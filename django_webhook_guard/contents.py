"""What a receipt's body says, parsed and bounded, for people who look at it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from django_webhook_guard.conf import source_of
from django_webhook_guard.events import WebhookEvent
from django_webhook_guard.locators import Body, parts
from django_webhook_guard.masking import is_masked, masked
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.sources import Source

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
    except Exception:  # it is malformed, or a project's own way to split it does not know it any more
        return Content(state="unreadable")
    return Content(state="masked" if paths else "shown", data=data)


def personal_columns(source: Source) -> list[str]:
    """Return the columns of a source's receipts that hold what it names as personal."""
    rules = source.rules
    located = {
        "event_id": rules.event_id,
        "idempotency_key": (*parts(rules.event_id or ()), *rules.key_fields),
        "object_key": rules.object_key,
        "event_type": rules.event_type,
        "tenant": rules.tenant,
    }
    return [name for name, locator in located.items() if is_masked(locator, source.personal)]

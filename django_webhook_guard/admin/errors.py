"""What fails, put into words for its page: one row for each kind of failure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_webhook_guard.admin import columns
from django_webhook_guard.groups import NO_ERROR, Group
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.text import shortened, visible

#: Characters of a message that a row shows.
MESSAGE = 300


@dataclass(frozen=True, kw_only=True)
class Row:
    """A group as the page shows it.

    Args:
        key: The group's.
        title: The error's class, or what is known instead.
        message: Of the last one.
        place: Where it is raised.
        handler: Which handler fails.
        event: Source and type.
        release: Of the code that failed last.
        failed: How many run again by themselves.
        dead: How many wait for a person.
        since: When the first receipt came.
        last_seen: When it failed last.
        example: The receipt that failed last; None where it is not known.
    """

    key: str
    title: str
    failed: int
    dead: int
    message: str = ""
    place: str = ""
    handler: str = ""
    event: str = ""
    release: str = ""
    since: Any = ""
    last_seen: Any = ""
    example: WebhookReceipt | None = None


def row(group: Group) -> Row:
    """Return a group as the page shows it."""
    last = group.last
    if group.key == NO_ERROR or last is None:
        return Row(
            key=group.key, title=_("The last run left no error: its process was killed, or has not come back"),
            failed=group.failed, dead=group.dead,
        )  # fmt: skip
    return Row(
        key=group.key,
        title=visible(last.error_class.removeprefix("builtins.")),
        message=shortened(last.message, MESSAGE),
        place=visible(last.place),
        handler=visible(last.handler),
        event=visible(f"{last.receipt.source} {last.receipt.event_type or '-'}"),
        release=visible(last.release),
        failed=group.failed,
        dead=group.dead,
        since=_moment(group.since),
        last_seen=_moment(group.last_seen),
        example=last.receipt,
    )


def _moment(value: datetime | None) -> str:
    return columns.moment(value) if value is not None else format_html("{}", columns.EMPTY)

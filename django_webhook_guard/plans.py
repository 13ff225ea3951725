"""What a retry of a receipt would do, as far as this process knows."""

from dataclasses import dataclass

from django.db import Error
from django.utils.connection import ConnectionDoesNotExist
from django.utils.translation import gettext as _

from django_webhook_guard.conf import source_of
from django_webhook_guard.events import owed
from django_webhook_guard.exceptions import Misconfigured
from django_webhook_guard.handlers import Handler
from django_webhook_guard.models import WebhookCheckpoint, WebhookReceipt
from django_webhook_guard.models.receipts import Status
from django_webhook_guard.models.records import Mark
from django_webhook_guard.text import visible


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a retry would do.

    Args:
        runs: Handlers that would run.
        stays: Handlers that are done and would not run again.
        unknown: Handlers that the receipt waits for and this process does not know.
        problem: Why it cannot be said, or cannot be done here.
        handlers: Names of all handlers that this process knows, as they are.
    """

    runs: list[str]
    stays: list[str]
    unknown: list[str]
    problem: str = ""
    handlers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Marks:
    """How handlers of a receipt ended: the rows of all databases in question, and those that were out of reach."""

    rows: list[WebhookCheckpoint]
    unread: list[str]

    def standing(self, receipt: WebhookReceipt) -> set[str]:
        """Return the names whose mark a retry leaves."""
        names = {row.handler for row in self.rows if row.mark != Mark.GAVE_UP}
        return names | ({receipt.last_handler} if receipt.last_handler else set())


def marks(receipt: WebhookReceipt) -> Marks:
    """Read the checkpoints of a receipt from its own database and from those of its handlers."""
    own = str(receipt._state.db)
    found, unread = _checkpoints(own, receipt), []
    for using in dict.fromkeys(handler.using for handler in handlers(receipt) if handler.using):
        if using == own:
            continue
        try:
            found += _checkpoints(using, receipt)
        except (Error, ConnectionDoesNotExist):
            unread.append(using)
    return Marks(rows=sorted(found, key=lambda row: row.created_at), unread=unread)


def _checkpoints(using: str, receipt: WebhookReceipt) -> list[WebhookCheckpoint]:
    return list(WebhookCheckpoint.objects.using(using).filter(fingerprint=receipt.fingerprint))


def handlers(receipt: WebhookReceipt) -> list[Handler]:
    """Return the handlers that a run of the receipt would look at; none where it cannot be said."""
    source = source_of(receipt.source)
    if source is None:
        return []
    try:
        return owed(source.name, receipt.event_type, receipt.handlers)
    except Misconfigured:
        return []


def plan(receipt: WebhookReceipt, found: Marks) -> Plan:
    """Say what a retry of the receipt would do."""
    standing, wanted = found.standing(receipt), handlers(receipt)
    known = {name for handler in wanted for name in handler.names}
    return Plan(
        runs=[handler.name for handler in wanted if not standing & set(handler.names)],
        stays=[handler.name for handler in wanted if standing & set(handler.names)],
        unknown=[name for name in receipt.handlers if name not in known | standing],
        problem=_problem(receipt),
        handlers=tuple(handler.name for handler in wanted),
    )


def _problem(receipt: WebhookReceipt) -> str:
    source = source_of(receipt.source)
    if source is None:
        words = _("This process has no source “%(source)s”, so that it cannot run the receipt.")
        return words % {"source": visible(receipt.source)}
    try:
        owed(source.name, receipt.event_type, receipt.handlers)
    except Misconfigured as error:
        return visible(str(error))
    return ""


def waiting(receipt: WebhookReceipt, found: Marks) -> list[str]:
    """Return the names of the handlers that an open receipt waits for."""
    if receipt.status not in (Status.RECEIVED, Status.PROCESSING, Status.FAILED, Status.QUARANTINED):
        return []
    ended = {row.handler for row in found.rows} | {receipt.last_handler}
    for handler in handlers(receipt):
        if ended & set(handler.names):  # under its name of today or a former one
            ended |= set(handler.names)
    return [name for name in receipt.handlers if name not in ended]

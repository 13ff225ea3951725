"""What a person may do to receipts: one audited layer for every door.

Each takes the receipt as it was shown to the person: one that moved on since is left alone. Nothing runs here; the
caller runs what was made due once that is committed, or the sweeper does.
"""

import json
import logging
from collections.abc import Collection, Iterable
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction

from django_webhook_guard import pausing, processing
from django_webhook_guard.conf import names_of, receipts_alias, source_of
from django_webhook_guard.effects import effect_digest
from django_webhook_guard.events import named, owed
from django_webhook_guard.handlers import Handler
from django_webhook_guard.models import WebhookCheckpoint, WebhookEffect, WebhookPause, WebhookReceipt
from django_webhook_guard.text import visible

logger = logging.getLogger("django_webhook_guard")


def retry(receipt: WebhookReceipt, *, actor: str, reason: str = "") -> bool:
    """Make a failed or dead receipt due, with a new budget of attempts.

    Marks of handlers that gave up go, so that those run again.

    Args:
        receipt: The receipt as it was shown.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was made due by this call.
    """
    using, source = receipts_alias(), source_of(receipt.source)
    known = named(source.name, receipt.handlers).values() if source is not None else ()
    databases = {using, *(handler.using for handler in known if handler.using)}
    with transaction.atomic(using=using):
        done = receipt.make_due()
        if done:
            for alias in databases:
                WebhookCheckpoint.objects.using(alias).gave_up(receipt.fingerprint).delete()
    return _told(done, "made due", receipt, actor, reason)


def rerun(receipt: WebhookReceipt, handlers: Collection[str] | None, *, actor: str, reason: str = "") -> bool:
    """Make a finished, failed or dead receipt due, so that handlers run again that are done.

    What ``event.once`` kept stays: an effect that is done is not made again.

    Args:
        receipt: The receipt as it was shown.
        handlers: Names of those that run again; none: only those that have not run, such as a handler that was
            deployed later; ``None``: all.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was made due by this call.
    """
    using, source = receipts_alias(), source_of(receipt.source)
    known = owed(source.name, receipt.event_type, receipt.handlers) if source is not None else []
    names = _every_name(handlers, known)
    unmark = bool(receipt.last_handler) and (names is None or receipt.last_handler in names)
    with transaction.atomic(using=using):
        done = receipt.make_due_again(unmark=unmark)
        if done:
            for alias in {using, *(handler.using for handler in known if handler.using)}:
                marks = WebhookCheckpoint.objects.using(alias)
                fingerprint = receipt.fingerprint
                (marks.filter(fingerprint=fingerprint) if names is None else marks.of(fingerprint, names)).delete()
    which = "every handler" if handlers is None else ", ".join(sorted(handlers)) or "handlers that have not run"
    return _told(done, f"made due again ({visible(which)})", receipt, actor, reason)


def _every_name(handlers: Collection[str] | None, known: Iterable[Handler]) -> set[str] | None:
    """Return names with the other names of their handlers."""
    if handlers is None:
        return None
    renamed = [handler.names for handler in known if not set(handlers).isdisjoint(handler.names)]
    return set(handlers).union(*renamed)


def release(receipt: WebhookReceipt, *, actor: str, reason: str = "") -> bool:
    """Let a quarantined receipt run: it becomes due, with a budget of attempts that begins now.

    Args:
        receipt: The receipt as it was shown.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was released by this call.
    """
    return _told(receipt.release(), "released", receipt, actor, reason)


def discard(receipt: WebhookReceipt, *, actor: str, reason: str = "") -> bool:
    """End a quarantined, failed, dead or received receipt without its work being done.

    Args:
        receipt: The receipt as it was shown.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was discarded by this call.
    """
    return _told(receipt.discard(), "discarded", receipt, actor, reason)


def settle(
    receipt: WebhookReceipt,
    handler: str,
    name: str,
    *,
    happened: bool,
    result: Any = None,
    actor: str,
    reason: str = "",
) -> bool:
    """Write down whether an effect of unknown outcome happened, and make the receipt due with a new budget.

    Args:
        receipt: The receipt as it was shown: dead, with the reason ``effect_unknown``.
        handler: The name under which the handler's effect is kept.
        name: The effect's.
        happened: Whether it did; else the next attempt makes the call, with a new key.
        result: What the call returned, where it happened: what ``event.once`` then gives back.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was settled by this call.

    Raises:
        TypeError: The result is nothing that JSON can hold.
    """
    using = receipts_alias()
    kept = json.dumps(result, cls=DjangoJSONEncoder)
    with transaction.atomic(using=using):
        effect = WebhookEffect.objects.using(using).of([effect_digest(receipt.fingerprint, handler, name)])
        done = effect is not None and effect.settle(happened=happened, result=kept) and receipt.make_due()
        if not done:
            transaction.set_rollback(True, using=using)
    what = f"settled ({name}: {'happened' if happened else 'did not happen'})"
    return _told(done, what, receipt, actor, reason)


def pause(source: str, handler: str = "", *, actor: str, reason: str = "") -> bool:
    """Run nothing of a source, or nothing that one of its handlers has a part in, until it is resumed.

    Deliveries are verified and stored all the while, and an inline source answers as a deferred one does.

    Args:
        source: The source's name.
        handler: The handler's name; an empty string: the whole source.
        actor: Who, as text.
        reason: Why.

    Returns:
        Whether it was paused by this call.
    """
    using = receipts_alias()
    done = WebhookPause.objects.using(using).begin(source, handler, actor=actor, reason=reason)
    pausing.forget()
    if done:
        logger.warning("webhook source %s paused (%s) by %s: %s", source, visible(handler) or "all of it",
                       visible(actor), visible(reason) or "-")  # fmt: skip
    return done


def resume(source: str, handler: str = "", *, actor: str, reason: str = "", rate: float | None = None) -> bool:
    """Let a source, or a handler, go on.

    Args:
        source: The source's name.
        handler: The handler's name; an empty string: the whole source.
        actor: Who, as text.
        reason: Why.
        rate: How many of the waiting receipts may become due a second; None: all at once.

    Returns:
        Whether it was resumed by this call.
    """
    using = receipts_alias()
    receipts = WebhookReceipt.objects.using(using).filter(source__in=names_of(source)).held_up(processing.PAUSED)
    with transaction.atomic(using=using):
        done = WebhookPause.objects.using(using).end(source, handler)
        if done:
            receipts.spread(rate) if rate else receipts.make_overdue()
    pausing.forget()
    if done:
        logger.warning("webhook source %s resumed (%s) by %s: %s", source, visible(handler) or "all of it",
                       visible(actor), visible(reason) or "-")  # fmt: skip
    return done


def _told(done: bool, what: str, receipt: WebhookReceipt, actor: str, reason: str) -> bool:
    if done:
        logger.info("webhook receipt %s %s by %s: %s", receipt.pk, what, visible(actor), visible(reason) or "-")
    return done


def runnable(receipt: WebhookReceipt) -> bool:
    """Tell whether this process has the source that runs the receipt."""
    return source_of(receipt.source) is not None

"""Many receipts at once: chosen when a person asks for it, touched by the sweeper at a rate, stoppable.

What is kept of each receipt is what the person saw: one that moved on since is left alone.
"""

import logging
from functools import partial

from django.db import Error, transaction

from django_webhook_guard import operations
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookBulkAction, WebhookBulkItem, WebhookReceipt
from django_webhook_guard.models.bulk import Wish
from django_webhook_guard.models.receipts import (
    DISCARDABLE,
    RELEASABLE,
    RERUNNABLE,
    RETRYABLE,
    ReceiptQuerySet,
    Status,
)
from django_webhook_guard.transactions import durable, is_connection_lost, repeated

logger = logging.getLogger("django_webhook_guard")

#: How many receipts one action may choose.
MOST = 100_000
#: Bounds of the rate, in receipts a second, and what it is where nobody says.
SLOWEST, RATE, FASTEST = 0.1, 20.0, 1_000.0
#: Receipts of one step at most, and for how many seconds a sweeper has the right to it.
STEP = 100
STEP_LEASE = 60.0
_CHUNK = 1_000

_STATES: dict[str, tuple[Status, ...]] = {
    Wish.RETRY: RETRYABLE,
    Wish.MISSING: RERUNNABLE,
    Wish.RERUN: RERUNNABLE,
    Wish.RELEASE: RELEASABLE,
    Wish.DISCARD: DISCARDABLE,
}


def fit(receipts: ReceiptQuerySet, wish: str) -> ReceiptQuerySet:
    """Narrow receipts to those that are in a state for a wish."""
    return receipts.filter(status__in=_STATES[wish])


def begin(
    receipts: ReceiptQuerySet, wish: str, *, actor: str, reason: str, about: str = "", rate: float = RATE
) -> WebhookBulkAction:
    """Write down what is to be done to which receipts; the sweeper does it.

    Args:
        receipts: Those that were chosen, of which at most ``MOST`` are taken, the oldest first.
        wish: One of ``Wish``.
        actor: Who, as text.
        reason: Why.
        about: Which receipts these are, in words.
        rate: Receipts a second.

    Raises:
        ValueError: The rate is out of bounds.
    """
    if not SLOWEST <= rate <= FASTEST:
        raise ValueError(f"A rate of {rate!r}; give {SLOWEST} to {FASTEST} receipts a second.")
    using = receipts_alias()
    with transaction.atomic(using=using):
        action = WebhookBulkAction.objects.using(using).begin(
            wish=wish, rate=rate, about=about, actor=actor, reason=reason
        )
        rows = fit(receipts.using(using), wish).only("status", "attempts").order_by("received_at", "pk")[:MOST]
        total = 0
        items: list[WebhookBulkItem] = []
        for receipt in rows.iterator(_CHUNK):
            items.append(
                WebhookBulkItem(bulk=action, receipt_id=receipt.pk, status=receipt.status, attempts=receipt.attempts)
            )
            total += 1
            if len(items) == _CHUNK:
                _insert(using, items)
        _insert(using, items)
        action.chosen(total)
    logger.info("webhook bulk action %s (%s) of %s receipts begun by %s", action.pk, wish, total, actor)
    return action


def _insert(using: str, items: list[WebhookBulkItem]) -> None:
    WebhookBulkItem.objects.using(using).bulk_create(items)
    items.clear()


def advance() -> int:
    """Do the next step of every bulk action whose time has come.

    Returns:
        How many receipts were touched.
    """
    using = receipts_alias()
    touched = 0
    for action in WebhookBulkAction.objects.using(using).due():
        if repeated(partial(action.take, STEP_LEASE)):
            touched += _step(using, action)
    return touched


def _step(using: str, action: WebhookBulkAction) -> int:
    size = max(1, min(STEP, round(action.rate)))
    items = list(WebhookBulkItem.objects.using(using).filter(bulk=action).order_by("pk")[:size])
    if not items:
        repeated(action.end)
        return 0
    for item in items:
        if not WebhookBulkAction.objects.using(using).running().filter(pk=action.pk).exists():
            return 0  # stopped in the middle
        try:
            repeated(partial(_touch, using, action, item))
        except Error as error:
            if is_connection_lost(error):
                raise
            logger.exception("webhook bulk action %s: receipt %s could not be written", action.pk, item.receipt_id)
            _cross_off(using, action, item, done=False)
    repeated(partial(action.go_on, len(items) / action.rate))
    return len(items)


def _touch(using: str, action: WebhookBulkAction, item: WebhookBulkItem) -> None:
    """Do it to one receipt, and cross it off in the same transaction."""
    with durable(using):
        receipt = WebhookReceipt.objects.using(using).defer("body", "headers").filter(pk=item.receipt_id).first()
        same = receipt is not None and (receipt.status, receipt.attempts) == (item.status, item.attempts)
        done = receipt is not None and same and _do(action, receipt)
        if not _cross_off(using, action, item, done=done):
            transaction.set_rollback(True, using=using)  # another sweeper was here


def _cross_off(using: str, action: WebhookBulkAction, item: WebhookBulkItem, *, done: bool) -> bool:
    with transaction.atomic(using=using):
        found = WebhookBulkItem.objects.using(using).filter(pk=item.pk).delete()[0]
        if found:
            action.count(done=done)
    return bool(found)


def _do(action: WebhookBulkAction, receipt: WebhookReceipt) -> bool:
    actor, reason = action.actor, f"{action.reason} (bulk action {action.pk})"
    if action.wish == Wish.RETRY:
        return operations.retry(receipt, actor=actor, reason=reason)
    if action.wish == Wish.RELEASE:
        return operations.release(receipt, actor=actor, reason=reason)
    if action.wish == Wish.DISCARD:
        return operations.discard(receipt, actor=actor, reason=reason)
    return operations.rerun(receipt, None if action.wish == Wish.RERUN else [], actor=actor, reason=reason)

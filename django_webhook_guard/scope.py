"""Which receipts a person may see and act on: one hook for the admin, the REST interface and exports."""

import logging
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet
from django.http import HttpRequest

from django_webhook_guard.conf import configuration, receipts_alias, source_of
from django_webhook_guard.locators import Body
from django_webhook_guard.models import WebhookBatch, WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet
from django_webhook_guard.sources import EVERYTHING, SETTING

logger = logging.getLogger("django_webhook_guard")


def receipts_of(request: HttpRequest) -> ReceiptQuerySet:
    """Return the receipts that the user of a request may see: those of the project's ``RECEIPTS_FOR``.

    Where it fails, or returns something else than an unsliced queryset of receipts, nothing may be seen.

    Args:
        request: The request.
    """
    return _seen(request)[0]


def sees_all(request: HttpRequest) -> bool:
    """Tell whether nothing limits what the user may see, so that what is about all receipts may be shown, and done."""
    return _seen(request)[1]


def _seen(request: HttpRequest) -> tuple[ReceiptQuerySet, bool]:
    """Return the receipts that may be seen, and whether that is all of them."""
    every = WebhookReceipt.objects.using(receipts_alias())
    hook = configuration().receipts_for
    if hook is None:
        return every, True
    try:
        return _narrowed(every, hook(request))
    except Exception:
        logger.exception("RECEIPTS_FOR failed: nobody sees a receipt")
        return every.none(), False


def _narrowed(every: ReceiptQuerySet, allowed: Any) -> tuple[ReceiptQuerySet, bool]:
    """Return those of all receipts that are allowed, and whether these are all.

    What is only a condition on receipts themselves is asked as one, so that the list's indexes serve it.
    """
    what = f"{SETTING}['RECEIPTS_FOR'] returned"
    if not isinstance(allowed, QuerySet) or allowed.model is not WebhookReceipt:
        raise TypeError(f"{what} {type(allowed).__name__}, which is no queryset of WebhookReceipt")
    if allowed.query.is_sliced or allowed.query.distinct_fields:
        raise TypeError(f"{what} a queryset with a slice, or that is distinct on some fields")
    if allowed.query.is_empty():
        return every.none(), False
    allowed, plain = allowed.using(every.db).order_by(), _is_plain(allowed)
    found = every & allowed if plain else every.filter(pk__in=allowed.values("pk"))
    try:
        found.query.get_compiler(every.db).as_sql()  # else its mistakes show in the middle of a page
    except EmptyResultSet:
        return every.none(), False
    return found, plain and not allowed.query.where


def _is_plain(allowed: QuerySet[Any]) -> bool:
    """Tell whether a queryset is nothing but a condition on columns of receipts."""
    query: Any = allowed.query
    joins = len(query.alias_map) > 1
    more = query.combinator or query.distinct or query.annotations or query.extra or query.extra_tables
    return not (joins or more or query.select or query.group_by or query.select_for_update)


def may_read_payload(request: HttpRequest) -> bool:
    """Tell whether the user may see what a source names as personal."""
    user: Any = request.user
    return bool(user.has_perm("django_webhook_guard.view_webhookreceipt_payload"))


def personal(receipt: WebhookReceipt) -> tuple[Body, ...]:
    """Return where the receipt's source has personal values; the whole body, where the source is not known here."""
    source = source_of(receipt.source)
    return EVERYTHING if source is None else source.personal


def hidden(request: HttpRequest, receipt: WebhookReceipt) -> tuple[Body, ...]:
    """Return where in a receipt's content the values are that the user may not see."""
    return () if may_read_payload(request) else personal(receipt)


def may_read_body(request: HttpRequest, receipt: WebhookReceipt) -> bool:
    """Tell whether the user may have the raw body.

    It may hold no personal value that the user may not see; and the body that came with several events, only if the
    user may see each of them.
    """
    return not hidden(request, receipt) and (receipt.batch_id is None or _sees_batch(request, receipt.batch_id))


def _sees_batch(request: HttpRequest, number: int) -> bool:
    receipts, all_of_them = _seen(request)
    if all_of_them:
        return True
    batch = WebhookBatch.objects.using(receipts.db).defer("body").filter(pk=number).first()
    return batch is not None and receipts.of_batch(batch).count() == batch.items

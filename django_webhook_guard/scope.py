"""Which receipts a person may see and act on: one hook for the admin, the REST interface and exports."""

import logging
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from django_webhook_guard.conf import configuration, receipts_alias
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import ReceiptQuerySet
from django_webhook_guard.sources import SETTING

logger = logging.getLogger("django_webhook_guard")


def receipts_of(request: HttpRequest) -> ReceiptQuerySet:
    """Return the receipts that the user of a request may see: those of the project's ``RECEIPTS_FOR``.

    Where it fails, or returns something else than an unsliced queryset of receipts, nothing may be seen.

    Args:
        request: The request.
    """
    every: Any = WebhookReceipt.objects.using(receipts_alias())
    hook = configuration().receipts_for
    if hook is None:
        return every  # type: ignore[no-any-return]
    try:
        allowed = hook(request)
        if not isinstance(allowed, QuerySet) or allowed.model is not WebhookReceipt or allowed.query.is_sliced:
            raise TypeError(f"{SETTING}['RECEIPTS_FOR'] returned {type(allowed).__name__}, or a slice")
        return every.filter(pk__in=allowed.using(receipts_alias()).order_by().values("pk"))  # type: ignore[no-any-return]
    except Exception:
        logger.exception("RECEIPTS_FOR failed: nobody sees a receipt")
        return every.none()  # type: ignore[no-any-return]


def sees_all(request: HttpRequest) -> bool:
    """Tell whether nothing limits what the user may see, so that sums over all receipts may be shown."""
    return configuration().receipts_for is None or bool(getattr(request.user, "is_superuser", False))


def may_read_payload(request: HttpRequest) -> bool:
    """Tell whether the user may see what a source names as personal."""
    user: Any = request.user
    return bool(user.has_perm("django_webhook_guard.view_webhookreceipt_payload"))

"""What hangs on a receipt, read and put into words for its page."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from django_webhook_guard import plans
from django_webhook_guard.admin import columns
from django_webhook_guard.models import WebhookAttempt, WebhookEffect, WebhookReceipt
from django_webhook_guard.models.receipts import Reason, Status
from django_webhook_guard.models.records import Mark
from django_webhook_guard.plans import Marks, Plan
from django_webhook_guard.text import shortened, visible

#: How many attempts a page shows, the newest, and how much of the end of a traceback, in characters.
ATTEMPTS = 50
TRACEBACK = 8_192
#: How many receipts are looked at for the names of their handlers.
SAMPLE = 200


def plan(receipt: WebhookReceipt, found: Marks) -> Plan:
    """Say what a retry of the receipt would do, fit to be shown; ``handlers`` stay as they are."""
    known = plans.plan(receipt, found)
    return replace(
        known,
        runs=[visible(name) for name in known.runs],
        stays=[visible(name) for name in known.stays],
        unknown=[visible(name) for name in known.unknown],
        problem=visible(known.problem),
    )


def handlers_of(receipts: QuerySet[WebhookReceipt]) -> list[str]:
    """Return the names of the handlers that some receipts have, of the newest ``SAMPLE`` of them."""
    names: dict[str, None] = {}
    for receipt in receipts.only("source", "event_type", "handlers").order_by("-received_at")[:SAMPLE]:
        names |= dict.fromkeys([*(handler.name for handler in plans.handlers(receipt)), *receipt.handlers])
    return sorted(map(visible, names))


@dataclass(frozen=True, kw_only=True)
class Held:
    """Why a receipt is held, and what releasing it means.

    Args:
        why: The reason in words.
        original: The receipt that had the message, or the nonce, first; None where it is gone or not to be seen.
        url: That receipt's page.
        effect: What became of it, in words.
        said: What its schema says against its content.
        warning: What a release would do.
    """

    why: str
    said: str = ""
    warning: str = ""
    original: WebhookReceipt | None = None
    url: str = ""
    effect: str = ""


def held(
    receipt: WebhookReceipt, visible_receipts: QuerySet[WebhookReceipt], url: Callable[[WebhookReceipt], str]
) -> Held | None:
    """Say why a receipt is quarantined; None where it is not.

    Args:
        receipt: The receipt.
        visible_receipts: Those that the person may see.
        url: Returns a receipt's page.
    """
    if receipt.status != Status.QUARANTINED:
        return None
    why = str(receipt.get_reason_display())
    if receipt.reason == Reason.SCHEMA:
        return Held(why=why, said=visible(receipt.result))
    if receipt.reason not in (Reason.REPLAYED, Reason.KEY_REUSED) or receipt.original is None:
        return Held(why=why)
    original = (
        visible_receipts.filter(fingerprint=receipt.original)
        .only("status", "fingerprint", "source", "event_type")
        .first()
    )
    if original is None:
        return Held(why=why)
    if original.status == Status.PROCESSED:
        effect = _("It took effect as #%(number)d.")
    else:
        effect = _("It first came as #%(number)d, which is %(status)s.")
    told = effect % {"number": original.pk, "status": original.get_status_display()}
    if receipt.reason == Reason.REPLAYED:
        warning = _("Released, the handlers run for the same signed message once more.")
    else:
        warning = _("It has another body under the same nonce: look whether it is an event of its own.")
    return Held(why=why, original=original, url=url(original), effect=told, warning=warning)


def waiting(receipt: WebhookReceipt, found: Marks) -> list[str]:
    """Return the names of the handlers that an open receipt waits for."""
    return list(map(visible, plans.waiting(receipt, found)))


def checkpoint_rows(receipt: WebhookReceipt, found: Marks) -> list[dict[str, Any]]:
    """Return the marks as a page shows them, the one on the receipt itself last."""
    rows: list[dict[str, Any]] = [
        {
            "handler": visible(row.handler),
            "mark": row.mark,
            "label": row.get_mark_display(),
            "result": visible(row.result, lines=True),
            "attempt": row.attempt,
            "at": columns.moment(row.created_at),
        }
        for row in found.rows
    ]
    if receipt.last_handler:
        rows.append(
            {
                "handler": visible(receipt.last_handler),
                "mark": Mark.DONE,
                "label": Mark.DONE.label,
                "result": visible(receipt.result, lines=True),
                "attempt": receipt.attempts,
                "at": columns.moment(receipt.processed_at),
            }
        )
    return rows


def effect_rows(receipt: WebhookReceipt) -> list[dict[str, Any]]:
    """Return the effects outside of the database as a page shows them."""
    return [
        {
            "name": visible(row.name),
            "handler": visible(row.handler),
            "state": row.state,
            "label": row.get_state_display(),
            "key": visible(row.key),
            "calls": row.calls,
            "result": visible(row.result, lines=True) if row.state == WebhookEffect.State.DONE else "",
            "at": columns.moment(row.finished_at or row.key_since),
        }
        for row in WebhookEffect.objects.using(receipt._state.db).of_receipt(receipt.fingerprint)
    ]


def error_group(receipt: WebhookReceipt) -> str:
    """Return the kind of failure of the receipt's last attempt, or an empty string."""
    attempts = WebhookAttempt.objects.using(receipt._state.db).filter(receipt_id=receipt.pk, number=receipt.attempts)
    return attempts.values_list("error_group", flat=True).first() or ""


def unknown_effects(receipt: WebhookReceipt) -> list[WebhookEffect]:
    """Return the effects of a receipt whose outcome nobody knows."""
    rows = WebhookEffect.objects.using(receipt._state.db).of_receipt(receipt.fingerprint)
    return list(rows.filter(state=WebhookEffect.State.UNKNOWN))


def attempt_rows(receipt: WebhookReceipt) -> tuple[list[dict[str, Any]], bool]:
    """Return the last attempts as a page shows them, the newest last, and whether there are earlier ones."""
    attempts = WebhookAttempt.objects.using(receipt._state.db).filter(receipt_id=receipt.pk)
    newest = list(attempts.order_by("-number", "-pk")[: ATTEMPTS + 1])
    return [_attempt_row(each) for each in reversed(newest[:ATTEMPTS])], len(newest) > ATTEMPTS


def _attempt_row(attempt: WebhookAttempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "outcome": columns.chip(attempt.outcome, attempt.get_outcome_display()),
        "trigger": visible(str(attempt.get_trigger_display())),
        "actor": visible(attempt.actor),
        "started": columns.moment(attempt.started_at),
        "duration": attempt.duration_ms,
        "release": visible(attempt.release),
        "handler": visible(attempt.handler),
        "error": visible(attempt.error_class),
        "message": visible(attempt.message, lines=True),
        "traceback": visible(attempt.traceback[-TRACEBACK:], lines=True),
        "cut": len(attempt.traceback) > TRACEBACK,
    }


def header_rows(receipt: WebhookReceipt) -> list[tuple[str, str]]:
    """Return the kept headers as a page shows them."""
    return [(shortened(str(name), 100), visible(str(value))) for name, value in sorted(receipt.headers.items())]

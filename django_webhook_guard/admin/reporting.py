"""What a person is told after a retry, release or discard. No text of a sender is in it."""

from collections.abc import Iterator, Sequence

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_webhook_guard.admin.retrying import Act, Report
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Reason, Status
from django_webhook_guard.text import visible

Line = tuple[int, str]


def question(act: Act) -> str:
    """Return the title and the button of the page that asks once more."""
    return {"release": _("Release and run"), "discard": _("Discard")}[act.name]


def asked(act: Act, receipts: Sequence[WebhookReceipt]) -> list[str]:
    """Return what the page says that asks once more.

    Args:
        act: What is about to be done.
        receipts: Those that are in a state for it.
    """
    count = len(receipts)
    words = {
        "release": ngettext(
            "%(count)d selected receipt is about to be released: its handlers run.",
            "%(count)d selected receipts are about to be released: their handlers run.",
            count,
        ),
        "discard": ngettext(
            "%(count)d selected receipt is about to be discarded: it ends without its work being done, for good.",
            "%(count)d selected receipts are about to be discarded: they end without their work being done, for good.",
            count,
        ),
    }
    lines = [words[act.name] % {"count": count}]
    replays = sum(receipt.reason == Reason.REPLAYED for receipt in receipts)
    if act.runs and replays:
        told = ngettext(
            "%(count)d of them is a replay: its handlers have run for the same signed message before.",
            "%(count)d of them are replays: their handlers have run for the same signed messages before.",
            replays,
        )
        lines.append(told % {"count": replays})
    return [*lines, _("What is in another state, or moved on since the list was shown, is left alone.")]


def all_of_them(wish: str) -> str:
    """Return the title and the button of the page that asks about all receipts of a filter."""
    return {
        "retry": _("Retry all"),
        "missing": _("Run what has not run, of all"),
        "rerun": _("Run all handlers again, of all"),
        "release": _("Release all"),
        "discard": _("Discard all"),
    }[wish]


def asked_about_all(wish: str, count: int, *, cut: bool) -> list[str]:
    """Return what the page says that asks about all receipts of a filter.

    Args:
        wish: What is about to be done.
        count: How many receipts are in a state for it.
        cut: Whether there are more.
    """
    if not count:
        return [_("No receipt of this list is in a state for it.")]
    words = {
        "retry": ngettext(
            "%(count)d failed or dead receipt is retried: handlers that are done do not run again.",
            "%(count)d failed or dead receipts are retried: handlers that are done do not run again.",
            count,
        ),
        "missing": ngettext(
            "Handlers that have not run yet run for %(count)d receipt.",
            "Handlers that have not run yet run for %(count)d receipts.",
            count,
        ),
        "rerun": ngettext(
            "All handlers run again for %(count)d receipt, whatever they have done before.",
            "All handlers run again for %(count)d receipts, whatever they have done before.",
            count,
        ),
        "release": ngettext(
            "%(count)d quarantined receipt is released: its handlers run.",
            "%(count)d quarantined receipts are released: their handlers run.",
            count,
        ),
        "discard": ngettext(
            "%(count)d receipt ends without its work being done, for good.",
            "%(count)d receipts end without their work being done, for good.",
            count,
        ),
    }
    lines = [words[wish] % {"count": count}]
    if cut:
        lines.append(_("There are more than that; the oldest are taken."))
    lines.append(_("The sweeper does it in the background; one that moves on meanwhile is left alone."))
    return lines


def audited(act: Act) -> str:
    """Return the words of the admin's log, with places for status, attempts and reason."""
    return {
        "retry": _("Retried after status %(status)s, attempt %(attempts)d. Reason: %(reason)s"),
        "release": _("Released after status %(status)s, attempt %(attempts)d. Reason: %(reason)s"),
        "discard": _("Discarded after status %(status)s, attempt %(attempts)d. Reason: %(reason)s"),
        "rerun": _("Run again after status %(status)s, attempt %(attempts)d. Reason: %(reason)s"),
        "settle": _("Effect settled after status %(status)s, attempt %(attempts)d. Reason: %(reason)s"),
    }[act.name]


def tell_about_many(request: HttpRequest, act: Act, report: Report) -> None:
    """Say to how many it was done, how they ran, and which were left alone."""
    for level, line in (*_done(act, report), *_left_alone(act, report)):
        messages.add_message(request, level, line)


def _nothing(act: Act) -> str:
    return {
        "retry": _("No receipt was made due."),
        "release": _("No receipt was released."),
        "discard": _("No receipt was discarded."),
    }[act.name]


def _so_many(act: Act, count: int) -> str:
    words = {
        "retry": ngettext("%(count)d receipt was made due.", "%(count)d receipts were made due.", count),
        "release": ngettext("%(count)d receipt was released.", "%(count)d receipts were released.", count),
        "discard": ngettext("%(count)d receipt was discarded.", "%(count)d receipts were discarded.", count),
    }
    return words[act.name] % {"count": count}


def _done(act: Act, report: Report) -> Iterator[Line]:
    count = len(report.done)
    if not count:
        yield messages.WARNING, _nothing(act)
        return
    due = _so_many(act, count)
    if not act.runs:
        yield messages.SUCCESS, due
        return
    if not report.over:
        words = _("The first ones run as soon as this request is saved; webhook_sweep brings the rest.")
        yield messages.SUCCESS, f"{due} {words}"
        return
    yield messages.SUCCESS, due
    yield from _runs(report)
    if report.woken:
        words = ngettext("A worker was woken for it.", "Workers were woken for %(count)d of them.", report.woken)
        yield messages.INFO, words % {"count": report.woken}
    if report.waiting:
        words = ngettext(
            "%(count)d of them did not run in this request; webhook_sweep brings it.",
            "%(count)d of them did not run in this request; webhook_sweep brings them.",
            report.waiting,
        )
        yield messages.INFO, words % {"count": report.waiting}


def _runs(report: Report) -> Iterator[Line]:
    labels = dict(Status.choices)
    for status, count in sorted(report.ran.items()):
        if not status:
            continue
        words = ngettext("%(count)d ran, now %(status)s.", "%(count)d ran, now %(status)s.", count)
        level = messages.SUCCESS if status in (Status.PROCESSED, Status.IGNORED) else messages.WARNING
        yield level, words % {"count": count, "status": labels.get(status, status)}


def _wrong_state(act: Act, count: int) -> str:
    words = {
        "retry": ngettext(
            "%(count)d was skipped: it is neither failed nor dead.",
            "%(count)d were skipped: they are neither failed nor dead.",
            count,
        ),
        "release": ngettext(
            "%(count)d was skipped: it is not quarantined.", "%(count)d were skipped: they are not quarantined.", count
        ),
        "discard": ngettext(
            "%(count)d was skipped: it is finished, or an attempt is at work.",
            "%(count)d were skipped: they are finished, or an attempt is at work.",
            count,
        ),
    }
    return words[act.name]


def _left_alone(act: Act, report: Report) -> Iterator[Line]:
    yield from _counted(
        report.moved_on,
        ngettext(
            "%(count)d was skipped: it moved on since the list was shown.",
            "%(count)d were skipped: they moved on since the list was shown.",
            report.moved_on,
        ),
    )
    yield from _counted(report.closed, _wrong_state(act, report.closed))
    yield from _counted(
        report.refused,
        ngettext(
            "%(count)d was skipped: you may not do this to it.",
            "%(count)d were skipped: you may not do this to them.",
            report.refused,
        ),
    )
    for source, count in sorted(report.homeless.items()):
        words = ngettext(
            "%(count)d was skipped: this process has no source “%(source)s”.",
            "%(count)d were skipped: this process has no source “%(source)s”.",
            count,
        )
        yield messages.WARNING, words % {"count": count, "source": visible(source)}
    yield from _counted(
        report.failed,
        ngettext(
            "%(count)d could not be written; the log says why.",
            "%(count)d could not be written; the log says why.",
            report.failed,
        ),
        messages.ERROR,
    )
    yield from _counted(
        report.unreached,
        ngettext(
            "%(count)d was not reached in time: select it again.",
            "%(count)d were not reached in time: select them again.",
            report.unreached,
        ),
    )


def _counted(count: int, words: str, level: int = messages.WARNING) -> Iterator[Line]:
    if count:
        yield level, words % {"count": count}


def tell_about_one(request: HttpRequest, act: Act, report: Report, receipt: WebhookReceipt) -> None:
    """Say what became of one receipt."""
    level, line = _about_done(act, report) if report.done else _about_left_alone(act, report, receipt)
    messages.add_message(request, level, line)


def _about_done(act: Act, report: Report) -> Line:
    if not act.runs:
        return messages.SUCCESS, _("Discarded. Its event, delivered again, is answered as a duplicate.")
    if not report.over:
        return messages.SUCCESS, _("Made due. It runs as soon as this request is saved.")
    if report.broken:
        return messages.WARNING, _("Made due, but it could not be run now: webhook_sweep brings it, the log says why.")
    status = next(iter(report.ran), "")
    if status in (Status.PROCESSED, Status.IGNORED):
        return messages.SUCCESS, _("It ran: %(status)s.") % {"status": Status(status).label}
    if status in Status.values:
        words = _("It ran and did not work: %(status)s. The newest attempt below says why.")
        return messages.ERROR, words % {"status": Status(status).label}
    return messages.INFO, _("Made due. It did not run in this request; webhook_sweep brings it.")


def _about_left_alone(act: Act, report: Report, receipt: WebhookReceipt) -> Line:
    if report.homeless:
        words = _("Nothing was done: this process has no source “%(source)s”.")
        return messages.ERROR, words % {"source": visible(receipt.source)}
    if report.failed:
        return messages.ERROR, _("Nothing was done: the database refused it, the log says why.")
    if report.closed:
        wrong_state = {
            "retry": _("Nothing was done: only failed and dead receipts can be retried."),
            "release": _("Nothing was done: only quarantined receipts can be released."),
            "discard": _("Nothing was done: it is finished, or an attempt is at work."),
            "rerun": _("Nothing was done: it is held, discarded, or an attempt is at work or owed."),
            "settle": _("Nothing was done: only effects of failed and dead receipts are settled."),
        }
        return messages.WARNING, wrong_state[act.name]
    return messages.WARNING, _("Nothing was done: the receipt moved on since the page was shown. It is as below now.")

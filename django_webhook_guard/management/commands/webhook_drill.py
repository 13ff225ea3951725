"""``manage.py webhook_drill``."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from django_webhook_guard.handlers import DRILL
from django_webhook_guard.management.choosing import positive
from django_webhook_guard.management.composing import composed, source_named
from django_webhook_guard.management.sending import Answer, check_url, send
from django_webhook_guard.sources import STATUS, URL_TENANT, Source

#: Answers to a copy that say that no second receipt was made of it, if it names the first one's.
HELD = ("accepted", "quarantined")


class Command(BaseCommand):
    """Try a running server with signed, repeated and tampered deliveries."""

    help = (
        f"Sends a running server a signed event of type {DRILL}, the same again, and one that was tampered with, and "
        "compares the answers. The event reaches no handler but one that names this type exactly. Ends with 1 where "
        "an answer is wrong."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", help="The source.")
        parser.add_argument(
            "--url",
            help="Scheme and host of the server, or the whole address of a view of your own (default: PUBLIC_URL, or "
            "http://127.0.0.1:8000).",
        )
        parser.add_argument("--tenant", help="The tenant, where the source has some.")
        parser.add_argument("--timeout", type=positive, default=10, help="In seconds (default: %(default)s).")

    def handle(self, *, source: str, url: str | None, tenant: str | None, timeout: int, **options: Any) -> None:
        known = source_named(source)
        address = _address(known, url or known.public_url or "http://127.0.0.1:8000", tenant)
        event = composed(known, address, DRILL, tenant=tenant, now=timezone.now())
        tampered = replace(event, body=event.body + b" ")
        first, second, third = (send(each, timeout=timeout) for each in (event, event, tampered))
        refused = known.responses.get("rejected", STATUS["rejected"])
        rows = [
            ("a signed event", "2xx", first, first.good),
            ("the same again", "duplicate", second, second.good and _is_a_copy(first, second)),
            ("one tampered with", str(refused), third, third.status == refused),
        ]
        self.stdout.write(f"to {address}")
        self.stdout.write(f"{'sent':<20}{'expected':<12}{'answered':<28}")
        for sent, expected, answer, right in rows:
            answered = f"{answer.status} {answer.said('status') or answer.reason}"
            self.stdout.write(f"{sent:<20}{expected:<12}{answered:<28}{'ok' if right else 'WRONG'}")
        wrong = sum(not right for *_, right in rows)
        if wrong:
            raise CommandError(f"{wrong} of {len(rows)} answers are wrong. {_hint(first, second, third)}")


def _address(source: Source, url: str, tenant: str | None) -> str:
    """Return the whole address of the source's view."""
    check_url(url)
    if urlsplit(url).path not in ("", "/"):
        return url
    if not source.route:
        raise CommandError(f"Source {source.name!r} has a view of its own: give its whole address as --url.")
    in_url = tenant is not None and source.tenant == URL_TENANT
    parts = {"source": source.name, **({"tenant": tenant} if in_url else {})}
    try:
        path = reverse(
            "django_webhook_guard:receive-tenant" if in_url else "django_webhook_guard:receive", kwargs=parts
        )
    except NoReverseMatch:
        raise CommandError("The package's URLs are not included: give the whole address as --url.") from None
    return url.rstrip("/") + path


def _is_a_copy(first: Answer, second: Answer) -> bool:
    told = second.said("status")
    if told == "duplicate":
        return True
    reference = second.said("receipt")
    return told in HELD and bool(reference) and reference == first.said("receipt")


def _hint(first: Answer, second: Answer, third: Answer) -> str:
    if 300 <= first.status < 400:
        return "The server redirects, and a redirect loses the body: give the address that it redirects to."
    if first.status == 401:
        return "Does the server have the secrets that this process has?"
    if first.status == 404:
        return "Is the address right?"
    if first.said("status") == "declined":
        return "The source's ACCEPT declines the event, or its UNHANDLED drops it: nothing is stored."
    if first.good and not second.good:
        return "The copy was not taken for one."
    if third.good:
        return "The server took what nobody signed."
    return "Look at the server's log."

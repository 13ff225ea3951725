"""One HTTP request, and what was answered: no redirect is followed, no proxy is used, and everything is bounded."""

import http.client
import json
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

from django.core.management.base import CommandError

from django_webhook_guard.management.composing import Message
from django_webhook_guard.text import shortened, visible

#: How much of an answer is read, in bytes, and shown, in characters.
READ = 65_536
SHOWN = 4_096


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the other side said.

    Args:
        status: The HTTP status.
        reason: The words beside it.
        body: The first ``READ`` bytes.
    """

    status: int
    reason: str
    body: bytes

    @property
    def good(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as a terminal may show it."""
        text = self.body.decode("utf-8", "backslashreplace")
        return visible(text[:SHOWN], lines=True) + ("…" if len(text) > SHOWN else "")

    def said(self, name: str) -> str:
        """Return a field of an answer of this package, such as ``status``; an empty text where there is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        value = found.get(name) if isinstance(found, dict) else None
        return shortened(value, 64) if isinstance(value, str) else ""


def check_url(url: str) -> None:
    """Refuse what is no address of a web server.

    Raises:
        CommandError: It is not http or https, or holds a user, a fragment or what no URL may hold.
    """
    try:
        split = urlsplit(url)
        usable = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or set(url) & set(' "<>\\^`{|}'):
        raise CommandError("Give a URL such as https://hooks.example.org/webhooks/stripe/, in ASCII.")
    if split.username is not None or split.password is not None or split.fragment:
        raise CommandError("Give a URL without user, password and fragment.")


def send(message: Message, *, timeout: float) -> Answer:
    """Post a message.

    Args:
        message: What, and where to.
        timeout: For how many seconds the other side may say nothing; its body has so many altogether.

    Raises:
        CommandError: No answer came.
    """
    check_url(message.url)
    split, deadline = urlsplit(message.url), monotonic() + timeout
    kind = http.client.HTTPSConnection if split.scheme == "https" else http.client.HTTPConnection
    connection = kind(split.hostname or "", split.port, timeout=timeout)
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    try:
        connection.request("POST", target, message.body, dict(message.headers))
        response = connection.getresponse()
        body = _read(response, deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        words = visible(str(error)) or "no words"
        raise CommandError(f"No answer from {split.netloc} ({type(error).__name__}: {words[:300]}).") from None
    finally:
        connection.close()
    return Answer(status=response.status, reason=shortened(response.reason, 100), body=body)


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    body = b""
    while len(body) < READ and monotonic() < deadline and (part := response.read1(READ - len(body))):
        body += part
    return body

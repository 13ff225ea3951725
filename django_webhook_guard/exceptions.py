"""Every error of the package, in one tree.

::

    WebhookGuardError
    ├── Misconfigured (also ImproperlyConfigured)   our side: 503
    ├── VerificationError                           not proven genuine: 401
    │   ├── SignatureMissing
    │   ├── SignatureMalformed
    │   ├── SignatureMismatch
    │   └── UnknownTenant
    ├── MalformedContent (also ValueError)          genuine, but unreadable: 400
    ├── NoHandlerHere                               a failed attempt in an old worker
    ├── NotDone                                     an effect that surely did not happen
    ├── EffectUnknown                               nobody knows whether an effect happened: dead, for a person
    ├── LeaseLost                                   another attempt has taken over; what this one did is rolled back
    └── HandlerSignal                               what a handler raises on purpose
        ├── RetryLater
        ├── GiveUp
        └── Skip
"""

from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured


class WebhookGuardError(Exception):
    """The root of all errors of this package."""


class Misconfigured(WebhookGuardError, ImproperlyConfigured):
    """A setting makes it impossible to accept deliveries of a source; they are answered 503."""


class VerificationError(WebhookGuardError):
    """The delivery is not proven genuine; it is answered 401 and leaves no row.

    Args:
        detail: A short text for the log. It never holds a secret, a signature or an expected digest.
    """

    reason = "unverified"

    def __init__(self, detail: str = "") -> None:
        self.detail = _one_line(detail)
        super().__init__(self.detail or self.reason)


def _one_line(text: str) -> str:
    """Return a text fit for one line of a log, whatever a stranger's header or path put into it."""
    return "".join(character if character.isprintable() else "?" for character in text[:200])


class SignatureMissing(VerificationError):
    """A header that the proof needs did not come."""

    reason = "signature_missing"


class SignatureMalformed(VerificationError):
    """The proof cannot be read: wrong prefix, unreadable digest, stamp or nonce."""

    reason = "signature_malformed"


class SignatureMismatch(VerificationError):
    """The proof is well-formed, and no live secret makes it."""

    reason = "bad_signature"


class UnknownTenant(VerificationError):
    """Raised by a project's secret look-up for a tenant that it does not know: a quiet 401."""

    reason = "unknown_tenant"


class MalformedContent(WebhookGuardError, ValueError):
    """The delivery is genuine, and its content cannot be an event; it is answered 400.

    Args:
        detail: A short text for the log, without content of the payload.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NoHandlerHere(WebhookGuardError):
    """This process does not know a handler that the receipt waits for: it may be an old one in a deploy."""


class NotDone(WebhookGuardError):
    """Raised by the function of ``event.once`` when the effect surely did not happen; a failed attempt.

    The next attempt calls with a new key, if this was the only call that was made with the old one.

    Args:
        message: Why, kept on the attempt.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "not done")


class EffectUnknown(WebhookGuardError):
    """An effect was started, nobody knows whether it happened, and its key is too old to be used again."""


class LeaseLost(WebhookGuardError):
    """Another attempt has taken over the receipt; what this one did is rolled back."""


class HandlerSignal(WebhookGuardError):
    """What a handler raises to say how its run ended."""


class RetryLater(HandlerSignal):
    """Raised by a handler that cannot do its work yet; uses up no attempt and ends with ``max_age``.

    Args:
        after: Wait before the next attempt, in seconds or as a timedelta; ``None`` leaves it to the
            source's retry policy.
        message: Kept on the attempt.

    Raises:
        ValueError: ``after`` is negative.
    """

    def __init__(self, after: float | timedelta | None = None, message: str = "") -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryLater(after={after!r}): give seconds of zero or more.")
        super().__init__(message or "retry later")
        self.after = seconds


class GiveUp(HandlerSignal):
    """Raised by a handler for an event that can never work: the receipt becomes dead, for a person.

    Args:
        message: Why, kept on the attempt.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "gave up")


class Skip(HandlerSignal):
    """Raised by a handler that has nothing to do for this event.

    Args:
        message: Why, kept as the checkpoint's result.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "skipped")

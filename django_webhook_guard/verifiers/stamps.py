"""Time stamps of senders, read strictly."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Literal

StampFormat = Literal["s", "ms", "rfc3339", "rfc1123"]
STAMP_FORMATS: tuple[StampFormat, ...] = ("s", "ms", "rfc3339", "rfc1123")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX = re.compile(r"[0-9]{1,15}")
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_RFC1123 = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|[+-](?!0000)[0-9]{4})"
)


def read_stamp(text: str, stamp: StampFormat) -> datetime | None:
    """Read a stamp; naive times are refused, never taken for local ones.

    Args:
        text: What was sent.
        stamp: ``s`` or ``ms`` since 1970, ``rfc3339`` or ``rfc1123``; never guessed.

    Returns:
        The moment in UTC, or None where the text is not of that form or lies before 1970.
    """
    try:
        moment = _unix(text, stamp) if stamp in ("s", "ms") else _written(text, stamp)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if moment is None or moment < _EPOCH else moment


def _unix(text: str, stamp: StampFormat) -> datetime | None:
    if not _UNIX.fullmatch(text):
        return None
    seconds, thousandths = (int(text), 0) if stamp == "s" else divmod(int(text), 1000)
    try:
        return _EPOCH + timedelta(seconds=seconds, milliseconds=thousandths)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _written(text: str, stamp: StampFormat) -> datetime | None:
    if stamp == "rfc1123":
        return parsedate_to_datetime(text).astimezone(UTC) if _RFC1123.fullmatch(text) else None
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    microseconds = (fraction or "")[:7]
    moment = datetime.fromisoformat(f"{day}T{clock}{microseconds}{'+00:00' if zone in 'Zz' else zone}")
    return moment.astimezone(UTC)


def write_stamp(moment: datetime, stamp: StampFormat) -> str:
    """Return a moment as a sender writes it: what ``read_stamp`` reads.

    Args:
        moment: An aware moment after 1970.
        stamp: ``s`` or ``ms`` since 1970, ``rfc3339`` or ``rfc1123``; what is finer is left away.
    """
    moment = moment.astimezone(UTC)
    if stamp == "rfc3339":
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    if stamp == "rfc1123":
        return format_datetime(moment, usegmt=True)
    return str((moment - _EPOCH) // timedelta(seconds=1 if stamp == "s" else 0.001))

"""Receipts as JSON, with all that is kept of them and hangs on them."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from django_webhook_guard.conf import source_of
from django_webhook_guard.contents import personal_columns
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.masking import MASK, masked
from django_webhook_guard.models import WebhookAttempt, WebhookBatch, WebhookCheckpoint, WebhookEffect, WebhookReceipt
from django_webhook_guard.sources import Source

#: Bodies up to so many bytes are read together with others, larger ones one by one.
SMALL = 16_384
_LEFT_OUT = frozenset({"id", "body", "digest", "receipt"})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What of a receipt is written.

    Args:
        payload: Whether its body and data.
        personal: Whether personal values, too: else they are masked, and there is no raw body of such a source.
    """

    payload: bool = True
    personal: bool = False


def exported(receipts: Sequence[WebhookReceipt], choice: Choice) -> Iterator[str]:
    """Return one line of JSON for each of some receipts; it is pure ASCII without a control character.

    Args:
        receipts: One or more of one database, their bodies not read.
        choice: What is written.
    """
    attempts = _of(WebhookAttempt, receipts, "receipt_id", "pk")
    marks = _of(WebhookCheckpoint, receipts, "fingerprint", "fingerprint")
    effects = _of(WebhookEffect, receipts, "fingerprint", "fingerprint")
    bodies = _Bodies(receipts[0]._state.db, receipts if choice.payload else ())
    for receipt in receipts:
        source = source_of(receipt.source)
        line = {
            "receipt": receipt.pk,
            "reference": receipt.reference,
            **_columns(receipt),
            "marks": [_columns(each) for each in marks[receipt.fingerprint]],
            "effects": [_columns(each) for each in effects[receipt.fingerprint]],
            "attempt_rows": [_columns(each) for each in attempts[receipt.pk]],
        }
        if choice.payload:
            line |= _payload(receipt, source, bodies, choice)
        if source is not None and not choice.personal:
            line |= _hidden(line, source)
        if source is not None:
            line = _redacted(line, source)
        yield json.dumps(line, cls=DjangoJSONEncoder).replace("\x7f", "\\u007f")


def _of(model: Any, receipts: Sequence[WebhookReceipt], column: str, name: str) -> Mapping[Any, list[models.Model]]:
    """Return the rows of a table that hang on some receipts, by what they hang on."""
    found = defaultdict(list)
    values = [getattr(receipt, name) for receipt in receipts]
    for row in model.objects.using(receipts[0]._state.db).filter(**{f"{column}__in": values}).order_by("pk"):
        found[getattr(row, column)].append(row)
    return found


def _columns(row: models.Model) -> dict[str, Any]:
    """Return what a row says, but for what it hangs on and for its body."""
    fields = [field for field in row._meta.concrete_fields if field.name not in _LEFT_OUT]
    return {field.name: getattr(row, field.attname) for field in fields}


class _Bodies:
    """The bodies of some receipts: small ones read at once, a large one or a batch's when it is asked for."""

    def __init__(self, using: str | None, receipts: Iterable[WebhookReceipt]) -> None:
        self._using = using
        small = [each.pk for each in receipts if each.batch_id is None and each.body_size <= SMALL]
        self._small = dict(self._read(WebhookReceipt, small)) if small else {}
        self._last: tuple[int, bytes | None] = (0, None)

    def _read(self, model: Any, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        for number, body in model.objects.using(self._using).filter(pk__in=numbers).values_list("pk", "body"):
            yield number, None if body is None else bytes(body)

    def of(self, receipt: WebhookReceipt) -> bytes | None:
        if receipt.batch_id is None:
            if receipt.body_size <= SMALL:
                return self._small.get(receipt.pk)
            return next((body for _, body in self._read(WebhookReceipt, [receipt.pk])), None)
        if self._last[0] != receipt.batch_id:
            self._last = next(self._read(WebhookBatch, [receipt.batch_id]), (receipt.batch_id, None))
        return self._last[1]


def _payload(receipt: WebhookReceipt, source: Source | None, bodies: _Bodies, choice: Choice) -> dict[str, Any]:
    body = bodies.of(receipt)
    if source is None:  # what of it is personal, nobody can say
        return {"body": _encoded(body) if choice.personal else None, "data": None}
    personal = () if choice.personal else source.personal
    data = _data(receipt, source, body)
    raw = None if personal or _hold_a_secret(body, data, source) else _encoded(body)
    return {"body": raw, "data": data if data is None else masked(data, personal)}


def _encoded(body: bytes | None) -> str | None:
    return None if body is None else base64.b64encode(body).decode()


def _hold_a_secret(body: bytes | None, data: Any, source: Source) -> bool:
    text = (body or b"").decode("utf-8", "surrogateescape")
    return source.redacted(text) != text or _redacted(data, source) != data  # in JSON it may be written otherwise


def _redacted(value: Any, source: Source) -> Any:
    """Return a value without the secrets that the source knows."""
    if isinstance(value, str):
        return source.redacted(value)
    if isinstance(value, dict):
        return {_redacted(key, source): _redacted(each, source) for key, each in value.items()}
    return [_redacted(each, source) for each in value] if isinstance(value, list) else value


def _data(receipt: WebhookReceipt, source: Source, body: bytes | None) -> Any:
    """Return the parsed body, of an item of a batch its part; None where it is gone or cannot be read."""
    if body is None:
        return None
    try:
        data = source.provider.parse(body, receipt.headers.get("content-type", ""))[0]
        if receipt.item is None or source.provider.split is None:
            return data
        return source.provider.split(data)[receipt.item]
    except (MalformedContent, LookupError, TypeError):
        return None


def _hidden(line: Mapping[str, Any], source: Source) -> dict[str, str]:
    """Return the columns that hold a personal value, masked."""
    return {name: MASK for name in personal_columns(source) if line[name]}

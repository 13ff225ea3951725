"""The project's word on what an event of a type looks like: DRF serializers."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from django.db import DataError, Error
from rest_framework.serializers import BaseSerializer, ValidationError

from django_webhook_guard.exceptions import MalformedContent

Schema = type[BaseSerializer[Any]]
#: Pattern of types → serializer, in the order in which they are asked.
Schemas = tuple[tuple[str, Schema], ...]

MAX_ERRORS = 20


class SchemaMismatch(MalformedContent):
    """The content does not fit the schema of its type; says where and by which rule, never a value."""


class SchemaFailed(SchemaMismatch):
    """The schema's own code met what it did not expect; the event is held, for the fault is not its sender's."""


def schema_for(schemas: Schemas, event_type: str) -> Schema | None:
    """Return the first serializer whose pattern matches a type; a missing type is matched by ``*`` only."""
    for pattern, schema in schemas:
        if pattern == "*" or (event_type and fnmatchcase(event_type, pattern)):
            return schema
    return None


def validated(schema: Schema, data: Any) -> Any:
    """Return the validated data of a content.

    Args:
        schema: The serializer class.
        data: The parsed content.

    Raises:
        SchemaMismatch: It does not fit.
        SchemaFailed: The schema itself failed.
        django.db.Error: The schema asks a database, which is away.
    """
    serializer = schema(data=data)
    try:
        serializer.is_valid(raise_exception=True)
    except ValidationError as error:
        found = [f"{path or 'the content'}: {code}" for path, code in _flat(error.get_codes())]
        more = [f"and {len(found) - MAX_ERRORS} more"] if len(found) > MAX_ERRORS else []
        raise SchemaMismatch("does not fit the schema: " + "; ".join(found[:MAX_ERRORS] + more)) from None
    except Exception as error:
        if isinstance(error, Error) and not isinstance(error, DataError):
            raise
        raise SchemaFailed(f"the schema failed with {type(error).__name__}") from error
    return serializer.validated_data


def _flat(codes: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield where and which rule, of the tree that DRF makes of an error."""
    if isinstance(codes, dict):
        for name, inner in codes.items():
            yield from _flat(inner, f"{path}.{_short(name)}" if path else _short(name))
    elif isinstance(codes, list) and any(isinstance(each, dict) for each in codes):
        for number, inner in enumerate(codes):
            yield from _flat(inner, f"{path}.{number}" if path else str(number))
    elif isinstance(codes, list):
        for code in codes:
            yield path, str(code)
    else:
        yield path, str(codes)


def _short(name: Any) -> str:
    # Of a field that takes any keys, the name is the sender's.
    return "".join(each if each.isprintable() else "?" for each in str(name)[:100])

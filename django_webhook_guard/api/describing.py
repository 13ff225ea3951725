"""What an answer looks like, for drf-spectacular, where a project has it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

try:
    from drf_spectacular.types import OpenApiTypes
    from drf_spectacular.utils import extend_schema, extend_schema_field
except ImportError:  # pragma: no cover - the test set-up has it
    extend_schema = extend_schema_field = OpenApiTypes = None  # type: ignore[assignment,misc]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def described(
    answers: Mapping[int, Any], *, parameters: type | None = None, request: Any = None
) -> Callable[[Decorated], Decorated]:
    """Describe a method of a view.

    Args:
        answers: HTTP status → serializer; ``bytes`` for raw bytes.
        parameters: The serializer of the query parameters.
        request: The serializer of the request's body.
    """
    if extend_schema is None:  # pragma: no cover - the test set-up has it
        return lambda method: method
    responses = {
        (status, "application/octet-stream") if answer is bytes else status: (
            OpenApiTypes.BINARY if answer is bytes else answer
        )
        for status, answer in answers.items()
    }
    decorate: Callable[[Decorated], Decorated] = extend_schema(
        parameters=[parameters] if parameters is not None else None, request=request, responses=responses
    )
    return decorate


def described_as(field: Any) -> Callable[[Decorated], Decorated]:
    """Describe what a method of a serializer returns.

    Args:
        field: A serializer, or a field.
    """
    if extend_schema_field is None:  # pragma: no cover - the test set-up has it
        return lambda method: method
    decorate: Callable[[Decorated], Decorated] = extend_schema_field(field)
    return decorate

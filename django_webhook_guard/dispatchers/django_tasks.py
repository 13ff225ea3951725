"""Django Tasks: Django's own from 6.0 on, the package django-tasks before."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import django

from django_webhook_guard.dispatchers import work

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

__all__ = ["run_receipt", "task", "wake"]


@task
def run_receipt(receipt_id: int) -> str:
    """Run a receipt; the message holds its number and nothing else."""
    return work.run(receipt_id)


def wake(options: Mapping[str, Any], receipt_id: int) -> None:
    """Enqueue a receipt.

    Args:
        options: ``queue``, ``priority`` and ``backend``.
        receipt_id: The receipt.
    """
    _task(options).enqueue(receipt_id)


def stays_here(options: Mapping[str, Any]) -> bool:
    """Tell whether enqueuing asks no other server than this thread's database: nobody knows how long one takes."""
    backend = type(_task(options).get_backend())
    return any(each.__name__ in _LOCAL for each in backend.__mro__)


#: Backends that run at once, keep tasks in memory, or insert a row.
_LOCAL = frozenset({"ImmediateBackend", "DummyBackend", "DatabaseBackend"})
_NAMES = {"queue": "queue_name", "priority": "priority", "backend": "backend"}


def _task(options: Mapping[str, Any]) -> Any:
    # Given here and not to the decorator, which fails at import in a project that has no such queue or backend.
    using = {_NAMES[name]: value for name, value in options.items()}
    return run_receipt.using(**using) if using else run_receipt

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
    # Given here and not to the decorator, which fails at import in a project that has no such queue or backend.
    names = {"queue": "queue_name", "priority": "priority", "backend": "backend"}
    using = {names[name]: value for name, value in options.items()}
    (run_receipt.using(**using) if using else run_receipt).enqueue(receipt_id)

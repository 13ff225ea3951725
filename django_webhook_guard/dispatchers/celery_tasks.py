"""Celery. A worker finds the tasks through ``django_webhook_guard.tasks``."""

from collections.abc import Mapping
from typing import Any

from celery import current_app, shared_task

from django_webhook_guard.dispatchers import work


@shared_task(name="django_webhook_guard.run", ignore_result=True)
def run_receipt(receipt_id: int) -> str:
    """Run a receipt; the message holds its number and nothing else."""
    return work.run(receipt_id)


def wake(options: Mapping[str, Any], receipt_id: int) -> None:
    """Send a receipt's number to the broker, once: what fails is the sweeper's.

    Args:
        options: ``queue`` and ``priority``.
        receipt_id: The receipt.
    """
    given = {name: options[name] for name in ("queue", "priority") if name in options}
    run_receipt.apply_async((receipt_id,), retry=False, **given)


def stays_here(options: Mapping[str, Any]) -> bool:
    """Tell whether tasks run in the process that sends them, as in tests."""
    return bool(current_app.conf.task_always_eager)

"""What task engines find here: Celery's ``autodiscover_tasks()`` looks for a module of this name.

``celery_sweep`` is for Celery's beat, ``sweep_receipts`` for whatever schedules Django Tasks. Where an engine is not
installed, its task is missing.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import django

from django_webhook_guard.sweeper import sweep

if TYPE_CHECKING or find_spec("celery") is not None:
    from celery import shared_task

    from django_webhook_guard.dispatchers.celery_tasks import run_receipt as celery_run  # noqa: F401 - registers it

    @shared_task(name="django_webhook_guard.sweep", ignore_result=True)
    def celery_sweep(batch: int = 100) -> dict[str, int]:
        """Make one pass over the receipts that are due; put it on the beat, every few seconds."""
        return dict(sweep(batch=batch))


if TYPE_CHECKING or django.VERSION >= (6, 0) or find_spec("django_tasks") is not None:
    from django_webhook_guard.dispatchers.django_tasks import task

    @task
    def sweep_receipts(batch: int = 100) -> dict[str, int]:
        """Make one pass over the receipts that are due."""
        return dict(sweep(batch=batch))

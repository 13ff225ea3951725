"""The Celery app of the live servers: ``celery -A tests.project.broker worker``."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.project.live_settings")
app = Celery("live", broker=os.environ["LIVE_BROKER"])
app.conf.update(
    task_default_queue=os.environ.get("LIVE_QUEUE", "celery"),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_prefetch_multiplier=1,
)
app.autodiscover_tasks(["django_webhook_guard"])

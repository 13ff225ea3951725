"""``kill -9`` of web servers, workers and sweepers while events flow: each takes effect once, in the end.

``benchmarks/deferred_matrix.py`` is the long form.
"""

import pytest
from django.conf import settings
from django.db import connection

from benchmarks.deferred_matrix import trial
from tests.__main__ import without_redis

pytestmark = pytest.mark.slow
ENGINES = {"postgresql": "celery", "mysql": "tasks", "sqlite": "sweeper"}


def test_a_minute_of_kills_loses_nothing_doubles_nothing_and_charges_once(django_db_blocker):
    engine = ENGINES[connection.vendor]
    if engine == "celery" and without_redis():
        engine = "sweeper"
    url = "sqlite://" if connection.vendor == "sqlite" else settings.DATABASE_URL
    with django_db_blocker.unblock():
        found = trial(url, engine, events=120, kills=20, seconds=60)
    assert found.faults == {}, found
    assert found.counts["events"] == 120
    assert found.kills.total() >= 10

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.retries import RetryPolicy

EXACT = RetryPolicy(jitter=0)


@pytest.mark.parametrize(("failures", "delay"), [(0, 2), (1, 2), (2, 4), (3, 8), (11, 2048), (12, 3600), (10**6, 3600)])
def test_each_failure_doubles_the_wait_up_to_its_limit(failures, delay):
    assert EXACT.delay(failures) == delay


@given(
    base=st.floats(1e-3, 1e10),
    factor=st.floats(1, 1e10) | st.integers(1, 10**10),
    jitter=st.floats(0, 1),
    failures=st.integers(0, 10**9),
)
@settings(deadline=None, max_examples=200)
def test_whatever_the_setting_the_wait_is_finite_and_within_its_limit(base, factor, jitter, failures):
    policy = RetryPolicy(base=base, factor=factor, jitter=jitter)
    assert 0 <= policy.delay(failures) <= policy.max_delay * (1 + jitter) + 1e-6


def test_jitter_spreads_the_waits():
    delays = {RetryPolicy(jitter=0.5).delay(3) for _ in range(50)}
    assert len(delays) > 10
    assert all(4 <= delay <= 12 for delay in delays)


@pytest.mark.parametrize(
    ("used", "age", "exhausted"),
    [(19, 0, False), (20, 0, True), (21, 0, True), (1, 259_200, False), (1, 259_201, True)],
)
def test_attempts_and_age_both_end_the_budget(used, age, exhausted):
    assert EXACT.exhausted(used=used, age=age) is exhausted

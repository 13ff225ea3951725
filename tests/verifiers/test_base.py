from datetime import UTC, datetime, timedelta

import pytest

from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import Verification, check_window

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "side"),
    [
        (0, "inside"),
        (90, "inside"),
        (300, "inside"),
        (300.5, "future"),
        (-300, "inside"),
        (-300.5, "late"),
        (-1e9, "late"),
    ],
)
def test_the_window_has_two_sides(seconds, side):
    assert check_window(NOW + timedelta(seconds=seconds), NOW, 300) == side


def test_without_a_stamp_everything_is_inside():
    assert check_window(None, NOW, 300) == "inside"


@pytest.mark.parametrize("seconds", [-1e9, 0, 1e9])
def test_no_window_is_said_by_none_only(seconds):
    assert check_window(NOW + timedelta(seconds=seconds), NOW, None) == "inside"
    assert seconds == 0 or check_window(NOW + timedelta(seconds=seconds), NOW, 0.001) != "inside"


@pytest.mark.parametrize("tolerance", [300, None, 1e10])
def test_the_end_of_the_calendar_is_in_the_future_whatever_the_window(tolerance):
    end = datetime.max.replace(tzinfo=UTC)
    assert check_window(end, NOW, tolerance) == "future"


def test_neither_content_nor_secret_is_in_the_repr_of_a_verification():
    verification = Verification(content=b"c0ntent", secret=Secret("s3cret-0123456789abcdef"), nonce="n-1")
    assert "c0ntent" not in repr(verification)
    assert "s3cret" not in repr(verification)

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_webhook_guard.verifiers.stamps import STAMP_FORMATS, read_stamp, write_stamp

MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("stamp", "text", "moment"),
    [
        ("s", "1796040000", MOMENT),
        ("s", "01796040000", MOMENT),
        ("s", "253402300800", END),
        ("s", "999999999999999", END),
        ("ms", "1796040000123", MOMENT.replace(microsecond=123000)),
        ("ms", "1796040000", datetime(1970, 1, 21, 18, 54, tzinfo=UTC)),
        ("rfc3339", "2026-11-30T12:00:00Z", MOMENT),
        ("rfc3339", "2026-11-30t12:00:00z", MOMENT),
        ("rfc3339", "2026-11-30T12:00:00.123456789Z", MOMENT.replace(microsecond=123456)),
        ("rfc3339", "2026-11-30T14:00:00.123456789+02:00", MOMENT.replace(microsecond=123456)),
        ("rfc1123", "Mon, 30 Nov 2026 12:00:00 GMT", MOMENT),
        ("rfc1123", "Mon, 30 Nov 2026 14:00:00 +0200", MOMENT),
    ],
)
def test_c4_each_format_of_a_stamp(stamp, text, moment):
    assert read_stamp(text, stamp) == moment
    assert read_stamp(text, stamp).tzinfo is UTC


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("s", "2026-11-30T12:00:00Z"),
        ("s", "9" * 16),
        ("s", "1.5"),
        ("s", "\u0665"),
        ("ms", "1796040000.123"),
        ("rfc3339", "2026-11-30T12:00:00"),
        ("rfc3339", "2026-11-30 12:00:00Z"),
        ("rfc3339", "2026-W49-1T12:00:00Z"),
        ("rfc3339", "2026-11-30T12:00:00.Z"),
        ("rfc3339", "2026-11-30T12:00:00.1234567890Z"),
        ("rfc3339", "2026-13-30T12:00:00Z"),
        ("rfc3339", "0001-01-01T00:00:00+14:00"),
        ("rfc3339", "1969-12-31T23:59:59Z"),
        ("rfc3339", "2026-11-30T12:00:00+99:00"),
        ("rfc3339", "Mon, 30 Nov 2026 12:00:00 GMT"),
        ("rfc1123", "Mon, 30 Nov 2026 12:00:00"),
        ("rfc1123", "Mon, 30 Nov 2026 12:00:00 -0000"),
        ("rfc1123", "Mon, 30 Nov 2026 12:00:00 +9900"),
        ("rfc1123", "Mon, 30 Foo 2026 12:00:00 GMT"),
        ("rfc1123", "30 Nov 2026"),
        ("rfc1123", "2026-11-30T12:00:00Z"),
        ("rfc1123", "9" * 3000),
    ],
)
def test_c4_a_stamp_of_another_format_is_none(stamp, text):
    assert read_stamp(text, stamp) is None


@given(text=st.text(st.characters(max_codepoint=0x700), max_size=60), stamp=st.sampled_from(STAMP_FORMATS))
@example(text="Mon, 30 Nov 0000 12:00:00 GMT", stamp="rfc1123")
@example(text="9999-12-31T23:59:59-23:59", stamp="rfc3339")
@settings(deadline=None, max_examples=300)
def test_no_text_raises(text, stamp):
    moment = read_stamp(text, stamp)
    assert moment is None or moment.tzinfo is UTC


@given(moment=st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)), minutes=st.integers(-1439, 1439))
@settings(deadline=None, max_examples=200)
def test_rfc_3339_as_python_writes_it(moment, minutes):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert read_stamp(moment.isoformat(), "rfc3339") == moment


@pytest.mark.parametrize("stamp", STAMP_FORMATS)
@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.timezones()))
def test_what_is_written_is_read(stamp, moment):
    read = read_stamp(write_stamp(moment, stamp), stamp)
    unit = timedelta(milliseconds=1) if stamp == "ms" else timedelta(seconds=1)
    assert timedelta(0) <= moment - read < unit

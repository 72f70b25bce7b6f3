"""Times, durations and sizes on a command line.

A bare number is milliseconds as a time, and a year or seconds are refused.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from oplogc.ctl.options.values import max_bytes, position, shown_duration, ttl
from oplogc.tail.settings import start_position, start_time
from oplogc.terminal.values import duration

READERS = pytest.mark.parametrize("read", [position, start_time, start_position])
Read = Callable[[str], object]


@READERS
@pytest.mark.parametrize("text", ["2", "20", "2020", "20200131", "1580428800", "99999999999"])
def test_a_number_that_is_a_year_a_date_or_seconds_is_refused(read: Read, text: str) -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970 have 12 or 13 digits") as refused:
        read(text)
    assert str(refused.value).startswith(f"{text!r} is too small: ")
    assert "2020-01-31T00:00:00Z" in str(refused.value)


@READERS
@pytest.mark.parametrize("text", ["100000000000", "1580428800000", "9999999999999"])
def test_milliseconds_are_a_time(read: Read, text: str) -> None:
    given = read(text)
    ms = int(text)
    assert given == (text if isinstance(given, str) else datetime.fromtimestamp(ms / 1000, UTC))


@pytest.mark.parametrize("text", ["0", "1"])
def test_the_positions_of_a_reset_stay(text: str) -> None:
    """0 asks for a replication, and a reset has the id 1."""
    assert start_position(text) == text
    assert start_time(text) == datetime.fromtimestamp(int(text) / 1000, UTC)
    assert position("0") == "0"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("90", 90), ("1.5h", 5400), ("7d", 604_800), ("2W", 1_209_600), (" 1 m ", 60)],
)
def test_a_duration_has_the_units_of_the_agent(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1y", "1m30s", "1e3", "\u0661s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


def test_a_time_to_live_is_a_whole_number_of_seconds() -> None:
    assert ttl("1w") == 604_800
    assert shown_duration(ttl("1w")) == "7d"
    with pytest.raises(ValueError, match="'1500ms' is not a whole number of seconds"):
        ttl("1500ms")


@pytest.mark.parametrize("text", ["2MB", "2MiB", "2m", "2048KB", "2048 KiB", "2097152"])
def test_a_kilobyte_has_1024_bytes_however_it_is_written(text: str) -> None:
    assert max_bytes(text) == 2 << 20


@pytest.mark.parametrize("read", [position, start_time])
def test_weeks_before_now_are_a_time(read: Read) -> None:
    given = read("2w")
    assert isinstance(given, datetime)
    assert 1_209_599 < (datetime.now(UTC) - given).total_seconds() < 1_209_630

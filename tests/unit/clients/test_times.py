"""A bare number on a command line is milliseconds, and a year or seconds are refused."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from oplogc.ctl.options.values import position
from oplogc.tail.settings import start_position, start_time

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

"""Sizes and durations are read and written in one way."""

import pytest

from oplog_kit.units import (
    CENTURY,
    duration,
    duration_text,
    rough_duration,
    rough_size,
    size,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("3", 3.0),
        ("500ms", 0.5),
        ("0.1ms", 0.0001),
        ("1.5 s", 1.5),
        ("10M", 600.0),
        ("0.5h", 1800.0),
        (" 30d ", 2_592_000.0),
        ("2w", 1_209_600.0),
        ("36500d", CENTURY),
    ],
)
def test_a_duration_has_one_of_six_units_or_is_a_number_of_seconds(
    text: str, seconds: float
) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1y", "-1", "1e3", "1:30", "nan", "36501d", "\uff11s"])
def test_other_durations_are_refused_with_all_units(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, such as 500ms, 20s, 10m, 12h, 30d or"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("0", 0),
        ("1000", 1000),
        ("1000 B", 1000),
        ("64k", 64 << 10),
        ("64 KB", 64 << 10),
        ("64KiB", 64 << 10),
        ("1.5MB", 3 << 19),
        ("2 gb", 2 << 30),
        ("0.1 GB", 107_374_182),
        ("1.0001KB", 1024),
        ("10TiB", 10 << 40),
        ("8388607TB", 8388607 << 40),
    ],
)
def test_units_of_sizes_are_powers_of_1024_and_a_part_of_a_byte_is_dropped(
    text: str, total: int
) -> None:
    assert size(text) == total


@pytest.mark.parametrize("text", ["", "KB", "10XB", "-1", "1.5", "1.5 B", "8388608TB", "1 Mio"])
def test_other_sizes_are_refused_with_all_units(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size, such as 10485760, 64KB, 10MB, 1GB or 1TB"):
        size(text)


def test_a_message_names_the_range_and_the_text() -> None:
    with pytest.raises(ValueError, match=r"'4095' is not a size of at least 4096 bytes, such as"):
        size("4095", 4096)


def test_shown_sizes_and_durations_are_read_as_the_same_values() -> None:
    for octets in (0, 1, 1001, 1024, 1536, 64 << 10, 10 << 20, 1 << 30, 3 << 40, 1 << 50):
        assert size(size_text(octets)) == octets
    for seconds in (0.0, 0.0001, 0.1, 1.0, 1.5, 604_800.0):
        assert duration(duration_text(seconds)) == seconds
    assert size_text(64 << 10) == "64 KB"
    assert duration_text(0.1) == "100ms"


def test_people_see_two_or_three_digits() -> None:
    sizes = [rough_size(each) for each in (1023, 1024, 3 << 19, 1 << 30, 5 << 40)]
    assert sizes == ["1,023 bytes", "1.0 KB", "1.5 MB", "1.0 GB", "5.0 TB"]
    durations = [rough_duration(each) for each in (0.85, 3.2, 250, 7500)]
    assert durations == ["850 ms", "3.2 s", "4 min 10 s", "2 h 5 min"]

"""The Python client, which comes without the other programs, reads units as they do."""

from collections.abc import Callable

import pytest

from oplog_kit import units
from oplogc.ctl.options.values import ttl
from oplogc.terminal import values

NUMBERS = [*map(str, range(12)), *(f"{tenth / 10:g}" for tenth in range(1, 1000)), "1.0001", "x"]


def outcome(read: Callable[[str], float], text: str) -> float | None:
    try:
        return read(text)
    except ValueError:
        return None


@pytest.mark.parametrize("unit", ["", "ms", "s", "m", "h", "d", "w", " H", "min"])
def test_durations_are_those_of_the_other_programs(unit: str) -> None:
    for number in NUMBERS:
        text = number + unit
        assert outcome(values.duration, text) == outcome(units.duration, text), text


@pytest.mark.parametrize("unit", ["", "B", "k", "KB", "KiB", "M", "mb", "GiB", " TB", "PB"])
def test_sizes_are_those_of_the_other_programs(unit: str) -> None:
    for number in NUMBERS:
        text = number + unit
        found = outcome(lambda text: values.size(text, 0, "0"), text)
        assert found == outcome(units.size, text), text


def test_a_fraction_of_an_hour_is_a_whole_number_of_seconds() -> None:
    assert [ttl(text) for text in ("1.1h", "2.2d", "4.1m")] == [3960, 190_080, 246]

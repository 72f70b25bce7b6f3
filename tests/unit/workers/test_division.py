"""The parts of all workers together are what the operator has set."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.config.command import parse
from oplogd.config.settings import Settings
from oplogd.errors import SettingError
from oplogd.workers.division import DIVIDED, divided
from tests.kits.models.properties import examples

MONGO = {"OPLOGD_MONGO_URL": "mongodb://localhost", "OPLOGD_SPOOL": "spool.db"}


def test_the_settings_that_the_workers_divide_are_known() -> None:
    assert DIVIDED.keys() == {
        "max_queued_events",
        "max_queued_bytes",
        "max_upload_memory",
        "ring_bytes",
        "spool_size",
    }


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def set_to(**values: int) -> Settings:
    flags = [text for name, value in values.items() for text in (flag(name), str(value))]
    return parse(flags, MONGO)


def test_one_worker_has_the_same_settings() -> None:
    settings = set_to()
    assert divided(settings, 1) is settings


@examples()
@given(
    count=st.integers(2, 64),
    totals=st.fixed_dictionaries({name: st.integers(64 << 20, 1 << 40) for name in DIVIDED}),
)
def test_equal_parts_are_no_more_than_the_whole(count: int, totals: dict[str, int]) -> None:
    settings = set_to(**totals)
    part = divided(settings, count)
    for name, total in totals.items():
        assert total - count < count * getattr(part, name) <= total
    others = {each.name for each in dataclasses.fields(Settings)} - set(DIVIDED)
    assert all(getattr(part, name) == getattr(settings, name) for name in others)


@pytest.mark.parametrize("name", DIVIDED)
def test_the_least_part_is_the_least_value_of_the_flag(name: str) -> None:
    least = DIVIDED[name]
    assert getattr(set_to(**{name: least}), name) == least
    with pytest.raises(SystemExit):
        set_to(**{name: least - 1})


@pytest.mark.parametrize("name", DIVIDED)
def test_a_part_below_the_least_value_of_its_flag_is_refused(name: str) -> None:
    least = DIVIDED[name]
    assert getattr(divided(set_to(**{name: 4 * least}), 4), name) == least
    given = set_to(**{name: 4 * least - 1})
    message = rf"^--workers 4: .*: {flag(name)} {4 * least - 1:,} must be at least {4 * least:,}$"
    with pytest.raises(SettingError, match=message):
        divided(given, 4)


def test_all_parts_that_are_too_small_are_named_at_once() -> None:
    with pytest.raises(SettingError, match=r"--max-queued-events 2 .*; --ring-bytes 70,000 must"):
        divided(set_to(max_queued_events=2, ring_bytes=70_000), 3)


def test_without_a_spool_its_size_does_not_matter() -> None:
    settings = parse(["--spool-size", "1MB"], {})
    assert divided(settings, 2).spool_size == settings.spool_size

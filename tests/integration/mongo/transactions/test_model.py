"""Appending a transaction's operations as it is done is right in every schedule of its model."""

import pytest

from tests.kits.mongo.transaction_model import WAYS, Way, run, wrong

SCHEDULES = 2_000
# The rarest fault is in one of 1,700 schedules.
MOST_SCHEDULES = 20_000


def test_no_schedule_of_two_agents_loses_doubles_or_disorders_an_operation() -> None:
    assert wrong(Way(), range(SCHEDULES)) == {"any": 0}


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way != Way()])
def test_every_other_way_goes_wrong(name: str) -> None:
    assert any(run(WAYS[name], seed) for seed in range(MOST_SCHEDULES))

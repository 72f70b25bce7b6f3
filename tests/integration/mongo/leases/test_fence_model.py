"""A fence that is judged with the append is right in every schedule of its model."""

import pytest

from tests.kits.mongo.fence_model import WAYS, Way, run, wrong

SCHEDULES = 2_000
# The rarest fault is in one of 1,100 schedules.
MOST_SCHEDULES = 20_000


def test_no_schedule_puts_an_entry_of_an_old_term_behind_one_of_a_later_term() -> None:
    assert wrong(Way(), range(SCHEDULES)) == {"any": 0}


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way != Way()])
def test_every_other_way_goes_wrong(name: str) -> None:
    assert any(run(WAYS[name], seed) for seed in range(MOST_SCHEDULES))

"""The append's order of steps is right in every schedule of its model. Every other order fails."""

import pytest

from tests.kits.mongo.append_model import ORDERS, RIGHT, Order, run, wrong

SCHEDULES = 2_000


def test_no_schedule_of_the_right_order_loses_doubles_or_leaves_a_hole() -> None:
    assert wrong(RIGHT, range(SCHEDULES)) == {"any": 0}


@pytest.mark.parametrize(
    "order",
    [each for each in ORDERS.values() if each != RIGHT],
    ids=[n for n, o in ORDERS.items() if o != RIGHT],
)
def test_every_other_order_goes_wrong(order: Order) -> None:
    assert any(run(order, seed) for seed in range(SCHEDULES))

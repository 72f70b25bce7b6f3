"""Models of two agents or relays in schedules with other seeds each time."""

import random

from tests.kits.mongo import append_model, fence_model, transaction_model
from tests.kits.relay.schedule import Schedule
from tests.soak.conftest import Rounds

SCHEDULES = 10_000
# A schedule of relays has many more steps.
SCHEDULES_OF_RELAYS = 200


def test_no_other_schedule_of_the_models_goes_wrong(rounds: Rounds) -> None:
    for _ in rounds():
        first = random.randrange(2**32)
        seeds = range(first, first + SCHEDULES)
        right = {"any": 0}
        assert append_model.wrong(append_model.RIGHT, seeds) == right, first
        assert fence_model.wrong(fence_model.Way(), seeds) == right, first
        assert transaction_model.wrong(transaction_model.Way(), seeds) == right, first


def test_no_other_schedule_of_two_relays_reverses_a_key_or_loses_a_row(rounds: Rounds) -> None:
    for _ in rounds():
        first = random.randrange(2**32)
        for seed in range(first, first + SCHEDULES_OF_RELAYS):
            assert (seed, Schedule(seed).run()) == (seed, [])

"""Random numbers of tests: the same in each run, and others in each round of `make soak`."""

import os
import random
from typing import Final

# Set by tests/soak/repeating.py.
SOAK_SEED: Final = os.environ.get("OPLOG_TEST_SEED")


def chance(seed: int) -> random.Random:
    """Return the random numbers of a test. ``seed``: outside `make soak`."""
    return random.Random(seed if SOAK_SEED is None else f"{SOAK_SEED} {seed}")


def rounds(few: int, many: int) -> int:
    """Return the number of a test's random rounds: ``many`` in `make soak`."""
    return few if SOAK_SEED is None else many

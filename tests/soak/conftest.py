"""Long runs: `make soak MINUTES=30`. A module for each subject.

A run repeats until its minutes have passed, and each round compares exact counts.
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.kits.run.needs import SOAK

Rounds = Callable[[], Iterator[int]]


@pytest.fixture
def rounds() -> Rounds:
    """Return a function that yields 1, 2, 3, … until the minutes have passed; at least once."""

    def numbers() -> Iterator[int]:
        end = time.monotonic() + 60 * float(os.environ[SOAK])
        number = 0
        while number == 0 or time.monotonic() < end:
            number += 1
            yield number
            print(f"round {number} done", flush=True)

    return numbers

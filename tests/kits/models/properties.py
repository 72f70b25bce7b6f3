"""Settings of property tests, and seeds of random tests.

Each run has the same examples, so that a failure is caused by the change under test. If
``OPLOG_TEST_RANDOM`` is set, as in ``make soak``, each run has others. ``OPLOG_TEST_EXAMPLES`` sets
the number of examples. These settings are the default of all property tests.
"""

import os
import random

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("OPLOG_TEST_EXAMPLES") or 50)
IS_RANDOM = bool(os.environ.get("OPLOG_TEST_RANDOM"))

# Slow examples are allowed, because the machine may be busy. Examples may share a fixture.
settings.register_profile(
    "oplog",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not IS_RANDOM,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("oplog")


def examples(share: float = 1.0) -> settings:
    """Return the settings of a property test. ``share`` multiplies the number of examples."""
    return settings(max_examples=max(1, int(EXAMPLES * share)))


def chance(seed: int) -> random.Random:
    """Return the random numbers of this seed, or in ``make soak`` of another, which is printed."""
    if IS_RANDOM:
        seed = random.randrange(2**32)
        print(f"seed {seed}", flush=True)
    return random.Random(seed)


def rounds(few: int, many: int) -> int:
    """Return the number of a test's random rounds: ``many`` in ``make soak``."""
    return many if IS_RANDOM else few

"""How many examples a property test tries. ``OPLOG_TEST_EXAMPLES`` makes a long run."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("OPLOG_TEST_EXAMPLES") or 100)


def examples(share: float = 1.0) -> settings:
    """Settings of a property test; ``share`` is below 1 where an example is expensive.

    No deadline and no complaint about slow examples: the machine may be busy. A fixture may be shared by the examples.
    """
    return settings(
        max_examples=max(1, int(EXAMPLES * share)),
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )

"""Settings of property tests. ``OPLOG_TEST_EXAMPLES`` sets the number of examples."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("OPLOG_TEST_EXAMPLES") or 100)


def examples(share: float = 1.0) -> settings:
    """Return the settings of a property test. ``share`` multiplies the number of examples.

    Slow examples are allowed, because the machine may be busy. Examples may share a fixture.
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

from collections.abc import Iterator

import pytest

from tests.kits.pipe.messages import owner
from tests.kits.pipe.targets import OwnedSink, Target, new_target

# Rows from which a test with `early_copy` uses COPY.
EARLY_COPY = 500


@pytest.fixture
def early_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sink of PostgreSQL use COPY for few rows."""
    monkeypatch.setattr("oplog_pipe.sinks.postgres.rows.COPY_FROM", EARLY_COPY)


@pytest.fixture(params=["postgres", "mongodb", "elasticsearch"])
def target(request: pytest.FixtureRequest) -> Target:
    """Each of the targets that can be read, empty."""
    return new_target(request.param, request)


@pytest.fixture
def sink(target: Target) -> Iterator[OwnedSink]:
    """A sink of the target, open."""
    made = target.sink()
    made.own(owner())
    made.open()
    yield made
    made.close()

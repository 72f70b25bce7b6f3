from collections.abc import Iterator

import pytest

from tests.kits.pipe.targets import Target, VersionedSink, new_target


@pytest.fixture(params=["postgres", "mongodb", "elasticsearch"])
def target(request: pytest.FixtureRequest) -> Target:
    """Each of the targets that can be read, empty."""
    return new_target(request.param, request)


@pytest.fixture
def sink(target: Target) -> Iterator[VersionedSink]:
    """A sink of the target, open."""
    made = target.sink()
    made.open()
    yield made
    made.close()

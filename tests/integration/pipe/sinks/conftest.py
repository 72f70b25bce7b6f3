from collections.abc import Iterator

import pytest

from tests.kits.pipe.messages import owner
from tests.kits.pipe.targets import OwnedSink, Target, new_target


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

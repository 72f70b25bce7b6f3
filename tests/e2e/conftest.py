"""Stores for tests of topics."""

import pytest

from tests.kits.servers.stores import StorePlace, new_place

SMALL = "mongo-capped"


@pytest.fixture(params=["sqlite", "mongo-plain", SMALL])
def place(request: pytest.FixtureRequest) -> StorePlace:
    """Return an empty store of each kind. Some hundred messages are the most for SMALL."""
    return new_place(request, request.param)

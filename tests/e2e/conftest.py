"""Stores for tests of messages."""

import pytest

from tests.kits.servers.stores import StorePlace, new_place


@pytest.fixture(params=["sqlite", "mongo-plain"])
def place(request: pytest.FixtureRequest) -> StorePlace:
    """Return an empty store of each kind that holds messages.

    A capped log holds operations only. Tests of messages that are also about the log name it.
    """
    return new_place(request, request.param)

"""The wire contract, row by row, against a running agent and over raw bytes, on each store.

``OPLOG_CONTRACT_URL=https://host:8042 pytest tests/contract`` tests the agent at that address instead of starting one;
``OPLOG_CONTRACT_UDP=host:port`` says where its UDP is, if not at the same address. It must ask for no password and have no
``--object-url``, and nobody else may use it meanwhile: counters are compared exactly, and operations are left in its log.
The modules ``test_flag_*.py`` start agents of their own in any case, since they need other flags.
"""

import os
from collections.abc import Iterator

import pytest

from tests.contract.places import PLACES, Place
from tests.contract.wire import Target

URL = "OPLOG_CONTRACT_URL"
UDP = "OPLOG_CONTRACT_UDP"


@pytest.fixture(scope="module", params=["sqlite"] if URL in os.environ else PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Where the agents of a module keep what they are sent."""
    return PLACES[request.param](request.getfixturevalue)


@pytest.fixture(scope="module")
def target(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The agent at OPLOG_CONTRACT_URL, or one started for the module."""
    if url := os.environ.get(URL):
        host, _, port = os.environ.get(UDP, "").rpartition(":")
        yield Target(url, (host, int(port)) if port else None)
        return
    with place.agent(tmp_path_factory.mktemp("agent"), "--heartbeat", "200ms") as agent:
        yield Target.of(agent)

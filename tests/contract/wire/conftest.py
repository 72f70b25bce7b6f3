"""The wire contract, row by row, against a running agent and over raw bytes, on each store.

``OPLOG_CONTRACT_URL=https://host:8042 pytest tests/contract/wire`` tests the agent at that address
instead of starting one. ``OPLOG_CONTRACT_UDP=host:port`` is its address for UDP, by default the
same. That agent must have no password and no ``--object-url``, and no other clients: counters are
compared exactly. The tests leave operations in its log. The modules in ``flags/`` always start
their own agents, since they need other flags.
"""

import os
from collections.abc import Iterator

import pytest

from tests.contract.wire.pointers.pointers import PointerClient
from tests.contract.wire.store_kinds import EACH_STORE, URL, StoreKind, kinds_of_store
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.agents.agent import Agent
from tests.kits.contract.passwords import READER, WRITER
from tests.kits.contract.wire import Target

UDP = "OPLOG_CONTRACT_UDP"

store_kind = kinds_of_store(EACH_STORE)


@pytest.fixture(scope="module")
def target(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Yield the agent at OPLOG_CONTRACT_URL, or start one for the module."""
    if url := os.environ.get(URL):
        host, _, port = os.environ.get(UDP, "").rpartition(":")
        yield Target(url, (host, int(port)) if port else None)
        return
    with store_kind.agent(tmp_path_factory.mktemp("agent"), "--heartbeat", "200ms") as agent:
        yield Target.of(agent)


@pytest.fixture(scope="module")
def guarded(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Start an agent with a password for reading and another one for sending."""
    flags = ("--password", READER, "--ingest-password", WRITER)
    with store_kind.agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        yield Target.of(agent)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Start another agent for the same consumers, with one password for both ways."""
    flags = ("--password", READER, "--ingest-password", READER, "--debug")
    with Agent(tmp_path_factory.mktemp("other"), *flags) as agent:
        yield agent


@pytest.fixture
def topic(target: Target) -> TopicClient:
    return TopicClient(target).create()


@pytest.fixture
def pointer(topic: TopicClient) -> PointerClient:
    return PointerClient(topic)

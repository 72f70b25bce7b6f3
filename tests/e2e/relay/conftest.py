"""Agents and outboxes that the scenarios of a file share."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.relay.chain import Chain
from tests.kits.relay.outbox import OutboxTable
from tests.kits.relay.processes import EMBEDDED, TALKATIVE
from tests.kits.servers.mongo import new_database
from tests.kits.servers.postgres import PostgresServer
from tests.kits.servers.stores import SORTS, StorePlace

_numbers = itertools.count(1)
PROGRAMS = {"standalone": TALKATIVE, "embedded": EMBEDDED}
NewChain = Callable[[], Chain]


@pytest.fixture(scope="module", params=["sqlite", "mongo-plain"])
def agents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[Agent]]:
    """Run an agent on SQLite, or two on one database of MongoDB."""
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield [stack.enter_context(Agent(folder))]
            return
        server, kind = SORTS[request.param]
        running = request.getfixturevalue(str(server))
        place = StorePlace(new_database(running.url), kind).create()
        yield [stack.enter_context(place.agent(folder)) for _ in range(2)]


@pytest.fixture(params=["postgres"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxTable:
    """Return an empty outbox, on PostgreSQL or on SQLite."""
    if request.param == "sqlite-outbox":
        return OutboxTable(f"sqlite:///{tmp_path / 'app.db'}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return OutboxTable(server.new_database())


@pytest.fixture(params=["standalone"])
def chain(
    request: pytest.FixtureRequest, agents: Sequence[Agent], outbox: OutboxTable, tmp_path: Path
) -> Chain:
    """Return a new scenario on these agents and this outbox."""
    name = f"s{next(_numbers)}"
    return Chain(name, agents, outbox, tmp_path, PROGRAMS[request.param])

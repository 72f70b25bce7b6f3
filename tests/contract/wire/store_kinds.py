"""The kinds of stores for agents under test."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from oplog_kit import units
from oplogd.workers.division import DIVIDED
from tests.kits.agents.agent import Agent, write_lock
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.contract.wire import wait_until
from tests.kits.proxies.mongo import CommandProxy
from tests.kits.servers.mongo import RunningMongo, new_database

# Time without an answer after which an agent treats the store as away.
_HELD_MS = 5_000

Hold = Callable[[], AbstractContextManager[None]]


class StoreKind(Protocol):
    def agent(self, folder: Path, *flags: str, clock: MovedClock | None = None) -> Agent:
        """Return an agent with its own empty store, in ``folder`` if the store is a file.

        ``clock``: the agent's, and that of its store.
        """

    def held_agent(self, folder: Path, *flags: str) -> AbstractContextManager[tuple[Agent, Hold]]:
        """Return such an agent, and a context in which its store takes no operations."""


class Sqlite:
    def __init__(self, fixture: Callable[[str], Any]) -> None:
        pass

    def agent(self, folder: Path, *flags: str, clock: MovedClock | None = None) -> Agent:
        return _agent(folder, flags, clock)

    @contextmanager
    def held_agent(self, folder: Path, *flags: str) -> Iterator[tuple[Agent, Hold]]:
        with self.agent(folder, *flags) as agent:
            yield agent, lambda: write_lock(folder)


class Workers(Sqlite):
    """An agent of two workers: a client may meet either of them with each connection.

    Flags that are divided among workers have their values for each of them.
    """

    def agent(self, folder: Path, *flags: str, clock: MovedClock | None = None) -> Agent:
        divided = {f"--{name.replace('_', '-')}" for name in DIVIDED}
        doubled = [
            str(2 * units.size(value, 1)) if before in divided else value
            for before, value in zip(("", *flags), flags, strict=False)
        ]
        return _agent(folder, ("--workers", "2", *doubled), clock)


class Mongo:
    def __init__(self, running: RunningMongo, kind: str) -> None:
        self._running = running
        self._kind = kind

    def agent(self, folder: Path, *flags: str, clock: MovedClock | None = None) -> Agent:
        return self._agent(new_database(self._running.url), folder, flags, clock)

    @contextmanager
    def held_agent(self, folder: Path, *flags: str) -> Iterator[tuple[Agent, Hold]]:
        with CommandProxy(new_database(self._running.url)) as proxy:
            url = proxy.url(socketTimeoutMS=str(_HELD_MS))
            with self._agent(url, folder, flags) as agent:
                yield agent, lambda: _hold(proxy)

    def _agent(
        self, url: str, folder: Path, flags: Sequence[str], clock: MovedClock | None = None
    ) -> Agent:
        store = ("--mongo-url", url, "--log-collection", self._kind)
        return _agent(folder, (*store, *flags), clock)


@contextmanager
def _hold(proxy: CommandProxy) -> Iterator[None]:
    """Hold writes. Afterwards wait until the server has carried one of them out."""
    with proxy.hold("insert"):
        yield
    assert wait_until(lambda: proxy.late > 0 or not proxy.held)


def _agent(folder: Path, flags: Sequence[str], clock: MovedClock | None) -> Agent:
    if clock is None:
        return Agent(folder, *flags)
    return MovedAgent(folder, *flags, environ=clock.environ)


STORE_KINDS: dict[str, Callable[[Callable[[str], Any]], StoreKind]] = {
    "sqlite": Sqlite,
    "workers": Workers,
    "plain": lambda fixture: Mongo(fixture("java"), "plain"),
    "capped": lambda fixture: Mongo(fixture("ferret"), "capped"),
}
# The address of an agent to test; then there is one store, and nobody asks which.
URL = "OPLOG_CONTRACT_URL"
EACH_STORE = ["sqlite"] if URL in os.environ else list(STORE_KINDS)
# Kinds that keep records in another way: a capped collection changes only the log of operations.
EACH_DRIVER = [kind for kind in EACH_STORE if kind != "capped"]


def kinds_of_store(kinds: Sequence[str]) -> Callable[[pytest.FixtureRequest], StoreKind]:
    """Return a fixture: the kind of store for the agents of a module."""

    @pytest.fixture(scope="module", params=kinds)
    def store_kind(request: pytest.FixtureRequest) -> StoreKind:
        return STORE_KINDS[request.param](request.getfixturevalue)

    return store_kind


# A claim about requests, streams or figures alone: it holds the same on every store.
on_one_store = pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
on_each_driver = pytest.mark.parametrize("store_kind", EACH_DRIVER, indirect=True)
# Each worker has a queue of its own, so one client cannot fill them.
on_each_queue = pytest.mark.parametrize(
    "store_kind", [kind for kind in EACH_DRIVER if kind != "workers"], indirect=True
)
on_each_store = pytest.mark.parametrize("store_kind", EACH_STORE, indirect=True)
# Kinds with a log of a few kilobytes: a capped collection is larger, and FerretDB does not trim
# one.
TRIMMING = ["sqlite", "plain"]

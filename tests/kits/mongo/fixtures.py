"""A database for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from oplogd.clock import SYSTEM
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.setup.setup import CollectionKind
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.wire import Wire
from tests.kits.processes.logged import DEADLINE
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.stores import new_place

MakeStore = Callable[..., MongoStore]


@pytest.fixture
def capped_url(ferret: RunningMongo) -> str:
    """A new database on a server that has capped collections."""
    return new_database(ferret.url)


@pytest.fixture
def plain_url(java: RunningMongo) -> str:
    """A new database on a fast server."""
    return new_database(java.url)


@pytest.fixture
def wire(plain_url: str) -> Iterator[Wire]:
    with Wire(plain_url) as made:
        yield made


@pytest.fixture
def database(plain_url: str) -> Iterator[Database[Document]]:
    """The database, as its primary sees it."""
    with MongoClient[Document](plain_url) as client:
        yield client.get_default_database()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


@pytest.fixture(params=["mongo-capped", "mongo-plain-small", "mongo-plain"])
def place(request: pytest.FixtureRequest) -> tuple[str, CollectionKind]:
    """Return a database and a kind of log, in each combination that a stand-in supports."""
    url, kind = new_place(request, request.param)
    assert isinstance(url, str)
    assert kind is not None
    return url, kind


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of the servers: of the stores by ``make_store`` in a test that asks for it."""
    return VirtualClock()


@pytest.fixture
async def make_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeStore]:
    """Makes stores. The test opens them; afterwards they are closed."""
    # On a busy machine a store may need longer than an agent waits for it.
    monkeypatch.setattr("oplogd.store.mongo.store._OPEN_SECONDS", DEADLINE)
    is_dated = "clock" in request.fixturenames
    clock: VirtualClock | None = request.getfixturevalue("clock") if is_dated else None
    # Nobody loses the lease because the machine is busy.
    defaults: dict[str, Any] = {"lease": 60, "clock": clock.dates if clock else SYSTEM}
    made: list[MongoStore] = []

    def make(url: str, kind: CollectionKind, **options: Any) -> MongoStore:
        store = MongoStore(url, collection=kind, **{**defaults, **options})
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


async def drop(url: str) -> None:
    """Drop the database of this URL."""
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        await client.drop_database(client.get_default_database().name)

"""What the contract suite needs of each store: a fresh database, several handles on it, and a clock to turn."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from pymongo import AsyncMongoClient

from oplogd.operation import Operation
from oplogd.store import Entry, Stamp, State, StateCursor, Store
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.setup import Kind
from oplogd.store.sqlite import SqliteStore
from tests.mongo.servers import Running, new_database
from tests.operations import Known, key_of

START_MS = 1_700_000_000_000


class Kit(Protocol):
    """One database, at first with nothing in it. All handles are closed in the end."""

    clock_ms: int
    """The time that the store sees."""

    bulk: int
    """How many documents it bears in a test."""

    async def open(self, max_bytes: int | None = None) -> Store:
        """Another handle on the database, as another process would have."""

    async def close(self) -> None: ...


class SqliteKit:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.clock_ms = START_MS
        self.bulk = 12_000
        self._path = folder / "oplog.db"
        self._open: list[SqliteStore] = []
        patch.setattr("oplogd.store.sqlite.log.now_ms", lambda: self.clock_ms)

    async def open(self, max_bytes: int | None = None) -> Store:
        store = SqliteStore(self._path, max_bytes)
        self._open.append(store)
        await store.open()
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()


Kits = Callable[[], contextlib.AbstractAsyncContextManager[Kit]]
"""Makes kits, each for a database of its own."""


MakeKits = Callable[[pytest.FixtureRequest, pytest.MonkeyPatch], Kits]


def sqlite_kits(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Kits:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    numbers = itertools.count()
    pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"  # no test pulls the plug
    patch.setattr("oplogd.store.sqlite.statements.PRAGMAS", pragmas)

    @contextlib.asynccontextmanager
    async def kit() -> AsyncIterator[Kit]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        made = SqliteKit(folder, patch)
        try:
            yield made
        finally:
            await made.close()

    return kit


class MongoKit:
    """Its clock stands for the server's. ``lease`` short, so that little has to be waited for."""

    def __init__(self, url: str, kind: Kind, bulk: int, patch: pytest.MonkeyPatch) -> None:
        self.clock_ms = START_MS
        self.bulk = bulk
        self._url = url
        self._kind: Kind = kind
        self._open: list[MongoStore] = []
        self._has_cap = False

        async def now_ms(_: Link) -> int:
            return self.clock_ms

        patch.setattr(Link, "now_ms", now_ms)

    async def open(self, max_bytes: int | None = None) -> Store:
        self._has_cap |= max_bytes is not None
        store = (_Trimmed if self._has_cap else MongoStore)(
            self._url, collection=self._kind, max_bytes=max_bytes, lease=1
        )
        self._open.append(store)
        await store.open()
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()
        async with AsyncMongoClient[dict[str, Any]](self._url) as client:
            await client.drop_database(client.get_default_database().name)


class _Trimmed(MongoStore):
    """A plain log is trimmed soon after it was added to. This one waits for that."""

    async def open(self) -> None:
        await super().open()
        await self._trimmed()

    async def append(self, operations: Sequence[Operation], stamp: Stamp | None = None) -> None:
        await super().append(operations, stamp)
        await self._trimmed()

    async def _trimmed(self) -> None:
        await self.checkpoint()
        async with asyncio.timeout(30):
            while (stats := await self.stats()).bytes > stats.max_bytes and stats.operations > 1:
                await asyncio.sleep(0.005)


def mongo_kits(kind: Kind, server: str, bulk: int) -> MakeKits:
    def make(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Kits:
        running: Running = request.getfixturevalue(server)
        patch.setattr("oplogd.store.mongo.store.PURGE_LEASES", -1)  # a test's clock stands still
        patch.setattr("oplogd.store.mongo.projection._KEEP_SECONDS", 0.02)
        patch.setattr("oplogd.store.mongo.projection.TRIM_SECONDS", 0.0)

        @contextlib.asynccontextmanager
        async def kit() -> AsyncIterator[Kit]:
            made = MongoKit(new_database(running.url), kind, bulk, patch)
            try:
                yield made
            finally:
                await made.close()

        return kit

    return make


KITS: dict[str, MakeKits] = {
    "sqlite": sqlite_kits,
    "mongo-capped": mongo_kits("capped", "ferret", bulk=600),
    "mongo-plain": mongo_kits("plain", "java", bulk=12_000),
}
TRIMMING = ["sqlite", "mongo-plain"]
"""Those that keep their log under its cap by themselves, to the byte."""


async def log_of(store: Store, after: int = 0, limit: int = 1000) -> list[Entry]:
    """All entries past ``after``, read page by page."""
    entries: list[Entry] = []
    while page := await store.read(after, limit):
        assert len(page) <= limit
        entries += page
        after = page[-1].offset
    return entries


async def states_of(
    store: Store,
    since: int = 0,
    upto: int | None = None,
    live_only: bool = False,
    limit: int = 1000,
) -> list[State]:
    """All states from ``since`` on, read page by page."""
    upto = (await store.checkpoint()).offset if upto is None else upto
    states: list[State] = []
    next_cursor: StateCursor | None = StateCursor(since, None)
    while next_cursor:
        page = await store.states(next_cursor, upto, live_only, limit)
        assert len(page.states) <= limit
        states += page.states
        next_cursor = page.next
    return states


def known(states: list[State]) -> dict[str, tuple[bool, str]]:
    by_key = {key_of(state.data): (state.deleted, state.data) for state in states}
    assert len(by_key) == len(states), "an object has two states"
    return by_key


def expected(folded: dict[str, Known]) -> dict[str, tuple[bool, str]]:
    return {key: (state.deleted, state.data) for key, state in folded.items()}


def contents(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(entry.event, entry.data) for entry in entries]


def wanted(operations: list[Operation]) -> list[tuple[str, str]]:
    return [(operation.event, operation.data.decode()) for operation in operations]

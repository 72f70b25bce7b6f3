"""Kits for the contract suite: an empty database, several handles on it, and a clock to set."""

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from pymongo import MongoClient

from oplogd.model.operation import Operation
from oplogd.store import BatchId, Entry, State, StateCursor, Store
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.topic_layout import place
from oplogd.store.sqlite import SqliteStore
from oplogd.store.topics import Topic
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import Known, key_of
from tests.kits.processes.logged import DEADLINE
from tests.kits.servers.stores import StorePlace, new_place, skip_fsync

# The clock of a test stands still, so tombstones and swept messages need not stay.
MONGO_TIMING = Timing(
    keep_seconds=0.02, trim_seconds=0.0, purge_leases=-1, settle_seconds=0.0, bounds_seconds=0.0
)


class Kit(Protocol):
    """An empty database. All its handles are closed at the end."""

    # Dates the entries. Durations are real.
    clock: VirtualClock
    # Documents that the database can hold in a test.
    bulk: int

    async def open(
        self,
        max_bytes: int | None = None,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
    ) -> Store:
        """Return another handle on the database, as another process would have."""

    async def used_logs(self, last: int) -> None:
        """Let the next topic's log be the first one past ``last`` whose number is free."""

    async def used_sequences(self, topic: Topic, last: int) -> None:
        """Let ``last`` be the sequence of the only message in the store, the first of its ms.

        For handles that are opened afterwards.
        """

    async def close(self) -> None: ...


class SqliteKit:
    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.bulk = 12_000
        self._path = folder / "oplog.db"
        self._open: list[SqliteStore] = []

    async def open(
        self,
        max_bytes: int | None = None,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
    ) -> Store:
        store = SqliteStore(
            self._path,
            max_bytes,
            topic_ttl=topic_ttl,
            clock=self.clock.dates,
            topics_max_bytes=topics_max_bytes,
        )
        self._open.append(store)
        await store.open()
        return store

    async def used_logs(self, last: int) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as db, db:
            db.execute("UPDATE catalogue SET last_log = ?", (last,))

    async def used_sequences(self, topic: Topic, last: int) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as db, db:
            assert db.execute("UPDATE entries SET stamp = stamp + ?", (last,)).rowcount == 1
            update = "UPDATE topics SET head_stamp = head_stamp + ? WHERE log = ?"
            assert db.execute(update, (last, topic.log)).rowcount == 1

    async def close(self) -> None:
        for store in self._open:
            await store.close()


# Makes kits, each for a database of its own.
Kits = Callable[[], contextlib.AbstractAsyncContextManager[Kit]]

MakeKits = Callable[[pytest.FixtureRequest, pytest.MonkeyPatch], Kits]


def file_kits(
    make: Callable[[Path], SqliteKit], request: pytest.FixtureRequest, patch: pytest.MonkeyPatch
) -> Kits:
    """Return kits with a SQLite file each, in a folder that ``make`` gets."""
    tmp_path: Path = request.getfixturevalue("tmp_path")
    numbers = itertools.count()
    skip_fsync(patch)

    @contextlib.asynccontextmanager
    async def kit() -> AsyncIterator[Kit]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        made = make(folder)
        try:
            yield made
        finally:
            await made.close()

    return kit


class MongoKit:
    """A MongoDB with the kit's clock. Nobody loses the lease because the machine is busy."""

    def __init__(self, place: StorePlace, bulk: int) -> None:
        self.clock = VirtualClock()
        self.bulk = bulk
        self._url = str(place.store)
        self._kind = place.kind
        self._open: list[MongoStore] = []
        self._has_cap = False

    async def open(
        self,
        max_bytes: int | None = None,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
    ) -> Store:
        self._has_cap |= max_bytes is not None
        store = (_Trimmed if self._has_cap else MongoStore)(
            self._url,
            collection=self._kind,
            max_bytes=max_bytes,
            topic_ttl=topic_ttl,
            lease=30,
            clock=self.clock.dates,
            timing=MONGO_TIMING,
            topics_max_bytes=topics_max_bytes,
        )
        self._open.append(store)
        await store.open()
        async with asyncio.timeout(DEADLINE):
            while not any(each.lease.held for each in self._open):
                await asyncio.sleep(0.005)  # one of them keeps the store in order
        return store

    async def used_logs(self, last: int) -> None:
        with MongoClient[dict[str, object]](self._url) as client:
            catalogue = client.get_default_database()["oplog_topics"]
            catalogue.update_one({"_id": "#"}, {"$set": {"logs": last}})

    async def used_sequences(self, topic: Topic, last: int) -> None:
        with MongoClient[dict[str, object]](self._url) as client:
            entries = client.get_default_database()["oplog_entries"]
            message = {"_id": place(topic.log, 1), "q": 0}
            assert entries.update_one(message, {"$set": {"q": last}}).modified_count == 1

    async def close(self) -> None:
        for store in self._open:
            await store.close()


class _Trimmed(MongoStore):
    """Waits for the trim that follows an append to a plain log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        append = self.append

        async def append_and_trim(
            operations: Sequence[Operation], batch_id: BatchId | None = None
        ) -> None:
            await append(operations, batch_id)
            await self._trimmed()

        self.append = append_and_trim

    async def open(self) -> None:
        await super().open()
        await self._trimmed()

    async def _trimmed(self) -> None:
        await self.checkpoint()
        async with asyncio.timeout(DEADLINE):
            while (stats := await self.stats()).bytes > stats.max_bytes and stats.operations > 1:
                await asyncio.sleep(0.005)


def mongo_kits(sort: str, bulk: int) -> MakeKits:
    def make(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Kits:
        @contextlib.asynccontextmanager
        async def kit() -> AsyncIterator[Kit]:
            made = MongoKit(new_place(request, sort), bulk)
            try:
                yield made
            finally:
                await made.close()

        return kit

    return make


KITS: dict[str, MakeKits] = {
    "sqlite": partial(file_kits, SqliteKit),
    "mongo-capped": mongo_kits("mongo-capped", bulk=300),
    "mongo-plain": mongo_kits("mongo-plain", bulk=1_500),
}
# Stores that hold thousands of documents in a test.
LARGE = ["sqlite", "mongo-plain"]
# Stores that keep their log under its cap to the byte.
TRIMMING = ["sqlite", "mongo-plain"]


async def log_of(store: Store, after: int = 0, limit: int = 1000) -> list[Entry]:
    """Return all entries after an offset, read page by page."""
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
    """Return all states from ``since`` on, read page by page."""
    upto = (await store.checkpoint()).offset if upto is None else upto
    states: list[State] = []
    next_cursor: StateCursor | None = StateCursor(since, None)
    while next_cursor:
        page = await store.states(next_cursor, upto, live_only=live_only, limit=limit)
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

"""A file that replaces the followed one has the same offsets and is noticed all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oplogd.model.event_id import EventId, Millis
from oplogd.store import LogBounds
from oplogd.store.sqlite import SqliteStore
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.follower import advance
from oplogd.stream.hub import Hub
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import RESET, Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.stream.reading import awaited
from tests.kits.stream.worlds import DEADLINE


class Followed:
    """A store of two operations, a ring at its head, and a file with operations of other times."""

    def __init__(self, folder: Path, clock: VirtualClock) -> None:
        self.path, self._other = folder / "oplog.db", folder / "other.db"
        self._clock = clock
        self.store = SqliteStore(self.path, clock=clock.dates)
        self.ring = Ring(Framer().route, 100, 10**6, Waker().wake)

    async def open(self, operations_of_other: int) -> None:
        other = SqliteStore(self._other, clock=self._clock.dates)
        for store, ms, count in ((other, 1, operations_of_other), (self.store, 2, 2)):
            self._clock.ms = START_MS
            await store.open()
            self._clock.ms = START_MS + ms
            await store.append(numbered(count))
        await other.close()
        self.ring.restart((await self.store.locate()).head)

    def put_in_place(self) -> None:
        """Rename the other file over the store's."""
        for end in ("-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink()
        self._other.rename(self.path)


@asynccontextmanager
async def followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, operations_of_other: int
) -> AsyncIterator[Followed]:
    made = Followed(folder, VirtualClock())
    try:
        await made.open(operations_of_other)
        yield made
    finally:
        await made.store.close()


async def test_the_ring_restarts_at_the_head_of_a_file_that_replaces_the_followed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with followed(tmp_path, monkeypatch, 4) as log:
        epoch = log.ring.epoch
        log.put_in_place()
        await advance(log.store, log.ring, 0)
        head = (await log.store.locate()).head
        assert head.offset == 4
        assert (log.ring.epoch, log.ring.head, len(log.ring.window)) == (epoch + 1, head, 0)


@asynccontextmanager
async def replicated(log: Followed) -> AsyncIterator[StreamConsumer]:
    """Connect a consumer that has all states, and not yet ``live``."""
    hub = Hub(log.store, log.ring, Framer(), heartbeat=1e9, max_connection_age=0, max_clients=1)
    async with asyncio.timeout(DEADLINE):
        consumer = await hub.connect(Millis(0), Filter(), checkpoints=False, address="test")
        assert await awaited(consumer) == RESET
        states = await awaited(consumer)
        assert states.count(f"id: {START_MS + 2}\n".encode()) == 2
        yield consumer
    hub.disconnect(consumer)


def replace_after_next_locate(log: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the file and restart the ring after the store has answered, before the consumer."""

    store_locate = log.store.locate

    async def locate(offset: int = 0) -> LogBounds:
        monkeypatch.setattr(log.store, "locate", store_locate)
        located = await store_locate(offset)
        log.put_in_place()
        await advance(log.store, log.ring, 0)
        return located

    monkeypatch.setattr(log.store, "locate", locate)


@pytest.mark.parametrize(
    "entries", [2, 1], ids=["both end at one offset", "the other ends before the checkpoint"]
)
async def test_a_replication_begins_anew_before_live_if_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """Both logs began at the same time."""
    async with followed(tmp_path, monkeypatch, entries) as log, replicated(log) as consumer:
        log.put_in_place()
        await advance(log.store, log.ring, 0)
        assert await awaited(consumer) == RESET
        states = await awaited(consumer)
        assert states.count(f"id: {START_MS + 1}\n".encode()) == entries
        assert b"event: live" in await awaited(consumer)


async def test_a_replication_that_ends_while_the_file_is_replaced_goes_not_on_in_the_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store answers from the old file, and the ring restarts before the consumer goes on."""
    async with followed(tmp_path, monkeypatch, 2) as log, replicated(log) as consumer:
        replace_after_next_locate(log, monkeypatch)
        assert b"event: live" in await awaited(consumer)
        assert await awaited(consumer) == RESET


async def test_a_resume_during_which_the_file_is_replaced_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store answers from the old file, and the ring restarts before the consumer goes on."""
    async with followed(tmp_path, monkeypatch, 2) as log, replicated(log) as consumer:
        assert b"event: live" in await awaited(consumer)
        log.ring.restart(log.ring.head)
        replace_after_next_locate(log, monkeypatch)
        assert await awaited(consumer) == RESET


async def test_a_consumer_behind_the_ring_gets_no_entry_of_a_file_that_replaces_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has not noticed it yet."""
    async with followed(tmp_path, monkeypatch, 2) as log:
        first = (await log.store.read(0, 1))[0]
        hub = Hub(log.store, log.ring, Framer(), heartbeat=1e9, max_connection_age=0, max_clients=1)
        position = EventId(first.ms // 1000, first.ms % 1000, first.offset)
        consumer = await hub.connect(position, Filter(), checkpoints=False, address="test")
        log.put_in_place()
        assert await awaited(consumer) == RESET
        hub.disconnect(consumer)

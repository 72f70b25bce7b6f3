"""Clients of the event stream that check each block when it comes."""

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import EventId, Millis, parse_position
from oplogd.stream.phases.oplog_bridge import Replication
from oplogd.stream.ring.filters import Filter
from tests.kits.stream.blocks import parse
from tests.kits.stream.checks import StreamChecker, mark_of
from tests.kits.stream.reading import awaited
from tests.kits.stream.worlds import ACTING, DEADLINE, WatchedConsumer

_T = TypeVar("_T")


@dataclass(eq=False)
class Client(StreamChecker):
    """Connects, resumes and reads one chunk at a time."""

    _reading: asyncio.Task[bytes] | None = None

    async def begin(self, last_id: str) -> None:
        """Connect for the first time, with everything that came before ``last_id``."""
        self.last_id = last_id
        self.whole = self._passing_types
        if last_id:
            position = parse_position(last_id)
            if await self.world.must_reset(position):
                self.objects = {"a/of another history": "?"}
            else:
                before = (
                    self.world.before(position.ms)
                    if isinstance(position, Millis)
                    else position.offset
                )
                self.place = -1 if last_id == "1" else before
                self.objects = self._objects_at(self.place)
        await self._connect()

    async def resume(self, filter_: Filter) -> None:
        """Connect again at the last event id."""
        if filter_ != self.filter:
            self.filter = filter_
            self.whole &= self._passing_types
            if self.phase == "states" and self.place is not None and self.last_id:
                position = parse_position(self.last_id)
                if isinstance(position, Millis):  # earlier states passed another filter
                    self.place = self.world.before(position.ms)
        await self._connect()

    async def _connect(self) -> None:
        world = self.world
        position = parse_position(self.last_id) if self.last_id else None
        is_doubtful = isinstance(position, Millis) and world.may_reset(position.ms)
        if self.place is None and position is not None:
            position = Millis(0)  # its id was of another history; by now this one may have it, too
        if position is not None and await world.must_reset(position):
            self.place = None
        head = world.head
        floor_ms = head.ms if position is None or position.ms <= 1 else position.ms
        epoch = world.epoch
        try:
            call = world.hub.connect(
                position, self.filter, checkpoints=self.checkpoints, address="test"
            )
            world.store.victim = self
            task = self.act(call)
            async with asyncio.timeout(DEADLINE):
                consumer = await task
        except StoreUnavailableError:
            return
        assert isinstance(consumer, WatchedConsumer)
        self.consumer = consumer
        self._state_ms = 0
        self.phase = "live" if consumer.phase.name == "live" else "states"
        if (
            is_doubtful
            and isinstance(consumer.phase, Replication)
            and consumer.phase.since_ms is None
        ):
            self.place = None
        if position is None:
            assert self.phase == "live"
            self.place = head.offset
            self.objects = self._objects_at(head.offset)
            self.whole = self._passing_types
        if self.phase == "live":
            assert self.place == mark_of(consumer).offset, "continues at another place"
        else:
            self._epoch = epoch
            self._floor_ms = floor_ms if isinstance(position, Millis) else floor_ms // 1000 * 1000
            if isinstance(position, EventId) and self.place is not None:
                assert not await world.is_in_log(self.place), (
                    "its id is in the log, it needs no replication"
                )

    async def disconnect(self) -> None:
        """Break the connection. The bytes on their way are lost."""
        if self.consumer is None:
            return
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None
        self.world.hub.disconnect(self.consumer)
        self.consumer = None

    async def read(self) -> bool:
        """Take one chunk. Return whether there was one."""
        chunk = await self._chunk()
        if chunk is None:
            return False
        for block in parse(chunk):
            await self.take(block)
        return True

    async def woken(self) -> bytes:
        """Return the chunk of a read that slept, once its consumer is woken."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        async with asyncio.timeout(DEADLINE):
            return await reading

    async def settle(self) -> None:
        """Wait until the consumer sleeps or has a chunk."""
        if self._reading is not None and ACTING.get() is not self:
            await self._rest(self._reading)

    def act(self, call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task. Its calls of the store, and of tasks that it starts, are this client's."""
        context = contextvars.copy_context()
        context.run(ACTING.set, self)
        return asyncio.create_task(call, context=context)

    async def _chunk(self) -> bytes | None:
        """Return the next chunk; empty if the store failed, None if there is nothing to send."""
        assert self.consumer is not None
        task = self._reading
        if task is None:
            self._chunk_epoch = self.world.epoch
            task = self._reading = self.act(awaited(self.consumer))
        self.world.store.victim = self
        if not await self._rest(task):
            return None
        self._reading = None
        try:
            chunk = task.result()
        except StoreUnavailableError:
            return b""
        assert chunk, "the stream ended by itself"
        return chunk

    async def _rest(self, task: asyncio.Task[bytes]) -> bool:
        """Wait for a chunk or for sleep. Return whether it is a chunk."""
        assert self.consumer is not None
        async with asyncio.timeout(DEADLINE):
            while not task.done():
                if self.consumer in self.consumer.view.waiting:
                    return False
                self.consumer.asleep.clear()
                sleeping = asyncio.create_task(self.consumer.asleep.wait())
                await asyncio.wait({task, sleeping}, return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
        return True

"""A log, a follower and consumers in one process, where every step is a test's own decision.

``World`` keeps beside the real parts the whole history as it should be. A ``Client`` is a consumer of the event stream that
checks each block when it comes: what was promised to it follows from where it started and from the history.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import EventId, Mark, Millis, Position, format_id, parse_position
from oplogd.operation import Operation, decode_data
from oplogd.store import Entry, LogBounds, StateCursor, StatesPage
from oplogd.store.sqlite import SqliteStore
from oplogd.stream.alarm import Alarm
from oplogd.stream.consumer import Consumer
from oplogd.stream.filters import Filter
from oplogd.stream.follower import advance
from oplogd.stream.frames import Framer
from oplogd.stream.hub import Hub
from oplogd.stream.ring import Ring
from tests.operations import Known, entry, fold, key_of
from tests.stores import skip_fsync

DEADLINE = 30.0
"""Seconds that a single step may take: an error, and no measure."""

START_MS = 1_700_000_000_000
TYPES = frozenset({"a", "b"})

_T = TypeVar("_T")
_ACTING: contextvars.ContextVar["Client | None"] = contextvars.ContextVar("acting", default=None)
"""The client in whose name a call to the store is made."""


class Sizes(NamedTuple):
    """``cap`` of the log in bytes, the ring's bounds, and how little a consumer takes at a time."""

    cap: int
    ring_entries: int
    ring_bytes: int
    page: int
    chunk: int


class Block(NamedTuple):
    id: str
    event: str
    data: str


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


@dataclass(eq=False)
class WatchedConsumer(Consumer):
    """Tells when it falls asleep, so that a test knows that there is nothing more for it."""

    asleep: asyncio.Event = field(default_factory=asyncio.Event)

    async def _sleep(self) -> None:
        self.asleep.set()  # runs on to the wait without giving way
        await super()._sleep()


class MeddledStore(SqliteStore):
    """Between a consumer's call and its answer, other things happen: those that the test has put into ``meddle``."""

    def __init__(self, path: Path, cap: int) -> None:
        super().__init__(path, cap)
        self.meddle: list[Callable[[], Awaitable[None]]] = []
        self.victim: Client | None = None
        self._meddling = False

    async def _meddled(self, call: Awaitable[_T]) -> _T:
        answer = await call
        if self.meddle and not self._meddling and _ACTING.get() is self.victim:
            self._meddling = True
            try:
                await self.meddle.pop(0)()
            finally:
                self._meddling = False
        return answer

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        return await self._meddled(super().read(after, limit, at_ms))

    async def locate(self, offset: int = 0) -> LogBounds:
        return await self._meddled(super().locate(offset))

    async def checkpoint(self) -> Mark:
        return await self._meddled(super().checkpoint())

    async def states(
        self, start: StateCursor, upto: int, limit: int, *, live_only: bool
    ) -> StatesPage:
        return await self._meddled(super().states(start, upto, live_only=live_only, limit=limit))


class World:
    def __init__(self, folder: Path, sizes: Sizes, patch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        patch.setattr("oplogd.store.sqlite.log.now_ms", self.clock)
        skip_fsync(patch)
        patch.setattr("oplogd.stream.consumer.PAGE", sizes.page)
        patch.setattr("oplogd.stream.consumer.CHUNK_BYTES", sizes.chunk)
        patch.setattr("oplogd.stream.hub.Consumer", WatchedConsumer)
        self.store = MeddledStore(folder / "oplog.db", sizes.cap)
        framer = Framer()
        self.ring = Ring(framer, sizes.ring_entries, sizes.ring_bytes, Alarm().wake)
        self.hub = Hub(
            self.store,
            self.ring,
            framer,
            heartbeat=1e9,
            max_connection_age=0,
            max_clients=1_000_000,
        )
        self.history: list[Entry] = []
        self.epochs: list[Mark] = []
        """Where each history of this log began: its offset 0 and time."""
        self.purged_ms = 0
        self.clients: list[Client] = []

    async def start(self) -> None:
        await self.store.open()
        head = (await self.store.locate()).head
        self.epochs.append(head)
        self.ring.restart(head)

    async def stop(self) -> None:
        for client in self.clients:
            await client.disconnect()
        await self.store.close()

    async def append(self, operations: Sequence[Operation]) -> None:
        head = self.head
        await self.store.append(operations)
        ms = max(self.clock.ms, head.ms)
        self.history += [
            entry(offset, ms, op) for offset, op in enumerate(operations, head.offset + 1)
        ]
        located = await SqliteStore.locate(self.store)
        assert located.head == self.head

    async def advance(self) -> None:
        """One round of the follower; the consumers that it woke have come to rest when this returns."""
        await advance(self.store, self.ring, 0)
        for client in self.clients:
            await client.settle()

    async def catch_up(self) -> None:
        """The follower follows to the end of the log."""
        while self.ring.head != self.head:
            await self.advance()
        assert self.ring.head == (await SqliteStore.locate(self.store)).head

    async def restart_ring(self) -> None:
        """As the follower does when it lost its place."""
        self.ring.restart(self.head)
        for client in self.clients:
            await client.settle()

    async def purge(self, before_ms: int) -> None:
        if await self.store.purge(before_ms):
            self.purged_ms = max(self.purged_ms, before_ms)

    async def new_epoch(self) -> None:
        """Set the log aside; the agent is restarted after it, so the ring is, too."""
        await self.store.new_epoch()
        self.epochs.append(Mark(self.head.offset, self.clock.ms))
        self.purged_ms = 0
        await self.restart_ring()

    @property
    def epoch(self) -> Mark:
        return self.epochs[-1]

    @property
    def head(self) -> Mark:
        if self.history and self.history[-1].offset > self.epoch.offset:
            return Mark(self.history[-1].offset, self.history[-1].ms)
        return self.epoch

    def until(self, offset: int) -> list[Entry]:
        return self.history[:offset]

    def fold(self, offset: int) -> dict[str, Known]:
        return fold(self.until(offset))

    def mark(self, offset: int) -> Mark:
        assert offset > 0, "there is no operation 0"
        return Mark(offset, self.history[offset - 1].ms)

    async def is_in_log(self, offset: int) -> bool:
        return (await SqliteStore.locate(self.store, offset)).at_ms is not None

    async def must_reset(self, position: Position) -> bool:
        """Whether by the wire contract this position can be answered with ``reset`` only."""
        if isinstance(position, Millis):
            if position.ms == 1:
                return False
            known_until = max(self.head.ms, self.clock.ms) + 60_000
            if position.ms > self.epoch.ms and position.ms in self._times_of_earlier_epochs():
                return True
            return not max(self.epoch.ms, self.purged_ms) <= position.ms <= known_until
        offset = position.offset
        if (
            not self.epoch.offset < offset <= self.head.offset
            or self.mark(offset).ms != position.ms
        ):
            return True
        return position.ms < self.purged_ms and not await self.is_in_log(offset)

    def _times_of_earlier_epochs(self) -> set[int]:
        return {was.ms for was in self.history[: self.epoch.offset]} | {
            epoch.ms for epoch in self.epochs[:-1]
        }

    def may_reset(self, ms: int) -> bool:
        """Whether a replication id is of a time that an earlier epoch may have used: it was ahead of the present one."""
        return self.epoch.ms < ms <= max(self._times_of_earlier_epochs(), default=0)

    def before(self, ms: int) -> int:
        """The offset up to which a consumer has everything whose last id is ``ms`` of this epoch."""
        offset = self.epoch.offset
        for entry_ in self.history[offset:]:
            if entry_.ms >= ms:
                break
            offset = entry_.offset
        return offset


@dataclass(eq=False)
class Client:
    """Follows the stream as its owner would: keeps the objects and the last event id, and checks what it is sent.

    ``place`` is the offset up to which it has every operation that passes, -1: none; None: its id is not of this history,
    so it must get ``reset``. ``whole`` are the types of which it then has every object.
    """

    world: World
    filter: Filter
    checkpoints: bool = False
    objects: dict[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    place: int | None = -1
    last_id: str = ""
    phase: Literal["live", "states"] = "live"
    resets: int = 0
    consumer: WatchedConsumer | None = None
    _epoch: Mark = Mark(-1, 0)
    """Which history it was when the present replication began, and below the time that this goes back to."""
    _chunk_epoch: Mark = Mark(-1, 0)
    _floor_ms: int = 0
    _state_ms: int = 0
    _task: asyncio.Task[bytes] | None = None

    @property
    def _passing_types(self) -> frozenset[str]:
        return frozenset() if self.filter.parents else self.filter.types or TYPES

    async def begin(self, last_id: str) -> None:
        """Connect for the first time, as one who has all that came before ``last_id``."""
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
        """Connect again, where the last connection broke."""
        if filter_ != self.filter:
            self.filter = filter_
            self.whole &= self._passing_types
            if self.phase == "states" and self.place is not None and self.last_id:
                position = parse_position(self.last_id)
                if isinstance(position, Millis):  # what was sent before had passed another filter
                    self.place = self.world.before(position.ms)
        await self._connect()

    async def _connect(self) -> None:
        world = self.world
        position = parse_position(self.last_id) if self.last_id else None
        is_doubtful = isinstance(position, Millis) and world.may_reset(position.ms)
        if self.place is None and position is not None:
            position = Millis(
                0
            )  # its id was of another history then, and may exist in this one by now
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
            task = self._act(call)
            async with asyncio.timeout(DEADLINE):
                consumer = await task
        except StoreUnavailableError:
            return
        assert isinstance(consumer, WatchedConsumer)
        self.consumer = consumer
        self._state_ms = 0
        self.phase = "live" if consumer.phase == "live" else "states"
        if is_doubtful and consumer._replication and consumer._replication.since is None:
            self.place = None
        if position is None:
            assert self.phase == "live"
            self.place = head.offset
            self.objects = self._objects_at(head.offset)
            self.whole = self._passing_types
        if self.phase == "live":
            assert self.place == consumer.place.offset, "goes on elsewhere than asked for"
        else:
            self._epoch = epoch
            self._floor_ms = floor_ms if isinstance(position, Millis) else floor_ms // 1000 * 1000
            if isinstance(position, EventId) and self.place is not None:
                assert not await world.is_in_log(self.place), (
                    "its id is in the log, it needs no replication"
                )

    async def disconnect(self) -> None:
        """The connection breaks; what had been on its way is lost."""
        if self.consumer is None:
            return
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self.world.hub.disconnect(self.consumer)
        self.consumer = None

    async def read(self) -> bool:
        """Take one chunk if there is one; whether there was."""
        chunk = await self._chunk()
        if chunk is None:
            return False
        for block in parse(chunk):
            await self._take(block)
        return True

    async def settle(self) -> None:
        """Wait until the consumer sleeps or has a chunk."""
        if self._task is not None and _ACTING.get() is not self:
            await self._rest(self._task)

    def _act(self, call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """A task that is known, with those that it makes, as this client's."""
        context = contextvars.copy_context()
        context.run(_ACTING.set, self)
        return asyncio.create_task(call, context=context)

    async def _chunk(self) -> bytes | None:
        """The next chunk, empty if the store failed meanwhile, None when there is nothing to send."""
        assert self.consumer is not None
        task = self._task
        if task is None:
            self._chunk_epoch = self.world.epoch
            task = self._task = self._act(self.consumer.next_chunk())
        self.world.store.victim = self
        if not await self._rest(task):
            return None
        self._task = None
        try:
            chunk = task.result()
        except StoreUnavailableError:
            return b""
        assert chunk, "the stream ended by itself"
        return chunk

    async def _rest(self, task: asyncio.Task[bytes]) -> bool:
        """Wait for a chunk or for sleep; whether it is a chunk."""
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

    async def _take(self, block: Block) -> None:
        if block.event == "":
            self._take_checkpoint(block)
        elif block.event == "reset":
            self._take_reset(block)
        elif block.event == "live":
            self._take_live(block)
        elif len(block.id) == 24:
            self._take_operation(block)
        else:
            await self._take_state(block)
        self.last_id = block.id

    def _take_checkpoint(self, block: Block) -> None:
        assert self.checkpoints
        assert self.phase == "live", "a checkpoint between a replication's start and its live"
        assert self.place is not None
        position = parse_position(block.id)
        if isinstance(position, EventId):
            assert position.ms == self.world.mark(position.offset).ms
            passing = self._next_passing(self.place)
            assert passing is None or passing.offset > position.offset, (
                "a checkpoint past what was sent"
            )
            self.place = position.offset

    def _take_reset(self, block: Block) -> None:
        assert block == Block("1", "reset", "")
        if self.place is not None:
            assert self._may_reset(self.place), "a reset that nothing calls for"
            self._epoch = self._chunk_epoch
        self.resets += 1
        self.objects = {}
        self.whole = self._passing_types
        self.place = -1
        self.phase = "states"
        self._floor_ms = self.world.head.ms
        self._state_ms = 0

    def _may_reset(self, place: int) -> bool:
        """Whether states cannot bridge the gap behind ``place``."""
        world = self.world
        if self.phase == "states":
            floor_ms, same = self._floor_ms, self._epoch == world.epoch
        else:
            same = (
                place > world.epoch.offset
            )  # if not: of an older history, or begun on an empty log
            floor_ms = world.mark(place).ms // 1000 * 1000 if same else 0
        return not same or floor_ms < max(world.epoch.ms, world.purged_ms)

    async def _take_state(self, block: Block) -> None:
        world = self.world
        assert self.place is not None, "must get a reset first"
        if self.phase == "live":
            assert not await world.is_in_log(self.place), "a replication that nothing calls for"
            self._leave_live(self.place)
        assert block.event in ("insert", "delete")
        ms = int(block.id)
        assert ms >= self._state_ms, "states out of order"
        self._state_ms = ms
        assert self.filter.matches(decode_data(block.data))
        times = {epoch.ms for epoch in world.epochs[1:]}
        assert any(
            was.data == block.data
            and (was.event == "delete") == (block.event == "delete")
            and (was.ms == ms or ms in times)
            for was in world.history
        ), "a state that never was"
        self._apply(block)

    def _leave_live(self, place: int) -> None:
        """It fell behind the log."""
        world = self.world
        self.phase = "states"
        self._epoch = world.epoch
        self._floor_ms = world.mark(place).ms // 1000 * 1000 if place > world.epoch.offset else 0
        self._state_ms = 0

    def _take_operation(self, block: Block) -> None:
        assert self.phase == "live"
        assert self.place is not None
        found = self._next_passing(self.place)
        assert found is not None, "more than the log holds"
        assert block == Block(format_id(Mark(found.offset, found.ms)), found.event, found.data)
        self.place = found.offset
        self._apply(block)

    def _take_live(self, block: Block) -> None:
        world = self.world
        assert self.place is not None, "must get a reset first"
        assert block.data == ""
        assert self.consumer is not None
        mark = self.consumer.place
        if len(block.id) == 24:
            assert block.id == format_id(world.mark(mark.offset)), (
                "the id of an operation that never was"
            )
        else:
            assert mark.offset in [epoch.offset for epoch in world.epochs], "the log was not empty"
            assert int(block.id) >= self._state_ms
        self._check(mark.offset)
        self.place = mark.offset
        self.phase = "live"

    def check_drained(self) -> None:
        """There is nothing more for this client: it must have all that was promised."""
        assert self.phase == "live"
        assert self.place is not None
        assert self._next_passing(self.place) is None, "operations are missing"
        assert self.consumer is None or self.consumer.lag() == (0, 0)
        self._check(self.world.head.offset)

    def _check(self, offset: int) -> None:
        """The client's objects against the fold of the log up to ``offset``; later operations are yet to come to it."""
        assert self.place is not None
        to_come = {key_of(was.data) for was in self.world.history[offset:]}
        states = {
            key: state for key, state in self.world.fold(offset).items() if key not in to_come
        }
        for key, state in states.items():
            if state.offset > self.place and self.filter.matches(decode_data(state.data)):
                assert self.objects.get(key) == (None if state.deleted else state.data), (
                    f"{key} is not up to date"
                )
        live = {key: state.data for key, state in states.items() if not state.deleted}
        mine = {key: data for key, data in self.objects.items() if key not in to_come}
        assert self._wholly(mine) == self._wholly(live)

    def _wholly(self, objects: dict[str, str]) -> dict[str, str]:
        return {key: data for key, data in objects.items() if key.partition("/")[0] in self.whole}

    def _objects_at(self, offset: int) -> dict[str, str]:
        return {
            key: state.data
            for key, state in self.world.fold(max(offset, 0)).items()
            if not state.deleted
        }

    def _next_passing(self, place: int) -> Entry | None:
        for was in self.world.history[max(place, 0) :]:
            if self.filter.matches(decode_data(was.data)):
                return was
        return None

    def _apply(self, block: Block) -> None:
        if block.event == "delete":
            self.objects.pop(key_of(block.data), None)
        else:
            self.objects[key_of(block.data)] = block.data


def parse(chunk: bytes) -> list[Block]:
    """Blocks as strictly as the first client reads them: id, event, data, in this order, bare line feeds."""
    blocks = []
    *texts, rest = chunk.decode().split("\n\n")
    assert rest == "", "a chunk must end with a whole block"
    for text in texts:
        lines = text.split("\n")
        assert lines[0].startswith("id: ")
        parse_position(lines[0][4:])
        if len(lines) == 1:
            blocks.append(Block(lines[0][4:], "", ""))
            continue
        _, event, data = lines
        assert event.startswith("event: ")
        assert data == "data:" or data.startswith("data: ")
        blocks.append(Block(lines[0][4:], event[7:], data[6:]))
    return blocks

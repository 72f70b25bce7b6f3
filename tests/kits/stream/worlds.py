"""A store, a follower and consumers in one process. A test decides every step.

Besides the real parts, ``World`` keeps the whole history as it should be.
"""

import asyncio
import contextvars
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from oplogd.clock import Clock
from oplogd.model.event_id import Mark, Millis, Position
from oplogd.model.operation import Operation
from oplogd.store import Entry, LogBounds, StatesPage
from oplogd.store.sqlite import SqliteStore
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.follower import advance
from oplogd.stream.hub import Hub
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import Known, entry, fold
from tests.kits.processes.logged import DEADLINE as DEADLINE
from tests.kits.servers.stores import skip_fsync

if TYPE_CHECKING:
    from tests.kits.stream.clients import Client

TYPES = frozenset({"a", "b"})

_T = TypeVar("_T")

# The client on whose behalf the store is called.
ACTING: contextvars.ContextVar["Client | None"] = contextvars.ContextVar("acting", default=None)


class Sizes(NamedTuple):
    """The log's cap in bytes, the ring's bounds, and the sizes of a consumer's reads."""

    cap: int
    ring_entries: int
    ring_bytes: int
    page: int
    chunk: int


# Everything fits into the log and into the ring.
ROOMY = Sizes(cap=10**9, ring_entries=1000, ring_bytes=10**9, page=500, chunk=10**6)


@dataclass(eq=False)
class WatchedConsumer(StreamConsumer):
    """Sets ``asleep`` when it waits: there is nothing more for it."""

    asleep: asyncio.Event = field(default_factory=asyncio.Event)

    def sleep(self) -> None:
        self.asleep.set()
        super().sleep()


class MeddledStore(SqliteStore):
    """Runs the next of ``meddle`` between a call of the ``victim`` and its answer."""

    def __init__(self, path: Path, cap: int, clock: Clock) -> None:
        super().__init__(path, cap, clock=clock)
        self.meddle: list[Callable[[], Awaitable[None]]] = []
        self.victim: Client | None = None
        self._path = path
        self._meddling = False

    def shrink(self, cap: int) -> None:
        """Bound the log to ``cap`` bytes from the next append on."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("UPDATE logs SET max_bytes = ?", [cap])

    async def _meddled(self, call: Awaitable[_T]) -> _T:
        answer = await call
        if self.meddle and not self._meddling and ACTING.get() is self.victim:
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

    async def states(self, *arguments: Any, **keywords: Any) -> StatesPage:
        return await self._meddled(super().states(*arguments, **keywords))


class World:
    def __init__(self, folder: Path, sizes: Sizes, patch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        skip_fsync(patch)
        patch.setattr("oplogd.stream.phases.catch_up.PAGE", sizes.page)
        patch.setattr("oplogd.stream.phases.oplog_bridge.PAGE", sizes.page)
        patch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", sizes.chunk)
        patch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
        self.store = MeddledStore(folder / "oplog.db", sizes.cap, self.clock.dates)
        framer = Framer()
        self.ring = Ring(framer.route, sizes.ring_entries, sizes.ring_bytes, Waker().wake)
        self.hub = Hub(
            self.store,
            self.ring,
            framer,
            heartbeat=1e9,
            max_connection_age=0,
            max_clients=1_000_000,
        )
        self.history: list[Entry] = []
        # The marks at which the epochs began.
        self.epochs: list[Mark] = []
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
        ms = max(self.store.clock.now_ms(), head.ms)
        self.history += [
            entry(offset, ms, op) for offset, op in enumerate(operations, head.offset + 1)
        ]
        bounds = await SqliteStore.locate(self.store)
        assert bounds.head == self.head

    async def advance(self) -> None:
        """Run one round of the follower. Return when the consumers that it woke are at rest."""
        await advance(self.store, self.ring, 0)
        for client in self.clients:
            await client.settle()

    async def catch_up(self) -> None:
        """Run the follower to the end of the log."""
        while self.ring.head != self.head:
            await self.advance()
        assert self.ring.head == (await SqliteStore.locate(self.store)).head

    async def restart_ring(self) -> None:
        """Restart the ring as the follower does after it lost its place."""
        self.ring.restart(self.head)
        for client in self.clients:
            await client.settle()

    async def purge(self, before_ms: int) -> None:
        if await self.store.purge(before_ms):
            self.purged_ms = max(self.purged_ms, before_ms)

    async def new_epoch(self) -> None:
        """Set the log aside. The agent restarts after that, and with it the ring."""
        await self.store.new_epoch()
        self.epochs.append(Mark(self.head.offset, self.store.clock.now_ms()))
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
        """Return whether the wire contract requires ``reset`` for this position."""
        if isinstance(position, Millis):
            if position.ms == 1:
                return False
            known_until = max(self.head.ms, self.store.clock.now_ms()) + 60_000
            if position.ms > self.epoch.ms and position.ms in self._times_of_earlier_epochs():
                return True
            if self._is_unwritten(position.ms):
                return True
            return not max(self.epoch.ms, self.purged_ms) <= position.ms <= known_until
        offset = position.offset
        if (
            not self.epoch.offset < offset <= self.head.offset
            or self.mark(offset).ms != position.ms
        ):
            return True
        return position.ms < self.purged_ms and not await self.is_in_log(offset)

    def _is_unwritten(self, ms: int) -> bool:
        """Return whether a time lies between the start of this epoch and its first operation.

        No state and no operation has it, so no id of this history has it either.
        """
        return any(self.epoch.ms < ms < was.ms for was in self.history[self.epoch.offset :][:1])

    def _times_of_earlier_epochs(self) -> set[int]:
        return {was.ms for was in self.history[: self.epoch.offset]} | {
            epoch.ms for epoch in self.epochs[:-1]
        }

    def may_reset(self, ms: int) -> bool:
        """Return whether an earlier epoch, whose clock was ahead, may have used this time."""
        return self.epoch.ms < ms <= max(self._times_of_earlier_epochs(), default=0)

    def before(self, ms: int) -> int:
        """Return the offset up to which a consumer has everything, if its last id is ``ms``."""
        offset = self.epoch.offset
        for entry_ in self.history[offset:]:
            if entry_.ms >= ms:
                break
            offset = entry_.offset
        return offset

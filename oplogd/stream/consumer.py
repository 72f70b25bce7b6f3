"""One connected consumer: where it stands and what it gets next.

A consumer is in one of two phases: it replicates states, or it follows the log from a place in it. ``next_chunk`` makes one
bounded step and keeps its progress in fields, so that a step that failed because the store is away is simply made again.
A step that asks the store is a task of its own: it goes on while heartbeats are sent.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from oplogd.errors import LogReplacedError
from oplogd.event_id import EventId, Mark, Position
from oplogd.operation import Data
from oplogd.store import Entry, LogBounds, State, StateCursor, Store, decode_stored
from oplogd.stream.frames import HEARTBEAT, RESET, Framer, checkpoint_frame, live_frame, position_of
from oplogd.stream.outlet import Outlet
from oplogd.stream.ring import Ring, View
from oplogd.stream.start import After, Reset, bridged, resolve

CHUNK_BYTES = 128 * 1024
"""What one write from the ring holds at most (or one operation). A write of what was read from the store is bounded by the
store's reads, about 1 MB. With the server's own buffer, a slow consumer costs no more than that."""

PAGE = 500
"""States or entries read from the store at a time."""


IN_FLIGHT = 2
"""Pages of states, and pages of entries, that all consumers of an agent read at a time. Each costs the event loop a
millisecond: more at once would keep operations from consumers that are live."""


class Pages:
    """The turns of an agent's consumers at reading pages from the store, first come, first served."""

    def __init__(self) -> None:
        self.states = asyncio.Semaphore(IN_FLIGHT)
        self.entries = asyncio.Semaphore(IN_FLIGHT)


@dataclass
class Replication:
    """States on their way to a consumer: those up to ``mark``, from ``cursor`` on, not older than ``since``."""

    since: int | None
    """None: a full replication, live objects only; else ms: what changed from then on, deletions too."""
    last_ms: int
    history: tuple[int, int]
    """Identity of the log: first offset and creation time. If it changes, the copy starts over."""
    announced: bool = False
    mark: Mark | None = None
    cursor: StateCursor | None = StateCursor(0, None)
    """None: all states up to ``mark`` are sent."""


class Lag(NamedTuple):
    """Operations that a consumer has not been handed, and the time of the oldest (0: none) in ms since 1970.

    Counted are those that pass its filter where memory tells them, and every one where it reads the store.
    """

    operations: int
    oldest_ms: int


@dataclass
class Counts:
    """What all consumers of an agent were sent; one object per agent."""

    events_sent: int = 0
    to_store: int = 0
    """How often a consumer went on from the store, because the ring no longer had its next operation."""
    to_states: int = 0
    """How often a consumer at a place in the log got states, because the log does not go on from there."""


@dataclass(eq=False)
class Consumer:
    """``next_chunk`` has one caller. ``end`` may be called at any time, ``close`` when ``next_chunk`` is not any more."""

    id: int
    address: str
    store: Store
    ring: Ring
    view: View
    framer: Framer
    counts: Counts
    pages: Pages
    heartbeat: float
    """Seconds of silence after which a heartbeat is due."""
    checkpoints: bool
    ends_at: float
    """Monotonic time at which the stream is ended, ``inf`` for never."""
    name: str = ""
    """What it calls itself; empty if it does not say."""
    connected_at: float = field(default_factory=time.time)
    place: Mark = Mark(0, 0)
    """Everything up to here that passes the filter has been handed out (in a replication: where it will go live)."""
    sent: int = 0
    outlet: Outlet = field(default_factory=Outlet)
    ending: bool = False
    last_write: float = field(default_factory=time.monotonic)
    _replication: Replication | None = None
    _epoch: int = 0
    _first_offset: int = 0
    """Where the log of this epoch began: places before it have no event id."""
    _waiter: asyncio.Future[None] | None = None
    _greeting: bool = False
    _reads_store: bool = False
    """It is behind the ring."""
    _asking: asyncio.Task[bytes] | None = None
    """The step that asks the store."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def begin(self, position: Position | None, located: LogBounds, epoch: int) -> None:
        """Set where the stream goes on. ``located`` was asked for ``position`` in ``epoch`` of the ring."""
        self._epoch = epoch
        self._first_offset = located.first_offset
        start = resolve(position, located, located.now_ms)
        if isinstance(start, After):
            self._replication = None
            self.place = start.mark
            self._greeting = self.checkpoints
            return
        if isinstance(position, EventId):
            self.counts.to_states += 1
        if isinstance(start, Reset):
            self._replication = Replication(None, 1, _history(located))
        else:
            cursor = StateCursor(start.ms, None)
            self._replication = Replication(
                start.ms, start.ms, _history(located), announced=True, cursor=cursor
            )

    @property
    def phase(self) -> Literal["replication", "live"]:
        return "replication" if self._replication else "live"

    @property
    def position(self) -> str:
        """Where it stands, as an event id or, before the log's first entry and in a replication, a time in ms."""
        run = self._replication
        return str(run.last_ms) if run else position_of(self.place, self.place.offset > 0)

    def lag(self) -> Lag:
        """In a replication: what has been appended since the copy was begun."""
        run = self._replication
        if run is None and self.place.offset >= self.ring.head.offset:
            return Lag(0, 0)
        if run is None and self.view.covers(self.place.offset):
            return Lag(*self.view.missing(self.place.offset))
        place = (run.mark or self.ring.head) if run else self.place
        if place.offset >= self.ring.base:
            return Lag(*self.ring.window.missing(place.offset))
        return Lag(self.ring.head.offset - place.offset, place.ms)

    def is_behind(self) -> bool:
        """Whether the ring holds something that this consumer has not been handed."""
        return self.place.offset < self.ring.head.offset and self.place.offset < max(
            self.view.last, self.ring.base
        )

    async def next_chunk(self) -> bytes:
        """The next bytes to send; empty when the stream is over. Raises StoreUnavailableError, then call it again."""
        while not self.ending:
            if self._asking is None and (step := self._step()):
                self._asking = asyncio.create_task(step, name=f"consumer {self.id} asks the store")
                self._asking.add_done_callback(_retrieve)
            chunk = await (self._answer(self._asking) if self._asking else self._follow())
            if not chunk and self._beat_is_due():
                chunk = self._beat()
            if chunk:
                self.last_write = time.monotonic()
                return chunk
        return b""

    def tick(self, now: float) -> bool:
        """Called about once a second with the monotonic time: whether to wake the consumer for its heartbeat or its end.

        A consumer whose write waits needs no waking: it looks at both before its next one.
        """
        self.ending = self.ending or now >= self.ends_at
        return not self.outlet.writing and (self.ending or now - self.last_write >= self.heartbeat)

    def end(self) -> None:
        self.ending = True
        self.ends_at = min(self.ends_at, time.monotonic())
        self.wake()

    def stalled(self, now: float) -> float:
        """For how many seconds a write has waited while the consumer took no byte. To be asked about once a second."""
        return self.outlet.stalled(now, self.last_write)

    def close(self) -> None:
        """Drop what is still asked of the store."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def pause(self, seconds: float) -> bytes:
        """Wait while the store is away; a heartbeat if one is due."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
        if not self._beat_is_due():
            return b""
        self.last_write = time.monotonic()
        return HEARTBEAT

    def _step(self) -> Coroutine[Any, Any, bytes] | None:
        """The next step if it asks the store, None if the ring has what follows."""
        if self._replication:
            return self._replicate(self._replication)
        if self._epoch != self.ring.epoch:
            return self._judge_anew()
        if self._greeting:
            return None
        if self.view.covers(self.place.offset):
            self._reads_store = False
            return None
        if not self._reads_store:
            self._reads_store = True
            self.counts.to_store += 1
        return self._catch_up()

    async def _answer(self, asking: asyncio.Task[bytes]) -> bytes:
        """The chunk of a step that asks the store; empty if the consumer is woken before it is there."""
        if not asking.done():
            self._waiter = self._loop.create_future()
            asking.add_done_callback(self._wake_by)
            try:
                await self._waiter
            finally:
                asking.remove_done_callback(self._wake_by)
        if not asking.done():
            return b""
        self._asking = None
        return asking.result()

    def _wake_by(self, _: asyncio.Task[bytes]) -> None:
        self.wake()

    async def _follow(self) -> bytes:
        ring = self.ring
        if self._greeting:
            self._greeting = False
            return checkpoint_frame(self._position())
        if self.place.offset < ring.head.offset:
            chunk, count, self.place = self.view.take(self.place.offset, CHUNK_BYTES)
            self._count(count)
            if chunk:
                return chunk
            if (
                self.place.offset < ring.head.offset
            ):  # nothing passes in this piece of the ring; on to the next
                await asyncio.sleep(0)
                return b""
        if not self._beat_is_due():
            await self._sleep()
        return b""

    async def _sleep(self) -> None:
        self._waiter = self._loop.create_future()
        self.view.waiting[self] = None
        try:
            await self._waiter
        finally:
            self.view.waiting.pop(self, None)

    async def _catch_up(self) -> bytes:
        """Behind the ring: read the store, as long as the next entry is there."""
        with contextlib.suppress(LogReplacedError):
            async with self.pages.entries:
                entries = await self.store.read(self.place.offset, PAGE, self.place.ms)
                if entries and entries[0].offset == self.place.offset + 1:
                    return self._frames_of_entries(entries)
        return await self._judge_anew()

    def _frames_of_entries(self, entries: Sequence[Entry]) -> bytes:
        frames = []
        for number, entry in enumerate(entries, self.place.offset + 1):
            if entry.offset != number:
                break
            data = self._decode(entry.data)
            if data is None or self.view.filter.matches(data):
                frames.append(self.framer.entry(entry, data))
            self.place = Mark(entry.offset, entry.ms)
        self._count(len(frames))
        return b"".join(frames)

    async def _judge_anew(self) -> bytes:
        """The log does not go on behind this consumer: trimmed, or another one. Take it where a resume would."""
        epoch = self.ring.epoch
        located = await self.store.locate(self.place.offset)
        place, greeting = self.place, self._greeting
        self.begin(EventId(place.ms // 1000, place.ms % 1000, place.offset), located, epoch)
        self._greeting = greeting and self._replication is None
        return b""

    async def _replicate(self, run: Replication) -> bytes:
        if not run.announced:
            run.announced = True
            return RESET
        if run.mark is None:
            run.mark = await self.store.checkpoint()
        if run.cursor is not None:
            async with self.pages.states:
                page = await self.store.states(
                    run.cursor, run.mark.offset, live_only=run.since is None, limit=PAGE
                )
                chunk = self._frames_of_states(run, page.states)
            run.cursor = page.next
            if chunk or page.next:
                return chunk
        return await self._go_live(run, run.mark)

    def _frames_of_states(self, run: Replication, states: Sequence[State]) -> bytes:
        frames = []
        for state in states:
            data = self._decode(state.data)
            if data is None or self.view.filter.matches(data):
                frames.append(self.framer.state(state, data))
                run.last_ms = state.cursor.ms
        self._count(len(frames))
        return b"".join(frames)

    def _decode(self, text: str) -> Data | None:
        """None where nobody looks at it."""
        return decode_stored(text) if self.framer.needs_data or any(self.view.filter) else None

    async def _go_live(self, run: Replication, mark: Mark) -> bytes:
        """All states up to ``mark`` are sent. Send ``live`` if the log still continues from there; otherwise repeat."""
        epoch = self.ring.epoch
        located = await self.store.locate(mark.offset)
        history = _history(located)
        another = (
            history != run.history
            or located.head.offset < mark.offset
            or located.at_ms not in (None, mark.ms)
        )
        if another or (run.since is not None and not bridged(run.since, located)):
            self._replication = Replication(None, 1, history)
            return b""
        oldest = located.oldest
        if located.head.offset > mark.offset and (
            oldest is None or oldest.offset > mark.offset + 1
        ):
            run.since, run.mark, run.cursor = mark.ms, None, StateCursor(mark.ms, None)
            return b""
        self._replication = None
        self._epoch = epoch
        self._first_offset = located.first_offset
        self.place = mark
        was_empty = located.oldest is None or mark.offset < located.first_offset
        position = str(run.last_ms) if was_empty else position_of(mark, True)
        return live_frame(position)

    def _position(self) -> str:
        return position_of(self.place, self.place.offset >= self._first_offset)

    def _beat(self) -> bytes:
        if (
            self._asking
            or self._replication
            or not self.checkpoints
            or self._epoch != self.ring.epoch
        ):
            return HEARTBEAT
        if (
            self.view.last <= self.place.offset < self.ring.head.offset
        ):  # nothing after its place passes
            self.place = self.ring.head
        return HEARTBEAT + checkpoint_frame(self._position())

    def _beat_is_due(self) -> bool:
        return time.monotonic() - self.last_write >= self.heartbeat

    def _count(self, events: int) -> None:
        self.sent += events
        self.counts.events_sent += events


def _history(located: LogBounds) -> tuple[int, int]:
    return located.first_offset, located.created_ms


def _retrieve(asked: asyncio.Task[bytes]) -> None:
    """An error of a step whose consumer has gone concerns nobody."""
    if not asked.cancelled():
        asked.exception()

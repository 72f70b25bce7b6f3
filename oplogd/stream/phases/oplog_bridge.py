"""The bridge of the oplog. Where the log does not continue, its consumers get states."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from oplogd.model.event_id import EventId, Mark, Position, format_id, position_at
from oplogd.model.operation import Data
from oplogd.store import Entry, LogBounds, State, StateCursor, StatesPage, Store, decode_stored
from oplogd.store.objects import FEW_KEYS, keys_of
from oplogd.stream.phases.phase import Bridge, Lag, LivePhase, LogPhase, Phase, Step, Subscription
from oplogd.stream.phases.start import After, resolve, resolve_mark, states_cover
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import RESET, Framer, live_frame

# States read from the store at a time.
PAGE = 500


class OplogBridge(Bridge):
    """See ``Bridge``. Positions are event ids and times."""

    def __init__(self, store: Store, framer: Framer) -> None:
        self.store = store
        self.framer = framer

    async def begin(
        self, subscription: Subscription, position: Position | None, *, greeting: bool
    ) -> Phase:
        """Return the first phase of a consumer."""
        epoch = subscription.ring.epoch
        bounds = await self.store.locate(position.offset if isinstance(position, EventId) else 0)
        start = resolve(position, bounds, bounds.now_ms)
        if isinstance(start, After):
            return LivePhase(
                subscription, start.mark, epoch, bounds.first_offset, greeting=greeting
            )
        if isinstance(position, EventId):
            subscription.counters.to_states += 1
        return Replication(self, subscription, bounds, start.ms)

    async def resume(self, phase: LogPhase) -> Step:
        """Continue as if the consumer reconnected at the phase's mark."""
        subscription = phase.subscription
        epoch = subscription.ring.epoch
        bounds = await self.store.locate(phase.mark.offset)
        start = resolve_mark(phase.mark, bounds, bounds.now_ms)
        if isinstance(start, After):
            phase.epoch, phase.first_offset = epoch, bounds.first_offset
            return Step(b"", phase)
        subscription.counters.to_states += 1
        return Step(b"", Replication(self, subscription, bounds, start.ms))

    async def read(self, mark: Mark, limit: int) -> list[Entry]:
        return await self.store.read(mark.offset, limit, mark.ms)

    def passing(self, entry: Entry, filter_: Filter) -> tuple[Mark, bytes]:
        mark = Mark(entry.offset, entry.ms)
        data = self.decode(entry.data, filter_)
        if data is not None and not filter_.matches(entry.event, data):
            return mark, b""
        return mark, self.framer.entry(entry, data)

    def position(self, mark: Mark, first_offset: int) -> str:
        return position_at(mark, first_offset)

    def decode(self, text: str, filter_: Filter) -> Data | None:
        """Return the decoded data, None if neither the framer nor the filter looks at it."""
        if self.framer.object_url or any(filter_):
            return decode_stored(text)
        return None


@dataclass(eq=False, slots=True)
class Replication(Phase):
    """Sends the states up to a mark in the order of their time, then ``live``.

    ``bounds``: of the log at the begin. ``since_ms`` None: a full replication, which begins with
    ``reset`` and leaves out deleted objects. Otherwise it sends the states changed at or after this
    time, deleted ones too. It reads no deleted states if its filter passes none.
    """

    name: ClassVar[Literal["replication"]] = "replication"

    bridge: OplogBridge
    subscription: Subscription
    bounds: LogBounds
    since_ms: int | None
    # Time of the last state sent.
    _last_ms: int = field(init=False)
    _reset_due: bool = field(init=False)
    # Mark up to which the states are sent; None until the store was asked for it.
    _mark: Mark | None = field(default=None, init=False)
    # None: all states up to the mark are sent.
    _cursor: StateCursor | None = field(init=False)

    def __post_init__(self) -> None:
        self._reset_due = self.since_ms is None
        self._reach(1 if self.since_ms is None else self.since_ms)  # 1: the id of ``reset``
        self._cursor = StateCursor(self.since_ms or 0, None)

    @property
    def position(self) -> str:
        """The position from which the consumer can resume: a replication id."""
        return str(self._last_ms)

    def lag(self) -> Lag:
        """Count the operations appended since the replication began."""
        return self.subscription.lag_after(self._mark or self.subscription.ring.head)

    async def next_step(self) -> Step:
        """Send ``reset``, a page of states, or ``live``."""
        if self._reset_due:
            self._reset_due = False
            return Step(RESET, self)
        subscription = self.subscription
        if self._mark is None:
            self._mark = await self.bridge.store.checkpoint()
        filter_ = subscription.view.filter
        live_only = self.since_ms is None or not filter_.wants_deleted
        if live_only and not filter_.wants_live:
            self._cursor = None
        if self._cursor is not None:
            async with subscription.read_slots.states:
                page = await self._page(self._cursor, self._mark.offset, live_only=live_only)
                chunk = self._frames(page.states)
            self._cursor = page.next
            if chunk or page.next:
                return Step(chunk, self)
        return await self._go_live(self._mark)

    async def _page(self, start: StateCursor, upto: int, *, live_only: bool) -> StatesPage:
        """Return the next states. Those of a few objects are looked up."""
        store, filter_ = self.bridge.store, self.subscription.view.filter
        keys = keys_of(filter_)
        if keys is None or len(keys) > FEW_KEYS:
            deleted_only = not live_only and not filter_.wants_live
            return await store.states(
                start, upto, PAGE, live_only=live_only, deleted_only=deleted_only
            )
        found = [
            State(StateCursor(mark.ms, mark.offset), deleted, data)
            for _, mark, deleted, data in await store.objects.of_keys(keys)
            if mark.offset <= upto and mark.ms >= start.ms and not (live_only and deleted)
        ]
        return StatesPage(sorted(found), None)

    def _frames(self, states: Sequence[State]) -> bytes:
        bridge, subscription = self.bridge, self.subscription
        filter_ = subscription.view.filter
        frames = []
        for state in states:
            data = bridge.decode(state.data, filter_)
            if data is None or filter_.matches_state(data, deleted=state.deleted):
                frames.append(bridge.framer.state(state, data))
                self._reach(state.cursor.ms)
        subscription.count(len(frames))
        return b"".join(frames)

    def _reach(self, ms: int) -> None:
        self._last_ms = ms
        self.subscription.replicated_ms = max(ms, self.subscription.replicated_ms)

    async def _go_live(self, mark: Mark) -> Step:
        """Send ``live`` behind the states if the log still continues at ``mark``, or repeat."""
        subscription = self.subscription
        epoch = subscription.ring.epoch
        bounds = await self.bridge.store.locate(mark.offset)
        if self._is_another_log(mark, bounds) or (
            self.since_ms is not None and not states_cover(self.since_ms, bounds)
        ):
            return Step(b"", Replication(self.bridge, subscription, bounds, None))
        oldest = bounds.oldest
        if bounds.head.offset > mark.offset and (oldest is None or oldest.offset > mark.offset + 1):
            # The entry behind the mark has left the log: send the states changed since.
            self.since_ms, self._mark, self._cursor = mark.ms, None, StateCursor(mark.ms, None)
            return Step(b"", self)
        was_empty = oldest is None or mark.offset < bounds.first_offset
        position = self.position if was_empty else format_id(mark)
        return Step(live_frame(position), LivePhase(subscription, mark, epoch, bounds.first_offset))

    def _is_another_log(self, mark: Mark, bounds: LogBounds) -> bool:
        """Return whether the log was replaced since the begin. Then the copy starts over."""
        begun = self.bounds
        return (
            (bounds.first_offset, bounds.created_ms) != (begun.first_offset, begun.created_ms)
            or bounds.head.offset < mark.offset
            or bounds.at_ms not in (None, mark.ms)
        )

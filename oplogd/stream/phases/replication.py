"""The phase of a consumer that gets states, until it can continue in the log."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol, Self

from oplogd.model.event_id import Mark, format_id
from oplogd.model.operation import Data
from oplogd.store import LogBounds, State, StateCursor, Store
from oplogd.stream.phases.live import Live
from oplogd.stream.phases.phase import Lag, Step, Subscription
from oplogd.stream.phases.start import states_cover
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import RESET, Framer, live_frame

# States read from the store at a time.
PAGE = 500


class States(Protocol):
    """The store with the states, and their encoding."""

    store: Store
    framer: Framer

    def decode(self, text: str, filter_: Filter) -> Data | None:
        """Return the decoded data, None if neither the framer nor the filter looks at it."""


class Replication:
    """Sends the states up to ``mark`` in the order of their time, then ``live``.

    ``since_ms`` None: a full replication, which begins with ``reset`` and leaves out deleted
    objects. Otherwise it sends the states changed at or after that time, deleted ones too.
    """

    __slots__ = (
        "_bridge",
        "_cursor",
        "_history",
        "_last_ms",
        "_mark",
        "_reset_due",
        "since_ms",
        "subscription",
    )

    name: ClassVar[Literal["replication"]] = "replication"

    def __init__(
        self,
        bridge: States,
        subscription: Subscription,
        bounds: LogBounds,
        since_ms: int | None,
    ) -> None:
        self._bridge = bridge
        self.subscription = subscription
        self.since_ms = since_ms
        self._reset_due = since_ms is None
        # Identity of the log: first offset and creation time. If it changes, the copy starts over.
        self._history = _history(bounds)
        # Time of the last state sent; 1 is the id of ``reset``.
        self._last_ms = 1 if since_ms is None else since_ms
        # Mark up to which the states are sent; None until the store was asked for it.
        self._mark: Mark | None = None
        # None: all states up to the mark are sent.
        self._cursor: StateCursor | None = StateCursor(since_ms or 0, None)

    @classmethod
    def full(cls, bridge: States, subscription: Subscription, bounds: LogBounds) -> Self:
        """Begin to send every live object, after ``reset``."""
        return cls(bridge, subscription, bounds, None)

    @classmethod
    def since(cls, bridge: States, subscription: Subscription, bounds: LogBounds, ms: int) -> Self:
        """Begin to send the states changed at or after ``ms``."""
        return cls(bridge, subscription, bounds, ms)

    @property
    def position(self) -> str:
        """The position from which the consumer can resume: a replication id."""
        return str(self._last_ms)

    def checkpoint(self) -> bytes:
        """Return no checkpoint: none may come between the start of a replication and ``live``."""
        return b""

    def lag(self) -> Lag:
        """Count the operations appended since the replication began."""
        return self.subscription.lag_after(self._mark or self.subscription.ring.head)

    def is_behind(self) -> bool:
        """Return False: entries of the ring are not for this phase."""
        return False

    async def next_step(self) -> Step:
        """Send ``reset``, a page of states, or ``live``.

        Raises StoreUnavailableError; then call it again.
        """
        if self._reset_due:
            self._reset_due = False
            return Step(RESET, self)
        subscription = self.subscription
        if self._mark is None:
            self._mark = await self._bridge.store.checkpoint()
        if self._cursor is not None:
            async with subscription.read_slots.states:
                page = await self._bridge.store.states(
                    self._cursor, self._mark.offset, live_only=self.since_ms is None, limit=PAGE
                )
                chunk = self._frames(page.states)
            self._cursor = page.next
            if chunk or page.next:
                return Step(chunk, self)
        return await self._go_live(self._mark)

    def _frames(self, states: Sequence[State]) -> bytes:
        bridge, subscription = self._bridge, self.subscription
        filter_ = subscription.view.filter
        frames = []
        for state in states:
            data = bridge.decode(state.data, filter_)
            if data is None or filter_.matches(data):
                frames.append(bridge.framer.state(state, data))
                self._last_ms = state.cursor.ms
        subscription.count(len(frames))
        return b"".join(frames)

    async def _go_live(self, mark: Mark) -> Step:
        """Send ``live`` if the log still continues behind ``mark``; otherwise repeat.

        All states up to ``mark`` are sent.
        """
        subscription = self.subscription
        epoch = subscription.ring.epoch
        bounds = await self._bridge.store.locate(mark.offset)
        if self._is_another_log(mark, bounds) or (
            self.since_ms is not None and not states_cover(self.since_ms, bounds)
        ):
            return Step(b"", Replication.full(self._bridge, subscription, bounds))
        oldest = bounds.oldest
        if bounds.head.offset > mark.offset and (oldest is None or oldest.offset > mark.offset + 1):
            # The entry behind the mark has left the log: send the states changed since.
            self.since_ms, self._mark, self._cursor = mark.ms, None, StateCursor(mark.ms, None)
            return Step(b"", self)
        was_empty = oldest is None or mark.offset < bounds.first_offset
        position = self.position if was_empty else format_id(mark)
        return Step(live_frame(position), Live(subscription, mark, epoch, bounds.first_offset))

    def _is_another_log(self, mark: Mark, bounds: LogBounds) -> bool:
        return (
            _history(bounds) != self._history
            or bounds.head.offset < mark.offset
            or bounds.at_ms not in (None, mark.ms)
        )


def _history(bounds: LogBounds) -> tuple[int, int]:
    return bounds.first_offset, bounds.created_ms

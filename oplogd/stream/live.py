"""The phase of a consumer that gets entries from the ring."""

from typing import ClassVar, Literal, Self

from oplogd.event_id import Mark
from oplogd.stream.frames import checkpoint_frame
from oplogd.stream.phase import Lag, Subscription

# Most bytes of one write from the ring, unless a single operation is longer. A write of entries
# from the store is bounded by the store's reads, about 1 MB. With the server's own buffer, a slow
# consumer costs no more than that.
CHUNK_BYTES = 128 * 1024


class LogPhase:
    """A phase at a ``mark`` in the log: every entry up to there that passes was handed out.

    ``epoch``: the ring's epoch for which the mark is valid. ``first_offset``: the first offset of
    the log in that epoch; smaller offsets have no event id.
    """

    __slots__ = ("epoch", "first_offset", "mark", "ring", "subscription", "view")

    name: ClassVar[Literal["live"]] = "live"

    def __init__(
        self, subscription: Subscription, mark: Mark, epoch: int, first_offset: int
    ) -> None:
        self.subscription = subscription
        self.ring = subscription.ring
        self.view = subscription.view
        self.mark = mark
        self.epoch = epoch
        self.first_offset = first_offset

    @classmethod
    def following(cls, phase: "LogPhase") -> Self:
        """Continue at the mark of another phase."""
        return cls(phase.subscription, phase.mark, phase.epoch, phase.first_offset)

    def confirm(self, epoch: int, first_offset: int) -> None:
        """Note that ``mark`` is valid in ``epoch``."""
        self.epoch = epoch
        self.first_offset = first_offset

    @property
    def position(self) -> str:
        """The position from which the consumer can resume."""
        return self.subscription.feed.bridge.position(
            self.mark, self.first_offset, self.view.filter
        )

    def checkpoint(self) -> bytes:
        """Return a checkpoint, empty while the mark is not valid in the ring's epoch.

        Skips the rest of the ring if nothing in it passes the filter.
        """
        ring = self.ring
        if self.epoch != ring.epoch:
            return b""
        if self.view.last <= self.mark.offset < ring.head.offset:
            self.mark = ring.head
        return checkpoint_frame(self.position)

    def lag(self) -> Lag:
        ring, view = self.ring, self.view
        if self.mark.offset >= ring.head.offset:
            return Lag(0, 0)
        if view.covers(self.mark.offset):
            return Lag(*view.remaining(self.mark.offset))
        return self.subscription.lag_after(self.mark)

    def is_behind(self) -> bool:
        """Return whether the ring may hold an entry for this consumer that it was not handed."""
        ring, view = self.ring, self.view
        return self.mark.offset < ring.head.offset and self.mark.offset < max(view.last, ring.base)


class Live(LogPhase):
    """``reset``: a block that is due first; usually empty. ``greeting``: a checkpoint is due before
    the first entry.
    """

    __slots__ = ("greeting", "reset")

    def __init__(
        self,
        subscription: Subscription,
        mark: Mark,
        epoch: int,
        first_offset: int,
        *,
        greeting: bool = False,
        reset: bytes = b"",
    ) -> None:
        super().__init__(subscription, mark, epoch, first_offset)
        self.greeting = greeting
        self.reset = reset

    def is_ready(self) -> bool:
        """Return whether the next bytes are in memory. Call it right before ``next_chunk``."""
        ring = self.ring
        if self.epoch != ring.epoch:
            return False
        ring.expire()
        if self.greeting or self.reset:
            return True
        view, after = self.view, self.mark.offset
        return view.covers(after) and view.commit_after(after) is None

    def next_chunk(self) -> bytes:
        """Return the next bytes from the ring.

        Empty at its head, and after a long piece of the ring without an entry that passes.

        Only while the phase is ready.
        """
        if self.reset:
            reset, self.reset = self.reset, b""
            return reset
        if self.greeting:
            self.greeting = False
            return checkpoint_frame(self.position)
        if self.mark.offset >= self.ring.head.offset:
            return b""
        chunk, count, self.mark = self.view.take(self.mark.offset, CHUNK_BYTES)
        self.subscription.count(count)
        return chunk

    def is_at_head(self) -> bool:
        return self.mark.offset >= self.ring.head.offset

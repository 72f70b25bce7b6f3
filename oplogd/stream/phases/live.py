"""The phase of a consumer that gets entries from the ring."""

from typing import ClassVar, Literal, Self

from oplogd.model.event_id import Mark
from oplogd.stream.phases.phase import Lag, Subscription
from oplogd.stream.ring.frames import checkpoint_frame
from oplogd.stream.ring.holds import Hold
from oplogd.stream.ring.postings import Waiter

# Most bytes of one write from the ring, unless a single operation is longer. A write of entries
# from the store is bounded by the store's reads, about 1 MB. With the server's own buffer, a slow
# consumer costs no more than that.
CHUNK_BYTES = 128 * 1024


class LogPhase:
    """A phase at a ``mark`` in the log: every entry up to there that passes was handed out.

    ``epoch``: the ring's epoch for which the mark is valid. ``first_offset``: the first offset of
    the log in that epoch; smaller offsets have no event id. ``hold``: the consumer waits at the
    mark until it is over; None: it did not have to.
    """

    __slots__ = ("epoch", "first_offset", "hold", "mark", "ring", "subscription", "view")

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
        self.hold: Hold | None = None

    @classmethod
    def following(cls, phase: "LogPhase") -> Self:
        """Continue at the mark of another phase."""
        return cls(phase.subscription, phase.mark, phase.epoch, phase.first_offset)

    def confirm(self, epoch: int, first_offset: int) -> None:
        """Note that ``mark`` is valid in ``epoch``."""
        self.epoch = epoch
        self.first_offset = first_offset

    @property
    def is_held(self) -> bool:
        """Whether the consumer must wait for a decision or a rollback."""
        return self.hold is not None and not self.hold.is_over

    @property
    def waiting(self) -> dict[Waiter, None]:
        """The consumers woken together with this one."""
        return self.hold.waiting if self.hold is not None and self.is_held else self.view.waiting

    @property
    def held_by(self) -> int | None:
        """The pointer for which the consumer waits, None if it waits for none."""
        return self.hold.pointer if self.hold is not None and self.is_held else None

    @property
    def position(self) -> str:
        """The position from which the consumer can resume."""
        return self.subscription.feed.bridge.position(self.mark, self.first_offset)

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
        """Return whether the ring may hold an entry for this consumer that it was not handed.

        Entries behind a hold are not for it yet.
        """
        ring, view, after = self.ring, self.view, self.mark.offset
        if after >= ring.head.offset or after >= max(view.last, ring.base):
            return False
        return not self.is_held and view.held_by(after) is None


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
        return view.covers(after) and view.expansion_after(after) is None

    def next_chunk(self) -> bytes:
        """Return the next bytes from the ring.

        Empty at its head, at a hold, and after a long piece of the ring in which nothing passes.

        Only while the phase is ready.
        """
        if self.reset:
            reset, self.reset = self.reset, b""
            return reset
        if self.greeting:
            self.greeting = False
            return checkpoint_frame(self.position)
        if self.is_at_end():
            return b""
        chunk, count, self.mark = self.view.take(self.mark.offset, CHUNK_BYTES)
        self.subscription.count(count)
        return chunk

    def is_at_end(self) -> bool:
        """Return whether there is nothing for the consumer until it is woken."""
        after = self.mark.offset
        if after >= self.ring.head.offset:
            return True
        pointer = self.view.held_by(after)
        if pointer is None:
            return False
        self.hold = self.ring.holds.of(pointer)
        return True

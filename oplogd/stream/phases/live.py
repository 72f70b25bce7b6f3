"""The phase of a consumer that gets entries from the ring."""

from dataclasses import dataclass, field

from oplogd.stream.phases.phase import LogPhase
from oplogd.stream.ring.frames import checkpoint_frame

# Most bytes of one write from the ring, unless a single operation is longer. A write of entries
# from the store is bounded by the store's reads, about 1 MB. With the server's own buffer, a slow
# consumer costs no more.
CHUNK_BYTES = 128 * 1024


@dataclass(eq=False, slots=True)
class Live(LogPhase):
    """``reset``: a block that is due first; usually empty. ``greeting``: a checkpoint is due before
    the first entry.
    """

    greeting: bool = field(default=False, kw_only=True)
    reset: bytes = field(default=b"", kw_only=True)

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
        """Return the next bytes from the ring, only while the phase is ready.

        Empty at its head, at a hold, and after a long piece of the ring in which nothing passes.
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

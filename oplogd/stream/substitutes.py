"""The entries of a ring that differ for committed readers, and their frames. No I/O."""

from array import array
from bisect import bisect_left, bisect_right

# Memory of a substitute: items in a list and in two arrays, which have room to grow.
_ITEM_BYTES = 32

# Memory of a frame besides its bytes.
_FRAME_BYTES = 40

_COMPACT = 64


class Substitutes:
    """Entries of a window, by ascending offset. It holds no entry that is the same for all readers.

    A frame is empty for an entry that committed readers skip, and None for a commit whose records
    must be read from the store. Indices are valid until the next ``add`` or ``drop``.
    """

    __slots__ = ("_first", "_totals", "frames", "offsets")

    def __init__(self) -> None:
        self._first = 0
        self.offsets = array("Q")
        self.frames: list[bytes | None] = []
        # Number of records up to each entry, inclusive, since the first one ever held.
        self._totals = array("Q")

    def add(self, offset: int, frame: bytes | None, records: int) -> int:
        """Add an entry past all others. Return its bytes of memory.

        ``records``: number of the events that committed readers get for it.
        """
        self.offsets.append(offset)
        self.frames.append(frame)
        self._totals.append((self._totals[-1] if self._totals else 0) + records)
        return _cost(frame)

    def drop(self, offset: int) -> int:
        """Drop an entry if it is the oldest one. Return the bytes of memory that it had."""
        first = self._first
        if first == len(self.offsets) or self.offsets[first] != offset:
            return 0
        size = _cost(self.frames[first])
        self.frames[first] = None
        self._first += 1
        if self._first >= _COMPACT and self._first * 8 > len(self.offsets):
            gone = self._first - 1  # the total before the first one is still needed
            del self.offsets[:gone], self.frames[:gone], self._totals[:gone]
            self._first = 1
        return size

    def after(self, offset: int) -> int:
        """Return the index of the first entry past ``offset``."""
        return bisect_right(self.offsets, offset, self._first)

    def at(self, offset: int) -> int | None:
        """Return the index of the entry at ``offset``, None if it is no substitute."""
        index = bisect_left(self.offsets, offset, self._first)
        return index if index < len(self.offsets) and self.offsets[index] == offset else None

    def records(self, first: int, end: int) -> int:
        """Return the number of records of the entries from one index up to another, exclusive."""
        return self._total_before(end) - self._total_before(first)

    def skipped(self, offset: int) -> int:
        """Return the number of entries that committed readers skip, in a row from ``offset`` on."""
        first = self.after(offset - 1)
        before = self._total_before(first)
        return bisect_left(
            range(len(self.offsets) - first),
            True,
            key=lambda k: self.offsets[first + k] != offset + k or self._totals[first + k] > before,
        )

    def _total_before(self, index: int) -> int:
        return self._totals[index - 1] if index else 0


def _cost(frame: bytes | None) -> int:
    return _ITEM_BYTES + (len(frame) + _FRAME_BYTES if frame else 0)

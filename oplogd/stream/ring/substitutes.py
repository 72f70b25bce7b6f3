"""The entries of a ring that differ for the readers of one isolation, and their frames. No I/O."""

from array import array
from bisect import bisect_left, bisect_right

# Memory of a substitute: items in a list and in arrays, which have room to grow.
_ITEM_BYTES = 40

# Memory of a frame besides its bytes.
_FRAME_BYTES = 40

_COMPACT = 64


class Substitutes:
    """Entries of a window, by ascending offset. It holds no entry that is equal for all.

    An empty frame: these readers skip the entry. None: its records must be read from the store.
    Indices are valid until the next ``add`` or ``drop``.
    """

    __slots__ = ("_first", "_owned", "_totals", "counts", "frames", "offsets")

    def __init__(self) -> None:
        self._first = 0
        self.offsets = array("Q")
        self.frames: list[bytes | None] = []
        # Number of events for each entry.
        self.counts = array("Q")
        # Bytes of memory of each frame, 0 if another part counts them.
        self._owned = array("L")
        # Sums of ``counts`` before an index. Computed when they are asked for: a change in the
        # middle would change all later ones.
        self._totals = array("Q", [0])

    def add(self, offset: int, frame: bytes | None, records: int, *, owned: bool = True) -> int:
        """Add an entry past all others. Return its bytes of memory.

        ``records``: its number of events. ``owned`` false: another part holds the same frame.
        """
        size = len(frame) + _FRAME_BYTES if frame and owned else 0
        self.offsets.append(offset)
        self.frames.append(frame)
        self.counts.append(records)
        self._owned.append(size)
        return _ITEM_BYTES + size

    def void(self, offset: int) -> int:
        """Let these readers skip an entry. Return the freed bytes."""
        index = self.at(offset)
        if index is None:
            return 0
        size = self._owned[index]
        self.frames[index] = b""
        self.counts[index] = self._owned[index] = 0
        del self._totals[index + 1 :]
        return size

    def drop(self, offset: int) -> int:
        """Drop an entry if it is the oldest one. Return its bytes of memory."""
        first = self._first
        if first == len(self.offsets) or self.offsets[first] != offset:
            return 0
        self.frames[first] = None
        size = _ITEM_BYTES + self._owned[first]
        self._first = first = first + 1
        if first >= _COMPACT and first * 8 > len(self.offsets):
            del self.offsets[:first], self.frames[:first], self.counts[:first], self._owned[:first]
            self._totals = array("Q", [0])
            self._first = 0
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
        """Return the number of skipped entries in a row from ``offset`` on."""
        first, end = self.after(offset - 1), len(self.offsets)
        self._total_before(end)
        totals = self._totals
        return bisect_left(
            range(end - first),
            True,
            key=lambda k: (
                self.offsets[first + k] != offset + k or totals[first + k + 1] > totals[first]
            ),
        )

    def _total_before(self, index: int) -> int:
        totals, counts = self._totals, self.counts
        if len(totals) <= index:
            total = totals[-1]
            for count in counts[len(totals) - 1 :]:
                total += count
                totals.append(total)
        return totals[index]

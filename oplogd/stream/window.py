"""The encoded entries that the ring holds: a run of the log without a gap. No I/O."""

from array import array
from bisect import bisect_right

from oplogd.event_id import Mark
from oplogd.stream.postings import Posting

ENTRY_BYTES = 96
"""Bytes of an entry beside its frame: the header of the bytes, and its place in two lists and two arrays."""

_POSTED_BYTES = 24
_TUPLE_BYTES = 64
_COMPACT = 64


class Window:
    """Entries are found by an index. It is valid until the next ``append`` or ``drop``."""

    __slots__ = ("_gone", "_zero", "carried", "ends", "frames", "size", "times")

    def __init__(self, base: int) -> None:
        self._zero = base
        self._gone = 0
        self.frames: list[bytes] = []
        self.carried: list[tuple[Posting, ...]] = []
        """For each entry the postings that its offset was added to."""
        self.ends = array("Q")
        """Where each frame ends, counted in bytes from the first one ever held."""
        self.times = array("q")
        self.size = 0
        """Bytes held: frames and their overhead."""

    def __len__(self) -> int:
        return len(self.frames) - self._gone

    @property
    def base(self) -> int:
        """Entries past this offset are held."""
        return self._zero + self._gone

    @property
    def end(self) -> int:
        """The index past the newest entry."""
        return len(self.frames)

    def append(self, ms: int, frame: bytes, carried: tuple[Posting, ...]) -> None:
        self.ends.append((self.ends[-1] if self.ends else 0) + len(frame))
        self.times.append(ms)
        self.frames.append(frame)
        self.carried.append(carried)
        self.size += _cost(frame, carried)

    def drop(self) -> tuple[Posting, ...]:
        """Drop the oldest entry; the postings that held it.

        The lists are moved only once an eighth of them is gone.
        """
        index = self._gone
        carried = self.carried[index]
        self.size -= _cost(self.frames[index], carried)
        self.frames[index] = b""
        self.carried[index] = ()
        self._gone += 1
        if self._gone >= _COMPACT and self._gone * 8 > len(self.frames):
            gone = self._gone
            del self.frames[:gone], self.carried[:gone], self.ends[:gone], self.times[:gone]
            self._zero += gone
            self._gone = 0
        return carried

    def index(self, offset: int) -> int:
        """The index of the entry at ``offset``."""
        return offset - self._zero - 1

    def after(self, offset: int) -> int:
        """The index of the first entry past ``offset``."""
        return max(self._gone, min(offset - self._zero, len(self.frames)))

    def mark(self, index: int) -> Mark:
        return Mark(self._zero + index + 1, self.times[index])

    def missing(self, offset: int) -> tuple[int, int]:
        """How many entries are past ``offset``, and the time of the first in ms, 0 if there is none."""
        first = self.after(offset)
        count = len(self.frames) - first
        return count, self.times[first] if count else 0

    def cut(self, first: int, max_bytes: int) -> int:
        """The index past a slice from ``first`` of at most ``max_bytes``, but of at least one entry if there is one."""
        if first == len(self.frames):
            return first
        start = self.ends[first] - len(self.frames[first])
        return max(first + 1, bisect_right(self.ends, start + max_bytes, first))


def _cost(frame: bytes, carried: tuple[Posting, ...]) -> int:
    bytes_ = len(frame) + ENTRY_BYTES + _POSTED_BYTES * len(carried)
    return bytes_ + _TUPLE_BYTES if len(carried) > 1 else bytes_

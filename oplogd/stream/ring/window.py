"""The encoded entries that the ring holds: a part of the log without a gap. No I/O."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from oplogd.model.event_id import Mark
from oplogd.stream.ring.holds import Undecided
from oplogd.stream.ring.postings import Posting
from oplogd.stream.ring.substitutes import Substitutes

# Memory of an entry besides its frame: the header of the bytes, items in two lists and two arrays.
ENTRY_BYTES = 96

_POSTED_BYTES = 24
_TUPLE_BYTES = 64
_COMPACT = 64

# The mark of an entry, its block (empty: for no reader), and its postings.
Routed: TypeAlias = tuple[Mark, bytes, tuple[Posting, ...]]


class Window:
    """Finds entries by an index, which is valid until the next ``extend`` or ``drop``."""

    __slots__ = (
        "_base",
        "_gone",
        "_zero",
        "base_is_plain",
        "committed",
        "ends",
        "frames",
        "postings",
        "sequences",
        "size",
        "times",
        "uncommitted",
        "undecided",
        "voids",
    )

    def __init__(self, base: Mark, *, has_sequences: bool = False) -> None:
        self._zero = base.offset
        # Up to date only in a window with sequences.
        self._base = base
        self._gone = 0
        # Whether the entry at the base is known to have no records. Up to date as ``_base`` is.
        self.base_is_plain = False
        self.frames: list[bytes] = []
        # The postings of each entry.
        self.postings: list[tuple[Posting, ...]] = []
        # The end of each frame, in bytes since the start of the first frame ever held.
        self.ends = array("Q")
        # The time of each entry in ms.
        self.times = array("q")
        # The sequence of each entry; None in a log without them.
        self.sequences = array("H") if has_sequences else None
        # Number of entries whose frame is empty.
        self.voids = 0
        # The entries that differ for committed readers. None: there was none.
        self.committed: Substitutes | None = None
        # The entries that differ for uncommitted readers. Each of them differs for both.
        self.uncommitted: Substitutes | None = None
        # The entries whose pointers are not decided. All of them are in ``committed``.
        self.undecided: Undecided | None = None
        # Bytes of memory: frames and their overhead.
        self.size = 0

    def __len__(self) -> int:
        return len(self.frames) - self._gone

    @property
    def base(self) -> int:
        """The offset behind which entries are held."""
        return self._zero + self._gone

    @property
    def base_mark(self) -> Mark:
        """The mark behind which entries are held. Only in a window with sequences."""
        return self._base

    @property
    def end(self) -> int:
        """The index past the newest entry."""
        return len(self.frames)

    def extend(self, routed: Sequence[Routed]) -> None:
        """Append entries."""
        ends, times, frames, posted = self.ends, self.times, self.frames, self.postings
        end = ends[-1] if ends else 0
        size = 0
        for mark, frame, postings in routed:
            end += len(frame)
            ends.append(end)
            times.append(mark.ms)
            frames.append(frame)
            posted.append(postings)
            size += _cost(frame, postings)
            if not frame:
                self.voids += 1
        self.size += size
        if self.sequences is not None:
            self.sequences.extend([mark.sequence for mark, _, _ in routed])

    def drop(self) -> tuple[Posting, ...]:
        """Drop the oldest entry. Return its postings. The lists shrink now and then."""
        index = self._gone
        postings = self.postings[index]
        self.size -= _cost(self.frames[index], postings)
        if not self.frames[index]:
            self.voids -= 1
        if self.sequences is not None:
            self._base = self.mark(index)
            self.base_is_plain = self.committed is None or self.committed.at(self.base + 1) is None
        if self.committed is not None:
            for each in (self.committed, self.uncommitted, self.undecided):
                if each is not None:
                    self.size -= each.drop(self.base + 1)
        self.frames[index] = b""
        self.postings[index] = ()
        self._gone += 1
        self._compact()
        return postings

    def trim(self, max_entries: int, max_bytes: int) -> list[tuple[int, tuple[Posting, ...]]]:
        """Drop the oldest entries beyond bounds. Return the offsets and postings of posted ones.

        Only in a window without sequences and substitutes. One entry stays.
        """
        frames, posted, gone = self.frames, self.postings, self._gone
        dropped = []
        last = len(frames) - 1
        enough = len(frames) - max_entries
        while gone < last and (gone < enough or self.size > max_bytes):
            frame, postings = frames[gone], posted[gone]
            if postings:
                dropped.append((self._zero + gone + 1, postings))
                posted[gone] = ()
            self.size -= _cost(frame, postings)
            if not frame:
                self.voids -= 1
            frames[gone] = b""
            gone += 1
        self._gone = gone
        self._compact()
        return dropped

    def _compact(self) -> None:
        if self._gone >= _COMPACT and self._gone * 8 > len(self.frames):
            gone = self._gone
            del self.frames[:gone], self.postings[:gone], self.ends[:gone], self.times[:gone]
            if self.sequences is not None:
                del self.sequences[:gone]
            self._zero += gone
            self._gone = 0

    def substitute(self, offset: int, frame: bytes | None, records: int) -> None:
        """Set the frame of an entry for committed readers: see ``Substitutes.add``."""
        if self.committed is None:
            self.committed = Substitutes()
        self.size += self.committed.add(offset, frame, records)

    def hold(self, offset: int, pointer: int) -> None:
        """Let committed readers wait at an entry, which is a message for uncommitted ones."""
        self._hold(offset, pointer, self.frames[self.index(offset)], 1)

    def hold_records(self, offset: int, pointer: int, frame: bytes | None, records: int) -> None:
        """Let committed readers wait at an entry of records.

        Set its frame for all readers: see ``Substitutes.add``.
        """
        if self.uncommitted is None:
            self.uncommitted = Substitutes()
        self.size += self.uncommitted.add(offset, frame, records)
        self._hold(offset, pointer, frame, records)

    def decide(self, pointer: int, *, committed: bool) -> None:
        """Let committed readers read the entries of a pointer, or skip them."""
        if self.undecided is None or self.committed is None:
            return
        offsets, size = self.undecided.decide(pointer)
        self.size -= size
        if not committed:
            for offset in offsets:
                self.size -= self.committed.void(offset)

    def void(self, offset: int) -> None:
        """Replace the frames of an entry by empty ones. The entry stays."""
        index = self.index(offset)
        if self.frames[index]:
            self.size -= len(self.frames[index])
            self.frames[index] = b""
            self.voids += 1
        for each in (self.committed, self.uncommitted):
            if each is not None:
                self.size -= each.void(offset)
        if self.undecided is not None:
            self.size -= self.undecided.drop(offset)

    def index(self, offset: int) -> int:
        """Return the index of the entry at ``offset``."""
        return offset - self._zero - 1

    def after(self, offset: int) -> int:
        """Return the index of the first entry past ``offset``."""
        return max(self._gone, min(offset - self._zero, len(self.frames)))

    def after_time(self, ms: int, sequence: int) -> int | None:
        """Return the index of the first entry past a time and sequence.

        None if this entry may have left the window. Only in a window with sequences.
        """
        assert self.sequences is not None
        if (ms, sequence) < (self._base.ms, self._base.sequence):
            return None
        first = bisect_left(self.times, ms, self._gone)
        return bisect_right(self.sequences, sequence, first, bisect_right(self.times, ms, first))

    def mark(self, index: int) -> Mark:
        sequence = self.sequences[index] if self.sequences is not None else 0
        return Mark(self._zero + index + 1, self.times[index], sequence)

    def remaining(self, offset: int) -> tuple[int, int]:
        """Return the number of entries past ``offset``, and the time of the first in ms or 0."""
        first = self.after(offset)
        count = len(self.frames) - first
        return count, self.times[first] if count else 0

    def cut(self, first: int, max_bytes: int) -> int:
        """Return the index past a slice from ``first`` on of at most ``max_bytes``.

        It has at least one entry if there is one. Voided frames count with their former length.
        """
        if first == len(self.frames):
            return first
        start = self.ends[first] - len(self.frames[first])
        return max(first + 1, bisect_right(self.ends, start + max_bytes, first))

    def _hold(self, offset: int, pointer: int, frame: bytes | None, records: int) -> None:
        if self.committed is None:
            self.committed = Substitutes()
        if self.undecided is None:
            self.undecided = Undecided()
        self.size += self.committed.add(offset, frame, records, owned=False)
        self.size += self.undecided.add(offset, pointer)


def _cost(frame: bytes, postings: tuple[Posting, ...]) -> int:
    if not postings:
        return len(frame) + ENTRY_BYTES
    bytes_ = len(frame) + ENTRY_BYTES + _POSTED_BYTES * len(postings)
    return bytes_ + _TUPLE_BYTES if len(postings) > 1 else bytes_

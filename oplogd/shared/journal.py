"""A state that several processes keep alike: each has a copy, and all copy every change.

The journal holds a snapshot and the changes since, in shared memory. A process that starts late
loads the snapshot, and then applies the changes. So no death of a process loses the state.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from oplogd.shared.record_lock import RecordLock

_HEADER = 4 * 8
_LENGTH = 4


class State(Protocol):
    """A state that depends on nothing but the snapshot and the changes."""

    def load(self, snapshot: bytes) -> None:
        """Replace the state."""

    def dump(self) -> bytes:
        """Return the state."""

    def shrink(self) -> None:
        """Forget a part, so that the state fits into a snapshot."""

    def apply(self, change: bytes) -> None:
        """Apply a change. Must not raise."""


class Journal:
    """The memory of a journal. Make it before the fork.

    ``changes``: the bytes of changes between two snapshots. ``snapshot``: the most bytes of a
    snapshot. Memory is used as far as it is written.

    Two areas alternate, so that a process killed while it writes a snapshot leaves the one before.
    A change or a snapshot counts once the word for its length or its generation is written.
    """

    def __init__(self, changes: int = 1 << 18, snapshot: int = 8 << 20) -> None:
        self.lock = RecordLock()
        self.most_changes = changes
        self.most_snapshot = snapshot
        self._generation = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._areas = [_Area(changes, snapshot) for _ in range(2)]

    @property
    def end(self) -> tuple[int, int]:
        """The number of the snapshot, and the bytes of changes since."""
        generation = self._generation[0]
        return generation, self._areas[generation % 2].changes_length

    def snapshot(self) -> bytes | None:
        """Return the snapshot; None before the first one."""
        generation = self._generation[0]
        return self._areas[generation % 2].read_snapshot() if generation else None

    def read(self, generation: int, start: int) -> bytes | None:
        """Return the changes since ``start`` behind a snapshot, the newest or the one before.

        None if they are gone, or the next snapshot does not continue them.
        """
        newest = self._generation[0]
        area = self._areas[generation % 2]
        if area.generation != generation:
            return None
        if generation != newest and not self._areas[newest % 2].continues:
            return None
        return bytes(area.changes[start : area.changes_length])

    def append(self, record: bytes) -> None:
        area = self._areas[self._generation[0] % 2]
        end = area.changes_length
        area.changes[end : end + len(record)] = record
        area.changes_length = end + len(record)

    def begin(self, snapshot: bytes, *, continues: bool) -> None:
        """Begin with a new snapshot. ``continues``: it is the one before with all its changes."""
        generation = self._generation[0] + 1
        self._areas[generation % 2].write(generation, snapshot, continues=continues)
        self._generation[0] = generation


class Copy:
    """The copy of a state in one process. ``state`` is new: nothing has happened to it yet."""

    def __init__(self, journal: Journal, state: State) -> None:
        self._journal = journal
        self._state = state
        self._read = (0, 0)

    @property
    def is_current(self) -> bool:
        """Whether this copy has all changes. Outside of a turn another one may follow at once."""
        return self._journal.end == self._read

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other processes out, with a current copy. Do not ``await`` in the block."""
        with self._journal.lock:
            self._catch_up()
            yield

    def change(self, change: bytes) -> None:
        """Apply a change here, and soon in each other process. Call it in a turn."""
        journal = self._journal
        record = len(change).to_bytes(_LENGTH, "little") + change
        if self._read[1] + len(record) > journal.most_changes:
            self._make_snapshot()
        journal.append(record)
        self._state.apply(change)
        self._read = journal.end

    def _make_snapshot(self) -> None:
        journal, state = self._journal, self._state
        snapshot = state.dump()
        continues = len(snapshot) <= journal.most_snapshot
        if not continues:
            state.shrink()
            snapshot = state.dump()
        journal.begin(snapshot, continues=continues)
        self._read = journal.end

    def _catch_up(self) -> None:
        journal = self._journal
        while not self.is_current:
            generation, start = self._read
            records = journal.read(generation, start)
            if records is None:
                snapshot = journal.snapshot()
                assert snapshot is not None
                self._state.load(snapshot)
                self._read = journal.end[0], 0
                continue
            place = 0
            while place < len(records):
                begin = place + _LENGTH
                place = begin + int.from_bytes(records[place:begin], "little")
                self._state.apply(records[begin:place])
            is_newest = generation == journal.end[0]
            self._read = (generation, start + place) if is_newest else (generation + 1, 0)


class _Area:
    """A snapshot and the changes since, behind words with their lengths."""

    def __init__(self, changes: int, snapshot: int) -> None:
        memory = memoryview(mmap.mmap(-1, _HEADER + changes + snapshot))
        # The length of the changes, that of the snapshot, whether it continues, its generation.
        self._words = memory[:_HEADER].cast("Q")
        self.changes = memory[_HEADER : _HEADER + changes]
        self._snapshot = memory[_HEADER + changes :]

    @property
    def changes_length(self) -> int:
        return self._words[0]

    @changes_length.setter
    def changes_length(self, length: int) -> None:
        self._words[0] = length

    @property
    def continues(self) -> bool:
        return bool(self._words[2])

    def read_snapshot(self) -> bytes:
        return bytes(self._snapshot[: self._words[1]])

    @property
    def generation(self) -> int:
        return self._words[3]

    def write(self, generation: int, snapshot: bytes, *, continues: bool) -> None:
        words = self._words
        words[3] = generation  # first: from now on no reader takes the area for the one before
        self._snapshot[: len(snapshot)] = snapshot
        words[0], words[1], words[2] = 0, len(snapshot), continues

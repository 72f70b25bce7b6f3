"""Hands new entries to the follower: it need not read back what this process has written."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store.base import Entry

# How often the follower looks for entries of other processes.
POLL_SECONDS = 0.05
# Between two reads of entries of other workers.
PAUSE_SECONDS = 0.002
# Bound of the JSON that waits for a busy follower. Beyond it the follower reads the file.
MOST_CHARACTERS = 8 << 20
# Entries of a read without a sign of any.
FEW = 100


class Written(NamedTuple):
    """Operations of one committed statement. ``before``: the entry before them. ``ms``: theirs.

    ``size``: in characters of JSON.
    """

    before: Mark
    ms: int
    operations: Sequence[Operation]
    size: int

    def entries(self, count: int) -> list[Entry]:
        """Return the first entries."""
        ms = self.ms
        return [
            Entry(offset, ms, event, data.decode())
            for offset, (event, _, data) in enumerate(
                self.operations[:count], self.before.offset + 1
            )
        ]

    def past(self, count: int) -> "Written":
        """Return what follows the first entries."""
        before = Mark(self.before.offset + count, self.ms)
        left = self.operations[count:]
        return Written(before, self.ms, left, self.size * len(left) // len(self.operations))


class HandOver:
    """Entries not followed yet, in the order of the log. Used in the event loop only.

    They are for a follower at exactly their ``before``, in offset and time. If others have written
    in between, or another file has taken the log's place, the follower reads. ``pause``: seconds
    between two reads that are not full, so that a flood of small appends of others costs little.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, pause: float = 0.0) -> None:
        self._clock = clock
        self._pause = pause
        self._waiting: deque[Written] = deque()
        self._size = 0
        self._woken = asyncio.Event()
        # When the follower reads at the latest, and at the earliest.
        self._read_at = self._earliest = 0.0

    def add(self, written: Sequence[Written]) -> None:
        """Add entries just written. Without any, the follower reads."""
        if not written:
            self._read_at = 0.0
        for each in written:
            self._waiting.append(each)
            self._size += each.size
        if self._size > MOST_CHARACTERS:
            self._waiting.clear()
            self._size = 0
            self._read_at = 0.0
        self._woken.set()

    def take(self, offset: int, ms: int | None, limit: int) -> list[Entry]:
        """Return up to ``limit`` entries after a mark. Without any: see ``to_read``."""
        entries: list[Entry] = []
        while self._waiting and self._waiting[0].before.offset <= offset:
            if (left := limit - len(entries)) <= 0:
                break
            written = self._waiting.popleft()
            self._size -= written.size
            read = offset - written.before.offset  # by a look at the file since the commit
            if read >= len(written.operations):
                continue
            if read and ms == written.ms:
                written = written.past(read)
            if written.before.offset == offset and written.before.ms == ms:
                if len(written.operations) > left:
                    self._waiting.appendleft(written.past(left))
                    self._size += self._waiting[0].size
                entries += written.entries(left)
                offset, ms = entries[-1].offset, entries[-1].ms
            elif not entries:
                self._read_at = 0.0
        if entries:
            if self._read_at:  # there was no entry of others before these
                self._read_at = self._clock() + POLL_SECONDS
            return entries
        if self._waiting:
            self._read_at = 0.0
        self._woken.clear()
        return []

    def to_read(self, after: int, limit: int, left: float) -> int:
        """Return how many entries to read now, after ``take`` had none.

        ``left``: seconds left to wait for entries. Without a sign of others' entries only a few:
        most likely there is none, or an append of this process ends meanwhile. No more than lie
        before the next ones that are handed over.
        """
        now = self._clock()
        if left > 0 and now < max(self._read_at, self._earliest):
            return 0
        is_expected, self._read_at = not self._read_at, now + POLL_SECONDS
        self._earliest = now + self._pause
        most = limit if is_expected or left <= 0 else min(limit, FEW)
        return min(most, self._waiting[0].before.offset - after) if self._waiting else most

    def has_read(self, entries: Sequence[Entry], most: int) -> None:
        """Take note of the entries of a read of up to ``most``. There may be more."""
        if entries:
            self._read_at = 0.0
        if len(entries) == most:
            self._earliest = 0.0

    async def wait(self, left: float) -> None:
        """Wait for entries added since ``take``, or until a read is due or ``left`` is over."""
        seconds = min(max(self._read_at, self._earliest) - self._clock(), left)
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

"""Hands new entries to the follower: it need not read back what this process has written."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.store.base import Entry

# Bounds of the entries that wait for a busy follower. Beyond them it reads them from the file.
MOST_BYTES = 8 << 20
_ENTRY_BYTES = 200


class Written(NamedTuple):
    """Entries of one committed statement. ``before``: the entry before the first one."""

    before: Mark
    entries: list[Entry]


class HandOver:
    """Entries not followed yet, in the order of the log. Used in the event loop only.

    They are for a follower at exactly their ``before``, in offset and time. If others have written
    in between, or another file has taken the log's place, the follower reads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[Written] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        # When the follower reads at the latest.
        self._read_at = 0.0

    def add(self, written: Sequence[Written]) -> None:
        """Add entries just written. Without any, the follower reads."""
        if not written:
            self._read_at = 0.0
        for each in written:
            self._waiting.append(each)
            self._bytes += _size_of(each)
        if self._bytes > MOST_BYTES:
            self._waiting.clear()
            self._bytes = 0
            self._read_at = 0.0
        self._woken.set()

    def take(self, offset: int, ms: int | None, limit: int) -> list[Entry]:
        """Return up to ``limit`` entries after a mark. None: see ``must_read``."""
        while self._waiting and self._waiting[0].before.offset <= offset:
            written = self._waiting.popleft()
            self._bytes -= _size_of(written)
            before, entries = written
            if before.offset == offset and before.ms == ms:
                if len(entries) > limit:
                    last = entries[limit - 1]
                    self._waiting.appendleft(Written(Mark(last.offset, last.ms), entries[limit:]))
                    self._bytes += _size_of(self._waiting[0])
                return entries[:limit]
            self._read_at = 0.0
        if self._waiting:
            self._read_at = 0.0
        self._woken.clear()
        return []

    def must_read(self, seconds: float) -> bool:
        """Return whether a read is due: others may have written. The next is, in ``seconds``."""
        now = self._clock()
        if now < self._read_at:
            return False
        self._read_at = now + seconds
        return True

    def has_read(self, entries: Sequence[Entry]) -> None:
        """Take note of the entries of a read. There may be more."""
        if entries:
            self._read_at = 0.0

    async def wait(self, seconds: float) -> None:
        """Wait for entries added since ``take``, at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()


def _size_of(written: Written) -> int:
    return sum(len(entry.data) + _ENTRY_BYTES for entry in written.entries)

"""The records of large entries that expand: each page is read and rendered once for all consumers.

Every consumer asks the store for the entry before it takes a page, so an entry that has left the
log or was rolled back has no records, whatever is kept here. Consumers that ask at the same time
share one answer.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.ages import Ages
from oplogd.model.event_id import Mark
from oplogd.model.transaction import decode_marker
from oplogd.store.topics import TopicEntry, TopicLog, TopicRecord
from oplogd.stream.ring.router import mark_of, record_frames

# Records read from the store at a time.
PAGE = 500

# Most bytes of the pages that an agent keeps for its consumers.
MAX_BYTES = 8 * 1024 * 1024

# A page is dropped this many seconds after its last use.
IDLE_SECONDS = 60.0

# Memory of a page without records, and of a record beside its block.
_PAGE_BYTES = 600
_RECORD_BYTES = 16

_K = TypeVar("_K")
_T = TypeVar("_T")


_Entry: TypeAlias = tuple[TopicLog, Mark]


class Records(NamedTuple):
    """Records that follow each other in an entry. ``last``: number of the last one.

    ``block``: those that have not expired, ``events`` of them. ``records``: the number of all.
    """

    block: bytes
    events: int
    records: int
    last: int


NO_RECORDS = Records(b"", 0, 0, -1)


class Page:
    """Some records of an entry past a number. ``size``: bytes of memory."""

    def __init__(self, entry: TopicEntry, after: int, records: Sequence[TopicRecord]) -> None:
        last = decode_marker(entry.data).last
        frames = [b"".join(record_frames(entry, [each], last)) for each in records]
        self.after = after
        self.used_at = 0.0
        self._block = b"".join(frames)
        self._numbers = array("q", [each.number for each in records])
        # The end of each record in the block.
        self._ends = array("q")
        end = 0
        for frame in frames:
            end += len(frame)
            self._ends.append(end)
        # No record expires before this time in ms; 0: none expires at all.
        self._due_ms = min(
            (each.expires_ms for each in records if each.expires_ms and each.data), default=0
        )
        self._whole = self._from(0, after)
        self.size = end + _RECORD_BYTES * len(records) + _PAGE_BYTES

    @property
    def last(self) -> int:
        """The number of the last record, that of ``after`` if there is none."""
        return self._whole.last

    def past(self, after: int) -> Records:
        """Return the records past a number that is not before the page."""
        if after == self.after:
            return self._whole
        return self._from(bisect_right(self._numbers, after), after)

    def is_due(self, now_ms: int) -> bool:
        """Return whether a record has expired since the page was read."""
        return 0 < self._due_ms < now_ms

    def _from(self, first: int, after: int) -> Records:
        ends = self._ends
        begin = ends[first - 1] if first else 0
        block = self._block[begin:] if begin else self._block
        befores = [begin, *ends[first:]]
        events = sum(end > before for before, end in zip(befores, ends[first:], strict=False))
        number = self._numbers[-1] if first < len(ends) else after
        return Records(block, events, len(ends) - first, number)


class RecordPages:
    """The pages that an agent's consumers share, bounded in bytes; the longest unused go first.

    ``slots``: limits the reads of the store. Methods raise the errors of the log.
    """

    def __init__(
        self,
        slots: asyncio.Semaphore,
        clock: Clock = SYSTEM,
        ages: Callable[[], Ages] = Ages,
    ) -> None:
        self._slots = slots
        self._clock = clock
        self._ages = ages
        # Of the look before. If the clock was set since, the store may show other records.
        self._looked = ages(), 0
        self.bytes = 0
        # The last used comes last.
        self._pages: OrderedDict[tuple[_Entry, int], Page] = OrderedDict()
        # The beginnings of the pages of each entry, ascending.
        self._begins: dict[_Entry, list[int]] = {}
        self._entries: _Shared[_Entry, TopicEntry | None] = _Shared()
        self._reads: _Shared[tuple[_Entry, int], Page] = _Shared()

    async def entry_at(self, log: TopicLog, mark: Mark) -> TopicEntry | None:
        """Return the entry at a mark; None if it has left the log."""

        async def read() -> TopicEntry | None:
            async with self._slots:
                self._entries.close((log, mark))  # a later consumer may have to see a change
                return await entry_at(log, mark)

        return await self._entries.get((log, mark), read)

    async def records(self, log: TopicLog, entry: TopicEntry, after: int) -> Records:
        """Return the next records past a number of an entry that was in the log just now."""
        key = log, mark_of(entry)
        page = self._kept(key, after)
        if page is None:

            async def read() -> Page:
                async with self._slots:
                    records = await log.expand(entry, after, PAGE)
                return self._keep(key, Page(entry, after, records))

            page = await self._reads.get((key, after), read)
        return page.past(after)

    def drop_unused(self) -> None:
        """Drop the pages that no consumer has used for IDLE_SECONDS."""
        until = self._clock.monotonic() - IDLE_SECONDS
        while self._pages and next(iter(self._pages.values())).used_at <= until:
            self._drop(next(iter(self._pages)))

    def _compare_clock(self) -> None:
        """Drop all pages if the clock has stepped."""
        before, self._looked = self._looked, (self._ages(), self._clock.now_ms())
        if self._looked[0] != before[0] or self._looked[1] < before[1]:
            while self._pages:
                self._drop(next(iter(self._pages)))

    def _kept(self, entry: _Entry, after: int) -> Page | None:
        """Return the page with the record past a number."""
        self._compare_clock()
        begins = self._begins.get(entry, [])
        at = bisect_right(begins, after) - 1
        if at < 0:
            return None
        key = entry, begins[at]
        page = self._pages[key]
        if page.is_due(self._clock.now_ms()):
            self._drop(key)
            return None
        if after >= page.last:
            return None
        self._pages.move_to_end(key)
        page.used_at = self._clock.monotonic()
        return page

    def _keep(self, entry: _Entry, page: Page) -> Page:
        """Keep a page that was read, unless it takes too much of the room."""
        key = entry, page.after
        if key in self._pages:
            self._drop(key)
        if page.last == page.after or 4 * page.size > MAX_BYTES:
            return page
        page.used_at = self._clock.monotonic()
        self._pages[key] = page
        begins = self._begins.setdefault(entry, [])
        begins.insert(bisect_right(begins, page.after), page.after)
        self.bytes += page.size
        while self.bytes > MAX_BYTES:
            self._drop(next(iter(self._pages)))
        return page

    def _drop(self, key: tuple[_Entry, int]) -> None:
        entry, after = key
        self.bytes -= self._pages.pop(key).size
        begins = self._begins[entry]
        begins.remove(after)
        if not begins:
            del self._begins[entry]


async def entry_at(log: TopicLog, mark: Mark) -> TopicEntry | None:
    """Return the entry at a mark; None if it has left the log."""
    for entry in await log.read(mark.offset - 1, 1):
        if mark_of(entry) == mark:
            return entry
    return None


class _Call(Generic[_T]):
    def __init__(self, task: "asyncio.Task[_T]") -> None:
        self.task = task
        self.waiting = 0


class _Shared(Generic[_K, _T]):
    """Calls that several tasks wait for together. The last one that leaves cancels the call."""

    def __init__(self) -> None:
        self._calls: dict[_K, _Call[_T]] = {}

    async def get(self, key: _K, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the answer of the call that is under way for a key, or of a new one."""
        shared = self._calls.get(key)
        if shared is None or shared.task.done():
            task = asyncio.create_task(call(), name="consumers ask the store")
            shared = self._calls[key] = _Call(task)
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                shared.task.cancel()
                self.close(key, shared)

    def close(self, key: _K, shared: _Call[_T] | None = None) -> None:
        """Let no more tasks join the call of a key. ``shared``: only if it is this one."""
        if shared is None or self._calls.get(key) is shared:
            self._calls.pop(key, None)

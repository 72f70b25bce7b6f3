"""The records of expanding entries: each page is read and rendered once for all consumers.

Every consumer first asks the store for the entry. So an entry that has left the log or was rolled
back has no records, whatever is cached here. Consumers share the answers to questions under way.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.ages import Ages
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind
from oplogd.model.shard import Shard
from oplogd.model.transaction import decode_marker
from oplogd.store.topics import TopicEntry, TopicLog, TopicRecord
from oplogd.stream.ring.cuts import Cut, Cuts
from oplogd.stream.ring.frames import mark_of, record_frames

# Records read from the store at a time.
PAGE = 500
# Of the pages cached for all consumers of an agent.
MAX_BYTES = 8 * 1024 * 1024
# A page is dropped this many seconds after its last use.
IDLE_SECONDS = 60.0

# Memory of a page without records, and of a record beside its block.
_PAGE_BYTES = 600
_RECORD_BYTES = 16

# Most records of an entry in the ring, and most bytes of their blocks together.
MAX_RECORDS = 100
_SMALL_BYTES = 100_000
# Entries read at a time.
_AT_ONCE = 8

_K = TypeVar("_K")
_T = TypeVar("_T")


_Entry: TypeAlias = tuple[TopicLog, Mark]


class Records(NamedTuple):
    """Records in a row of an entry. ``last``: number of the last one.

    ``block``: the unexpired ones, ``events`` of them. ``records``: the number of all.
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
        self.due_ms = min(
            (each.expires_ms for each in records if each.expires_ms and each.data), default=0
        )
        self._whole = self._from(0, after)
        self.size = end + _RECORD_BYTES * len(records) + _PAGE_BYTES

    @property
    def last(self) -> int:
        """The number of the last record, ``after`` if there is none."""
        return self._whole.last

    def past(self, after: int) -> Records:
        """Return the records past a number within the page."""
        if after == self.after:
            return self._whole
        return self._from(bisect_right(self._numbers, after), after)

    def _from(self, first: int, after: int) -> Records:
        ends = self._ends
        begin = ends[first - 1] if first else 0
        block = self._block[begin:] if begin else self._block
        befores = [begin, *ends[first:]]
        events = sum(end > before for before, end in zip(befores, ends[first:], strict=False))
        number = self._numbers[-1] if first < len(ends) else after
        return Records(block, events, len(ends) - first, number)


class RecordPages:
    """The pages shared by an agent's consumers, bounded in bytes. The longest unused go first.

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
        self._cuts = Cuts()
        self._reads: _Shared[tuple[_Entry, int], Page] = _Shared()

    async def entry_at(self, log: TopicLog, mark: Mark) -> TopicEntry | None:
        """Return the entry at a mark; None if it has left the log."""

        async def read() -> TopicEntry | None:
            async with self._slots:
                self._entries.close((log, mark))  # a later consumer may have to see a change
                return await entry_at(log, mark)

        return await self._entries.get((log, mark), read)

    async def records(self, log: TopicLog, entry: TopicEntry, after: int) -> Records:
        """Return the next records past a number. The entry was in the log just now."""
        key = log, mark_of(entry)
        page = self._cached(key, after)
        if page is None:

            async def read() -> Page:
                async with self._slots:
                    records = await log.expand(entry, after, PAGE)
                return self._keep(key, Page(entry, after, records))

            page = await self._reads.get((key, after), read)
        return page.past(after)

    def cut(self, records: Records, shard: Shard | None) -> Cut:
        """Return the records of a shard; None: all of them."""
        if shard is None:
            return Cut(records.block, records.events)
        return self._cuts.cut(records.block, shard)

    def drop_unused(self) -> None:
        """Drop the pages unused for IDLE_SECONDS."""
        until = self._clock.monotonic() - IDLE_SECONDS
        while self._pages and next(iter(self._pages.values())).used_at <= until:
            self._drop(next(iter(self._pages)))

    def _cached(self, entry: _Entry, after: int) -> Page | None:
        """Return the page with the record past a number."""
        before, self._looked = self._looked, (self._ages(), self._clock.now_ms())
        if self._looked[0] != before[0] or self._looked[1] < before[1]:  # the clock has stepped
            while self._pages:
                self._drop(next(iter(self._pages)))
        begins = self._begins.get(entry, [])
        at = bisect_right(begins, after) - 1
        if at < 0:
            return None
        key = entry, begins[at]
        page = self._pages[key]
        if 0 < page.due_ms < self._clock.now_ms():
            self._drop(key)
            return None
        if after >= page.last:
            return None
        self._pages.move_to_end(key)
        page.used_at = self._clock.monotonic()
        return page

    def _keep(self, entry: _Entry, page: Page) -> Page:
        """Keep a page, unless it takes too much of the room."""
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
    """Calls of several tasks together. The last task to leave cancels the call."""

    def __init__(self) -> None:
        self._calls: dict[_K, _Call[_T]] = {}

    async def get(self, key: _K, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the answer of the present call for a key, or of a new one."""
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


async def read_blocks(
    log: TopicLog, entries: Iterable[TopicEntry], kinds: frozenset[EntryKind]
) -> dict[int, bytes]:
    """Read the records of the small entries of these kinds. Raises TopicNotFoundError.

    Leaves out an entry if the store is unavailable, or if a record has an own time to live.
    """
    small = [
        entry
        for entry in entries
        if entry.event in kinds and 0 < decode_marker(entry.data).records <= MAX_RECORDS
    ]
    found: dict[int, bytes] = {}
    for first in range(0, len(small), _AT_ONCE):
        some = small[first : first + _AT_ONCE]
        blocks = await asyncio.gather(*(_read_block(log, entry) for entry in some))
        for entry, block in zip(some, blocks, strict=True):
            if block:
                found[entry.offset] = block
    return found


async def _read_block(log: TopicLog, entry: TopicEntry) -> bytes:
    """Return the blocks of an entry's records; empty if the ring must not hold them."""
    try:
        records = await log.expand(entry, -1, MAX_RECORDS)
    except StoreUnavailableError:
        return b""  # messages of the same topic must not wait for this
    marker = decode_marker(entry.data)
    if len(records) != marker.records or any(record.expires_ms for record in records):
        return b""
    block = b"".join(record_frames(entry, records, marker.last))
    return block if len(block) <= _SMALL_BYTES else b""

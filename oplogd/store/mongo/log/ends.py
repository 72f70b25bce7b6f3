"""Finding the newest and the oldest entry of the log.

The log is dense from its oldest entry to its newest. An entry before the oldest is a stray: an
insert carried out after the log was trimmed past its place. No writer relies on it (see
``conditional``), and no reader counts it.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.model.event_id import MAX_OFFSET, Mark
from oplogd.store.mongo.link.damage import has_offset
from oplogd.store.mongo.link.inserts import AskTime
from oplogd.store.mongo.link.layout import Document, mark_of
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import Notifier
from oplogd.store.mongo.link.search import PROBES, last_before, spread
from oplogd.store.mongo.link.timing import RECENT_SECONDS

# Documents at an end of the log among which one is an entry. Other programs may have written the
# rest by mistake.
_FEW = 3

_PLACE = {"n": 1, "w": 1, "s": 1}


class Head(NamedTuple):
    """The newest entry of the log, as a majority had it.

    ``passed``: all entries after the offset ``known`` up to the newest; None if they were not read.
    """

    mark: Mark
    asked: AskTime
    known: int = 0
    passed: tuple[Document, ...] | None = None

    def last_of(self, writer: str, after: int) -> int | None:
        """Return the largest sequence of a writer past an offset, -1 if it has no entry there.

        None: ``passed`` does not reach back to that offset, so more must be read.
        """
        if self.passed is None or self.known > after:
            return None
        own = [each for each in self.passed if each.get("w") == writer and each["n"] > after]
        return max((int(each["s"]) for each in own), default=-1)


class Newest(NamedTuple):
    """The newest entry and the entries read with it.

    ``mark``: None if the log is empty. ``passed``: all entries past the known one; None if they
    were not read. ``found``: entries by offset, without their operations.
    """

    mark: Mark | None
    passed: tuple[Document, ...] | None
    found: dict[int, Document]


class KnownLog:
    """Hints about the log. Every use checks them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._head_at = float("-inf")
        # Notifies of entries appended or seen by this process.
        self.appended = Notifier()
        # The newest and the oldest entry seen, and the checkpoint's offset as last seen.
        self.head = Mark(0, 0)
        self.oldest = Mark(0, 0)
        self.folded = 0
        # Size of the capped collection, 0 for a plain log.
        self.capped_bytes = 0

    @property
    def is_recent(self) -> bool:
        """Whether ``head`` was seen recently, so it is no stray."""
        return self._clock() - self._head_at <= RECENT_SECONDS

    def saw_entry(self, mark: Mark) -> None:
        """Note an entry as the head if it is newer.

        It is recent only behind a recent one. Otherwise it may be a stray.
        """
        if mark.offset > self.head.offset:
            self.head = mark
            if self.is_recent:
                self._head_at = self._clock()

    def saw_head(self, mark: Mark, asked_at: float) -> None:
        """Note the head that a look-up found. After a restore it may be older."""
        self.head, self._head_at = mark, asked_at


class LogEnds:
    def __init__(self, link: Link, known: KnownLog) -> None:
        self._link = link
        self._known = known

    async def newest(
        self, known: Mark, offsets: set[int], session: AsyncClientSession | None
    ) -> Newest:
        """Return the newest entry, and the entries at ``offsets``.

        One look-up is enough if ``known`` is still there and fewer than PROBES entries follow it.
        ``known`` must have been seen recently. Otherwise a stray may have taken its place, or it is
        gone after a fail-over or a restore.
        """
        asked = offsets - {0}
        can_probe = self._known.is_recent and known.offset > 0
        ahead = range(known.offset + 1, known.offset + 1 + PROBES) if can_probe else range(0)
        if can_probe:
            asked |= {known.offset, *ahead}
        found = await self._at(asked, session) if asked else {}
        passed = [found[offset] for offset in itertools.takewhile(found.__contains__, ahead)]
        last: Mark | None = None
        if can_probe and known.offset in found and mark_of(found[known.offset]) == known:
            last = mark_of(passed[-1]) if passed else known
            is_end = not any(offset in found for offset in ahead[len(passed) :])
            if len(passed) < PROBES and is_end:
                return Newest(last, tuple(passed), found)
        largest = await self.largest(session)
        return Newest(max(filter(None, (last, largest)), default=None), None, found)

    async def oldest(self, head: Mark, session: AsyncClientSession | None) -> Mark | None:
        """Return the first entry after the last gap before ``head``; None if the log is empty.

        Without strays this is the entry with the smallest offset, and one more look-up confirms it.
        The look-up probes at growing distances. So it finds every gap at least as long as the range
        of strays before it.
        """
        front = await self._end(1, session)
        if front is None:
            return None
        while front.offset < head.offset:
            offsets = spread(front.offset, head.offset)
            marks = await self._marks(offsets, session)
            gap = max((offset for offset in offsets if offset not in marks), default=0)
            if not gap:
                break
            front = min((mark for offset, mark in marks.items() if offset > gap), default=head)
            while (span := front.offset - gap) > 1:
                offsets = list(range(gap, front.offset, -(-span // (PROBES + 1))))[1:]
                marks = await self._marks(offsets, session)
                gap = max((offset for offset in offsets if offset not in marks), default=gap)
                front = min((mark for offset, mark in marks.items() if offset > gap), default=front)
        return front

    async def last_upto(
        self, ms: int, oldest: Mark, head: Mark, session: AsyncClientSession | None
    ) -> Mark:
        """Return the last entry at or before a time, or the mark before the oldest one."""

        async def look_up(offsets: Iterable[int]) -> dict[int, Mark]:
            return await self._marks(offsets, session)

        def is_before(mark: Mark) -> bool:
            return mark.ms <= ms

        if not is_before(oldest):
            return Mark(oldest.offset - 1, 0)
        return await last_before(oldest, head, is_before, look_up)

    async def largest(self, session: AsyncClientSession | None) -> Mark | None:
        """Return the entry with the largest offset; None if the log is empty."""
        return await self._end(-1, session)

    async def _end(self, order: int, session: AsyncClientSession | None) -> Mark | None:
        """Return the entry with the smallest offset, or with the largest if ``order`` is -1."""
        chosen = {"n": {"$gt": 0, "$lte": MAX_OFFSET}}
        found = self._link.log.find(chosen, {"n": 1}, session=session).sort("n", order).limit(_FEW)
        documents = await found.to_list()
        return next(
            (mark_of(each) for each in documents if has_offset(each, self._link.damage)), None
        )

    async def _marks(
        self, offsets: Iterable[int], session: AsyncClientSession | None
    ) -> dict[int, Mark]:
        found = await self._at(offsets, session)
        return {offset: mark_of(each) for offset, each in found.items()}

    async def _at(
        self, offsets: Iterable[int], session: AsyncClientSession | None
    ) -> dict[int, Document]:
        """Return the entries at these offsets, without their operations."""
        chosen = {"n": {"$in": sorted(set(offsets))}}
        found = self._link.log.find(chosen, _PLACE, session=session)
        return {
            document["n"]: document
            async for document in found
            if has_offset(document, self._link.damage)
        }

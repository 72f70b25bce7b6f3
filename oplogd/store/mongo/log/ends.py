"""Finding the newest and the oldest entry of the log.

The log is dense from its oldest entry to its newest. An entry before the oldest is a stray: an
insert carried out after the log had been trimmed past its place. No writer relies on it
(see ``conditional``), and no reader counts it.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.model.event_id import MAX_OFFSET, Mark
from oplogd.store.mongo.link.damage import has_offset
from oplogd.store.mongo.link.layout import Document, mark_of
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.search import PROBES, last_before, spread
from oplogd.store.mongo.log.known import KnownLog

# Documents at an end of the log among which one is an entry. Other programs may have written the
# rest by mistake.
_FEW = 3

_PLACE = {"n": 1, "w": 1, "s": 1}


class Newest(NamedTuple):
    """The newest entry and the entries read with it.

    ``mark``: None if the log is empty. ``passed``: all entries past the known one; None if they
    were not read. ``found``: entries by offset, without their operations.
    """

    mark: Mark | None
    passed: tuple[Document, ...] | None
    found: dict[int, Document]


class LogEnds:
    """Methods raise PyMongo's errors."""

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
        The look-up probes at growing distances, so that it finds every gap that is at least as long
        as the range of strays before it.
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

        if is_before(head):
            return head
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

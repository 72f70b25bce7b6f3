"""The log collection: reads in offset order, its newest and its oldest entry. Every read is of what a majority has.

The log is dense from its oldest entry to its newest. An entry before the oldest is a stray: an insert that was carried out
after the log had been trimmed past its place. Nobody has counted on it (see ``append``), and nobody counts it.
"""

import itertools
import time
from collections.abc import Iterable
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.event_id import MAX_OFFSET, Mark
from oplogd.store.base import Entry, LogBounds
from oplogd.store.mongo.bell import Bell
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.damage import whole
from oplogd.store.mongo.layout import LOG, OFFSET_INDEX, Document, entry, mark_of, weight

READ_CHARACTERS = 1_000_000
"""About what one read brings at most, however long the operations are."""

PROBES = 16
"""How many places one look-up asks for."""

RECENT_SECONDS = 1.0
"""In this time no log turns over: an entry seen so lately is no stray, nor is one that is put behind it."""

_FIRST_DOCUMENTS = 200
_OVERHEAD = 50
"""Characters that a document counts besides those of its key and parents."""

_FEW = 3
"""Of so many documents at an end of the log one is an entry: others are in it by mistake."""

_READ_AGAIN = 5
_PLACE = {"n": 1, "w": 1, "s": 1}
LOST_STATES = (
    "oplog_states was dropped, and the log no longer holds everything: consumers that need a copy wait. Run oplog-sync with a"
    " dump of all objects, then stop the agents and run one of them once with --new-epoch"
)


class Row:
    """The log's row in ``oplog_meta``. ``folded``: the checkpoint, up to which the states hold the log.

    ``set_aside``: spans of time, ends not included, of logs set aside whose clock was ahead.
    """

    def __init__(self, document: Document) -> None:
        """Raises StoreUnavailableError where a member is missing or no whole number."""
        self.folded = Mark(_number(document, "n"), _number(document, "ts"))
        self.first = _number(document, "first")
        self.created = _number(document, "created")
        self.purged = _number(document, "purged")
        self.adopted = _number(document, "adopted")
        self.max_bytes = _number(document, "max_bytes")
        self.has_lost_states = "states_lost" in document
        spans = document.get("set_aside", [])
        if not isinstance(spans, list) or not all(isinstance(span, dict) for span in spans):
            raise _damaged("set_aside")
        self.set_aside = tuple((_number(span, "after"), _number(span, "before")) for span in spans)


def _number(document: Document, member: str) -> int:
    found = whole(document.get(member))
    if found is None:
        raise _damaged(member)
    return found


def _damaged(member: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the document {LOG} of oplog_meta is damaged: its member {member} is missing or not of its type; put it right, or restore"
        " oplog_ops, oplog_states and oplog_meta together"
    )


class Head(NamedTuple):
    """The newest entry, and what was read with it.

    ``asked_at``: in ``boot_seconds``, when the question was sent. ``server_seconds``: the cluster's time in the answer, in whole
    seconds, None where the server does not tell. ``passed``: all entries past ``known``, up to the newest.
    """

    mark: Mark
    asked_at: float
    server_seconds: int | None = None
    known: int = 0
    passed: tuple[Document, ...] | None = None

    def last_of(self, writer: str, after: int) -> int | None:
        """The last of a writer's operations past an offset, -1 if there is none; None if more must be read to tell."""
        if self.passed is None or self.known > after:
            return None
        return max(
            (
                int(each["s"])
                for each in self.passed
                if each.get("w") == writer and each["n"] > after
            ),
            default=-1,
        )


def boot_seconds() -> float:
    """A clock that goes on while the machine sleeps, where the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def server_seconds(session: AsyncClientSession | None) -> int | None:
    """The time of the last answer in a session, by the cluster's clock; None where it does not tell."""
    at = session.operation_time if session else None
    return at.time if at else None


class BatchSize:
    """How many documents to ask for at a time. The server sends whole batches, up to 16 MB, whatever the reader takes."""

    def __init__(self) -> None:
        self._mean = 0.0

    def documents(self, limit: int, characters: int = READ_CHARACTERS) -> int:
        """About as many as make ``characters``; one more than ``limit`` spares the request that finds the end."""
        taken = int(characters / self._mean) + 2 if self._mean else _FIRST_DOCUMENTS
        return min(limit + 1, taken)

    def saw(self, characters: int, documents: int) -> None:
        """Rises immediately, decays slowly: rather small batches than large ones."""
        if documents:
            mean = (characters + _OVERHEAD * documents) / documents
            self._mean = max(mean, self._mean + (mean - self._mean) / 4) if self._mean else mean


class Log:
    """Methods raise PyMongo's errors; what is wrong with the log itself is a StoreUnavailableError."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.appended = Bell()
        """Rings when entries were appended here or seen."""
        self.head = Mark(0, 0)
        """The newest entry seen here: a hint, which every use checks."""
        self._head_at = float("-inf")
        self.followed_until = float("-inf")
        """Until when, in monotonic time, somebody follows here and rings ``appended``."""
        self.capped_bytes = 0
        """The size of the capped collection; 0 for a plain one."""
        self.folded = 0
        """The checkpoint's offset as last seen."""
        self.stall_seconds = 15.0
        """How long the fold may stand still before a writer that waits for room gives up."""
        self.sizes = BatchSize()
        self._oldest = Mark(0, 0)

    async def row(self, session: AsyncClientSession | None = None) -> Row:
        document = await self._link.meta.find_one({"_id": LOG}, {"writers": 0}, session=session)
        if document is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.where}: the log is not set up yet")
        if "repair" in document:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: the log is being made anew; this ends by itself"
            )
        row = Row(document)
        self.folded = row.folded.offset
        return row

    async def documents(
        self, after: int, limit: int, session: AsyncClientSession | None = None
    ) -> list[Document]:
        """Up to ``limit`` entries past an offset without a gap, about a megabyte of them at most.

        The first is not ``after + 1`` only if that one is really gone: a server may leave out what is inserted while it
        reads (FerretDB does).
        """
        for _ in range(_READ_AGAIN):
            found = await self._range(after, limit, session)
            if not found or found[0]["n"] == after + 1 or not await self.has(after + 1):
                break
        else:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: its answers do not hold together"
            )
        dense = [
            document
            for number, document in enumerate(found, found[0]["n"] if found else 0)
            if document["n"] == number
        ]
        if dense:
            self.saw(mark_of(dense[-1]))
        return dense

    async def _range(
        self, after: int, limit: int, session: AsyncClientSession | None
    ) -> list[Document]:
        found: list[Document] = []
        size = 0
        cursor = (
            self._link.log.find({"n": {"$gt": after}}, session=session).sort("n", 1).limit(limit)
        )
        async with cursor.batch_size(self.sizes.documents(limit)):
            async for document in cursor:
                if not self._has_place(document):
                    continue
                found.append(document)
                size += weight(document)
                if (
                    size > READ_CHARACTERS and len(found) > 1
                ):  # the first may be one that is only compared
                    break
        self.sizes.saw(size, len(found))
        return found

    def _has_place(self, document: Document) -> bool:
        """Whether its ``n`` is an offset; one with a decimal point is made a whole number. Nobody reads any other document."""
        n = whole(document["n"])
        if n is None or n > MAX_OFFSET:
            self._link.damage.found(document, "n is no offset")
            return False
        document["n"] = n
        return True

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        """See ``Store.read``. With ``at_ms`` the entry at ``after`` is read, too, and compared."""
        async with self._link.reading() as session:
            if at_ms is None:
                return [entry(document) for document in await self.documents(after, limit, session)]
            documents = await self.documents(after - 1, limit + 1, session)
            if documents and documents[0]["n"] == after:
                if mark_of(documents[0]).ms != at_ms:
                    raise LogReplacedError(f"the log's entry at offset {after} is another one")
                del documents[0]
            else:
                await self._check_gone(Mark(after, at_ms), session)
            return [entry(document) for document in documents[:limit]]

    async def _check_gone(self, place: Mark, session: AsyncClientSession | None) -> None:
        """Raise LogReplacedError if an entry that is not there did not simply leave this log, or the log is not empty yet."""
        row = await self.row(session)
        head = await self._newest(session) or await self.empty_head(row, session)
        if row.created > place.ms or not row.first - 1 <= place.offset <= head.offset:
            raise LogReplacedError(f"the log has no entry at offset {place.offset} any more")

    async def has(self, offset: int) -> bool:
        return await self._link.log.find_one({"n": offset}, {"_id": 1}) is not None

    def saw(self, mark: Mark) -> None:
        """Note an entry as the newest if it is. It counts as recent only if it follows a recent one: else it may be a stray."""
        if mark.offset > self.head.offset:
            self.head = mark
            if (now := boot_seconds()) - self._head_at <= RECENT_SECONDS:
                self._head_at = now

    async def newest(self, known: Mark | None = None) -> Head:
        """The newest entry; where the next one would follow if the log is empty. Raises as ``check_index``.

        ``known``: an entry seen lately past which all others are wanted; by default the newest seen here.
        """
        asked_at = boot_seconds()
        known = known or self.head
        async with self._link.reading() as session:
            mark, passed, _ = await self._look(known, set(), session)
            if mark is None or mark.offset < self.head.offset:
                await self.check_index()
            if mark is None:
                mark = self.head = await self.empty_head(await self.row(session), session)
            else:
                self.head, self._head_at = mark, asked_at
            return Head(mark, asked_at, server_seconds(session), known.offset, passed)

    async def _look(
        self, known: Mark, places: set[int], session: AsyncClientSession | None
    ) -> tuple[Mark | None, tuple[Document, ...] | None, dict[int, Document]]:
        """The newest entry, None if there is none; all entries past ``known``, None if not read; the entries at ``places``.

        The newest is found by one look-up if ``known`` is still there and fewer than PROBES entries follow it. It must have been
        seen lately: later a stray may stand in its place, or it may be gone after a fail-over or a restore.
        """
        asked = places - {0}
        is_recent = boot_seconds() - self._head_at <= RECENT_SECONDS
        ahead = (
            range(known.offset + 1, known.offset + 1 + PROBES)
            if is_recent and known.offset
            else range(0)
        )
        if ahead:
            asked |= {known.offset, *ahead}
        found = await self._at(asked, session) if asked else {}
        run = [found[place] for place in itertools.takewhile(found.__contains__, ahead)]
        if ahead and known.offset in found and mark_of(found[known.offset]) == known:
            last = mark_of(run[-1]) if run else known
            if len(run) < PROBES and not any(place in found for place in ahead[len(run) :]):
                return last, tuple(run), found
        else:
            last = None
        newest = await self._newest(session)
        return max(filter(None, (last, newest)), default=None), None, found

    async def check_index(self) -> None:
        """Raise StoreUnavailableError if the log is gone: an insert would make a collection without the index."""
        if OFFSET_INDEX not in await self._link.log.index_information():
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: the collection {LOG} is gone or was made anew; nothing is appended"
                " until the agent that folds has set it up"
            )

    async def locate(self, offset: int) -> LogBounds:
        """One look-up tells all, unless the log was idle or trimmed, or has grown much, since the last."""
        asked_at = boot_seconds()
        async with self._link.reading() as session:
            row = await self.row(session)
            low = self._oldest
            head, _, documents = await self._look(self.head, {offset, low.offset}, session)
            found = {place: mark_of(document) for place, document in documents.items()}
            oldest = found.get(low.offset)
            if head and oldest != low:
                oldest = await self._front(head, session)
            if head is None or oldest is None:
                oldest = None
                head = await self.empty_head(row, session)
            else:
                self.head, self._head_at, self._oldest = head, asked_at, oldest
        at = None if oldest is None or offset < oldest.offset else found.get(offset)
        return LogBounds(
            head=head,
            oldest=oldest,
            at_ms=at.ms if at else None,
            created_ms=row.created,
            first_offset=row.first,
            purged_ms=row.purged,
            adopted_ms=row.adopted,
            set_aside=row.set_aside,
            now_ms=await self._link.now_ms(),
        )

    async def empty_head(self, row: Row, session: AsyncClientSession | None = None) -> Mark:
        """Where an empty log goes on: past the checkpoint and past every state."""
        newest = await self._link.states.find_one(
            {}, {"n": 1, "ts": 1}, sort=[("ts", -1)], session=session
        )
        if newest is None:
            return row.folded
        top = {"ts": newest["ts"]}
        last = await self._link.states.find_one(top, {"n": 1}, sort=[("n", -1)], session=session)
        offset = int((last or newest).get("n") or 0)
        return Mark(max(row.folded.offset, offset), max(row.folded.ms, int(newest["ts"])))

    async def _newest(self, session: AsyncClientSession | None) -> Mark | None:
        return await self._end(-1, session)

    async def _end(self, order: int, session: AsyncClientSession | None) -> Mark | None:
        """The entry with the smallest offset, with -1 the one with the largest; None if the log is empty."""
        chosen = {"n": {"$gt": 0, "$lte": MAX_OFFSET}}
        found = self._link.log.find(chosen, {"n": 1}, session=session).sort("n", order).limit(_FEW)
        return next(
            (mark_of(each) for each in await found.to_list() if self._has_place(each)), None
        )

    async def _front(self, head: Mark, session: AsyncClientSession | None) -> Mark | None:
        """The oldest entry: the first behind the last gap before ``head``; None if the log is empty.

        Without strays it is the entry with the smallest offset, and one look-up more confirms that. The places in that are ever
        farther apart, so that no gap is missed which is at least as long as the stray entries before it.
        """
        front = await self._end(1, session)
        if front is None:
            return None
        while front.offset < head.offset:
            places = _spread(front.offset, head.offset)
            marks = await self._marks(places, session)
            gap = max((place for place in places if place not in marks), default=0)
            if not gap:
                break
            front = min((mark for place, mark in marks.items() if place > gap), default=head)
            while (span := front.offset - gap) > 1:
                places = list(range(gap, front.offset, -(-span // (PROBES + 1))))[1:]
                marks = await self._marks(places, session)
                gap = max((place for place in places if place not in marks), default=gap)
                front = min((mark for place, mark in marks.items() if place > gap), default=front)
        return front

    async def _marks(
        self, places: Iterable[int], session: AsyncClientSession | None
    ) -> dict[int, Mark]:
        return {place: mark_of(each) for place, each in (await self._at(places, session)).items()}

    async def _at(
        self, places: Iterable[int], session: AsyncClientSession | None
    ) -> dict[int, Document]:
        """The entries at these offsets, each without its operation."""
        found = self._link.log.find({"n": {"$in": sorted(set(places))}}, _PLACE, session=session)
        return {document["n"]: document async for document in found if self._has_place(document)}


def _spread(low: int, high: int) -> list[int]:
    """Places past ``low`` up to ``high``, dense at first, then ever farther apart."""
    span = high - low
    return sorted(
        {
            low + max(number, round(span ** (number / PROBES)))
            for number in range(1, PROBES + 1)
            if number <= span
        }
    )

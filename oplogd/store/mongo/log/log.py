"""Reading the log collection in offset order. Every read sees entries of a majority."""

from collections.abc import Awaitable, Callable

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.base import Entry, LogBounds
from oplogd.store.mongo.link.damage import has_offset, whole
from oplogd.store.mongo.link.inserts import AskTime, server_seconds
from oplogd.store.mongo.link.layout import LOG, OFFSET_INDEX, Document, entry, mark_of, weight
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize
from oplogd.store.mongo.log.ends import Head, KnownLog, LogEnds

_RANGE_READS = 5

LOST_STATES = (
    "oplog_states was dropped, and the log no longer holds everything: consumers that need a copy"
    " wait. Run oplog-sync with a dump of all objects, then stop the agents and run one of them"
    " once with --new-epoch"
)


class LogRow:
    """The checked members of the row of the log. Times are milliseconds since 1970.

    ``folded``: the checkpoint. ``set_aside``: spans of time, ends excluded, of logs set aside
    because their clock was ahead. The rest: see ``LogBounds``.
    """

    def __init__(self, document: Document) -> None:
        """Raise StoreUnavailableError if a member is missing or no whole number."""
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


class Log:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.known = KnownLog(link.clock.boot)
        self.read_size = ReadSize()
        self._ends = LogEnds(link, self.known)

    async def row(self, session: AsyncClientSession | None = None) -> LogRow:
        document = await self._link.meta.find_one({"_id": LOG}, {"writers": 0}, session=session)
        if document is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.hosts}: the log is not set up yet")
        if "repair" in document:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: the log is being rebuilt; this ends by itself"
            )
        row = LogRow(document)
        self.known.folded = row.folded.offset
        return row

    async def documents(
        self, after: int, limit: int, session: AsyncClientSession | None = None
    ) -> list[Document]:
        """Return up to ``limit`` entries past an offset, without a gap, and at most about 1 MB.

        The first has the offset ``after`` + 1, unless that entry is gone.
        """
        for _ in range(_RANGE_READS):
            found = await self._range(after, limit, session)
            if not self._link.quirks.ranges_miss_inserts:
                break
            if not found or found[0]["n"] == after + 1 or not await self.has(after + 1):
                break
        else:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: its answers contradict each other"
            )
        dense = [
            document
            for offset, document in enumerate(found, found[0]["n"] if found else 0)
            if document["n"] == offset
        ]
        if dense:
            self.known.saw_entry(mark_of(dense[-1]))
        return dense

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        """With ``at_ms`` the entry at ``after`` is also read, and compared."""
        async with self._link.reading() as session:
            if at_ms is None:
                return [entry(document) for document in await self.documents(after, limit, session)]
            documents = await self.documents(after - 1, limit + 1, session)
            if documents and documents[0]["n"] == after:
                if mark_of(documents[0]).ms != at_ms:
                    raise LogReplacedError(f"the log's entry at offset {after} is another one")
                del documents[0]
            else:
                await self._check_trimmed(Mark(after, at_ms), session)
            return [entry(document) for document in documents[:limit]]

    async def has(self, offset: int) -> bool:
        return await self._link.log.find_one({"n": offset}, {"_id": 1}) is not None

    async def newest(self, known: Mark | None = None) -> Head:
        """Return the newest entry; of an empty log the mark before the next one.

        ``known``: a recent entry past which all others are wanted; by default the newest seen here.
        Raises as ``check_index``.
        """
        asked_at = self._link.clock.boot()
        known = known or self.known.head
        async with self._link.reading() as session:
            mark, passed, _ = await self._ends.newest(known, set(), session)
            if mark is None or mark.offset < self.known.head.offset:
                await self.check_index()
            if mark is None:
                mark = await self.empty_head(await self.row(session), session)
                self.known.head = mark
            else:
                self.known.saw_head(mark, asked_at)
            return Head(mark, AskTime(asked_at, server_seconds(session)), known.offset, passed)

    async def last_number(
        self, writer: Document, member: str, folded: Callable[[], Awaitable[tuple[int, int]]]
    ) -> int:
        """Return the largest number of a writer, folded entries included; -1 if it has none.

        ``writer``: the filter of its entries. ``member``: their number. ``folded``: see
        ``OrderedBatch``.
        """
        async with self._link.reading() as session:
            upto = (await self.row(session)).folded.offset
            last = await self._link.log.find_one(
                {"n": {"$gt": upto}, **writer},
                {"n": 1, member: 1},
                sort=[("n", -1)],
                session=session,
            )
        upto, known = await folded()
        # The log may have been trimmed meanwhile. Then an entry before the checkpoint may be a
        # stray, and the checkpoint, read after the log, knows all others.
        return int(last[member]) if last and last["n"] > upto else known

    async def check_index(self) -> None:
        """Raise StoreUnavailableError if the log is gone.

        An insert would create the collection again, without the index.
        """
        if OFFSET_INDEX not in await self._link.log.index_information():
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: the collection {LOG} is gone or was created again;"
                " nothing is appended until the agent that folds has set it up"
            )

    async def locate(self, offset: int = 0) -> LogBounds:
        """See ``Store.locate``.

        One look-up is enough unless the log was idle or trimmed, or has grown much, since the last.
        """
        asked_at = self._link.clock.boot()
        async with self._link.reading() as session:
            row = await self.row(session)
            known = self.known.oldest
            newest = await self._ends.newest(self.known.head, {offset, known.offset}, session)
            found = {place: mark_of(document) for place, document in newest.found.items()}
            head = newest.mark
            oldest = found.get(known.offset)
            if head and oldest != known:
                oldest = await self._ends.oldest(head, session)
            if head is None or oldest is None:
                oldest = None
                head = await self.empty_head(row, session)
            else:
                self.known.saw_head(head, asked_at)
                self.known.oldest = oldest
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

    async def seek(self, ms: int) -> Mark:
        bounds = await self.locate()
        if bounds.oldest is None:
            return Mark(0, 0)
        async with self._link.reading() as session:
            return await self._ends.last_upto(ms, bounds.oldest, bounds.head, session)

    async def empty_head(self, row: LogRow, session: AsyncClientSession | None = None) -> Mark:
        """Return the mark before the next entry of an empty log.

        No state and no folded entry has a larger offset or time.
        """
        newest = await self._link.states.find_one(
            {}, {"n": 1, "ts": 1}, sort=[("ts", -1)], session=session
        )
        if newest is None:
            return row.folded
        same_time = {"ts": newest["ts"]}
        last = await self._link.states.find_one(
            same_time, {"n": 1}, sort=[("n", -1)], session=session
        )
        offset = int((last or newest).get("n") or 0)
        return Mark(max(row.folded.offset, offset), max(row.folded.ms, int(newest["ts"])))

    async def _range(
        self, after: int, limit: int, session: AsyncClientSession | None
    ) -> list[Document]:
        found: list[Document] = []
        size = 0
        past = {"n": {"$gt": after}}
        cursor = self._link.log.find(past, session=session).sort("n", 1).limit(limit)
        async with cursor.batch_size(self.read_size.documents(limit)):
            async for document in cursor:
                if not has_offset(document, self._link.damage):
                    continue
                found.append(document)
                size += weight(document)
                # More than one: ``read`` may need the first only for its comparison.
                if size > READ_CHARACTERS and len(found) > 1:
                    break
        self.read_size.saw(size, len(found))
        return found

    async def _check_trimmed(self, missing: Mark, session: AsyncClientSession | None) -> None:
        """Raise LogReplacedError unless the entry was trimmed, or the log is still empty."""
        row = await self.row(session)
        head = await self._ends.largest(session) or await self.empty_head(row, session)
        if row.created > missing.ms or not row.first - 1 <= missing.offset <= head.offset:
            raise LogReplacedError(f"the log has no entry at offset {missing.offset} any more")


def _number(document: Document, member: str) -> int:
    found = whole(document.get(member))
    if found is None:
        raise _damaged(member)
    return found


def _damaged(member: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the document {LOG} of oplog_meta is damaged: its member {member} is missing or not of its"
        " type; put it right, or restore oplog_ops, oplog_states and oplog_meta together"
    )

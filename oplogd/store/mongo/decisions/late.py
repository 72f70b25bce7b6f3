"""Reports after the time-out: the messages once more, and the list of pointers without a report.

The time-out is in the log, and readers have passed over the messages. So a commit appends each
readable message as a LATE entry, once: its identity has the offset of its first place and its write
stamp. The report about the pointer then gets the mark of the last one. So a repeated report appends
nothing, also after these entries have left.

``oplog_timed_out`` holds ``{_id, log, begun, ended}`` for each pointer with a time-out and messages
in a log. ``_id``: see ``rows``. It leaves with a report, or with the time-out.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.model.event_id import Mark
from oplogd.model.names import no_topic
from oplogd.model.pointer import Decision
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import (
    Document,
    entry,
    identity,
    late_identity,
    number_and_offset,
    parts,
    place,
)
from oplogd.store.mongo.pointers.published import end_of
from oplogd.store.mongo.pointers.reports import Reports, late_mark
from oplogd.store.mongo.pointers.rows import key, note_aborted, pointer_and_log
from oplogd.store.mongo.pointers.stored import StoredMessages
from oplogd.store.mongo.reading.topic_log import TopicReader
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.groups import Group, Numbered, Once, new_entry
from oplogd.store.pointers import TimedOutPointer
from oplogd.store.topics import EntryKind

TIMED_OUT = "oplog_timed_out"

_FIRST_PLACES = {"$in": [EntryKind.DIRECT.value, EntryKind.PUBLISH.value]}

# Entries, and bytes of messages, of one append.
_ENTRIES = 500
_BYTES = 4_000_000


class LateReports:
    """Methods raise PyMongo's errors, StoreUnavailableError and TopicNotFoundError."""

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        reader: TopicReader,
        stored: StoredMessages,
        appender: PointerAppender,
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._reader = reader
        self._stored = stored
        self._appender = appender
        self._reports = Reports(link)
        self.timed_out = TimedOutList(link)

    async def abort(self, pointer: int, log: int) -> bool:
        """Let the sweep void the entries of a timed out pointer. Return whether this is new."""
        end = {"x": end_of(pointer, log), "d": str(Decision.TIMED_OUT)}
        await note_aborted(self._link, pointer, log)
        await self.timed_out.remove([key(pointer, log)])
        aborted = {"$set": {"d": str(Decision.ABORTED)}}
        return bool((await self._link.entries.update_one(end, aborted)).modified_count)

    async def commit(
        self, pointer: int, log: int, report: Document, ended: Mark
    ) -> tuple[Mark, bool]:
        """Append the messages of a timed out pointer once more.

        Return the mark of the last one, and whether this call has noted it. ``report``: of the
        commit. ``ended``: mark of the time-out.
        """
        if (known := late_mark(report, log)) is not None:
            return known, False
        mark = ended
        todo: list[Numbered] = []
        size = 0
        async for each in self._messages(pointer, log):
            todo.append(each)
            size += len(each.data)
            if len(todo) == _ENTRIES or size > _BYTES:
                mark = await self._append(log, todo)
                todo, size = [], 0
        if todo:
            mark = await self._append(log, todo)
        is_new = await self._reports.set_late(pointer, log, mark)
        await self.timed_out.remove([key(pointer, log)])
        return mark, is_new

    async def _append(self, log: int, entries: list[Numbered]) -> Mark:
        group = Group(log, entries)
        await self._appender.run([group])
        await self._link.step("late")
        if group.last is None:
            raise no_topic(f"of log {log}")
        return group.last

    async def _messages(self, pointer: int, log: int) -> AsyncIterator[Numbered]:
        """Yield the readable messages, in the order of the log."""
        topic = (await self._catalogue.current([log])).get(log)
        if topic is None:
            raise no_topic(f"of log {log}")
        front = (await self._reader.locate(topic, 0, 0)).front.offset
        own = {"$gte": identity(pointer, log, 0), "$lt": end_of(pointer, log)}
        async with self._link.reading() as session:
            found = self._link.entries.find(
                {"x": own, "kind": _FIRST_PLACES}, {"_id": 1}, session=session
            )
            offsets = sorted([number_and_offset(each["_id"])[1] async for each in found])
        for keys in parts(place(log, offset) for offset in offsets if offset > front):
            documents = self._link.entries.find({"_id": {"$in": keys}}).sort("_id", 1)
            async for document in documents:
                async for each in self._in(pointer, log, document):
                    yield each

    async def _in(self, pointer: int, log: int, document: Document) -> AsyncIterator[Numbered]:
        """Yield the messages of an entry. Those past their own time to live are left out."""
        found = entry(document, await self._link.present())
        dated_ms = found.written_ms or found.ms
        if found.event == EntryKind.DIRECT:
            ttl = (found.expires_ms - dated_ms) // 1000 if found.expires_ms else None
            yield self._late(pointer, log, found.offset, 0, found.data, ttl)
        after = -1
        while found.event == EntryKind.PUBLISH and (
            records := await self._stored.page(log, found, after, _ENTRIES)
        ):
            after = records[-1].number
            for number, data, expires in records:
                if data:
                    ttl = (expires - dated_ms) // 1000 if expires else None
                    yield self._late(pointer, log, found.offset, number, data, ttl)

    def _late(
        self, pointer: int, log: int, offset: int, number: int, data: str, ttl: int | None
    ) -> Numbered:
        once = Once(late_identity(pointer, log, offset, number))
        return new_entry(EntryKind.LATE, data.encode(), ttl, once)

    async def select(self, log: int, limit: int) -> list[TimedOutPointer]:
        """See ``Pointers.timed_out``."""
        listed = await self.timed_out.select(log, limit)
        unreported = await self._reports.unreported([(each.pointer, log) for each in listed])
        pointers = {pointer for pointer, _ in unreported}
        return [each for each in listed if each.pointer in pointers]


class TimedOutList:
    """Methods raise PyMongo's errors."""

    def __init__(self, link: Link) -> None:
        self._rows: AsyncCollection[Document] = link.database[TIMED_OUT]

    async def create_indexes(self) -> None:
        """Create the collection and its indexes, unless they are there."""
        await self._rows.create_index([("log", 1), ("begun", 1), ("_id", 1)], name="log")

    async def add(self, pointer: int, log: int, begun: int, ended: int) -> None:
        row = {"_id": key(pointer, log), "log": log, "begun": begun, "ended": ended}
        with contextlib.suppress(DuplicateKeyError):
            await self._rows.insert_one(row)

    async def remove(self, keys: Iterable[str]) -> None:
        for some in parts(keys):
            await self._rows.delete_many({"_id": {"$in": some}})

    async def select(self, log: int, limit: int) -> list[TimedOutPointer]:
        found = self._rows.find({"log": log}).sort([("begun", 1), ("_id", 1)]).limit(limit)
        return [
            TimedOutPointer(pointer_and_log(each)[0], int(each["begun"]), int(each["ended"]))
            for each in await found.to_list()
        ]

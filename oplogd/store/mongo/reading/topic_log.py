"""Reading the log of one topic. Every read sees entries of a majority."""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp
from oplogd.model.names import no_topic
from oplogd.model.pointer import Decision
from oplogd.model.transaction import decode_marker, parse_id
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize
from oplogd.store.mongo.link.search import last_before
from oplogd.store.mongo.pointers.published import decisions_of
from oplogd.store.mongo.pointers.stored import StoredMessages
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.front import Front, last_written_before, mark_at, marks_at
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.numbers import begin_of
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import EntryKind, Topic, TopicEntry, TopicRecord

_READS = 5

# Logs whose fronts are remembered.
_REMEMBERED = 20_000

# Guards a call: raises StoreUnavailableError while the log is not set up, and for PyMongo's errors.
Working = Callable[[], AbstractAsyncContextManager[None]]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def guarded(
    working: Working, call: Callable[_P, Awaitable[_T]]
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return a method to make a call while ``working``."""

    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        async with working():
            return await call(*args, **kwargs)

    return run


class TopicReader:
    """Reads the logs of topics. Methods raise also the errors of ``TopicLog``."""

    def __init__(
        self, link: Link, catalogue: Catalogue, heads: TopicHeads, stored: StoredMessages
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        self._stored = stored
        self._size = ReadSize()
        self._record_size = ReadSize()
        # Fronts found, by log. A front never moves back, so the next search begins there.
        self._fronts: dict[int, Mark] = {}

    async def read(
        self, topic: Topic, after: int, limit: int, at_ms: int | None
    ) -> list[TopicEntry]:
        past = after
        for _ in range(_READS):
            async with self._link.reading() as session:
                rule = await self.rule(topic, session)
                floor = rule.floor
                if after == floor.offset and at_ms not in (None, floor.ms):
                    raise LogReplacedError(f"{topic.name} does not begin at this time")
                start = max(past, self._low(topic, floor).offset)
                is_compared = at_ms is not None and start == after > floor.offset
                begin = start - is_compared
                found = await self._range(topic, begin, limit + is_compared, session)
            if is_compared and (not found or (found[0].offset, found[0].ms) != (after, at_ms)):
                raise LogReplacedError(f"{topic.name}: the entry at offset {after} is another one")
            entries = [each for each in found if each.offset > start]
            if not entries:
                return []
            if entries[0].offset != start + 1:
                continue  # the sweep was faster, or the server's answer has a gap
            first = entries[0]
            if not rule.may_be_gone(Mark(first.offset, first.ms, first.sequence)):
                return entries[:limit]
            low = self._low(topic, floor)
            past = (await self.front(topic, rule, low)).offset
            if past < entries[0].offset:
                return entries[:limit]
        raise StoreUnavailableError(
            f"MongoDB at {self._link.hosts}: its answers contradict each other"
        )

    async def locate(self, topic: Topic, ms: int, sequence: int) -> TopicBounds:
        rule = await self.rule(topic)
        head = await self._heads.of(topic.log)
        if head is None:
            raise no_topic(topic.name)
        if head.is_ended:
            await self._catalogue.forget(topic.log, head.mark)
            raise no_topic(topic.name)
        front = await self.front(topic, rule, self._low(topic, rule.floor))
        newest = max(head.mark, front)
        wanted = stamp(ms, sequence)

        def is_before(mark: Mark) -> bool:
            return layout.stamp_of(mark) <= wanted

        at = front
        if is_before(front):
            look_up = partial(marks_at, self._link, topic.log)
            at = await last_before(front, newest, is_before, look_up)
        now_ms, begin = await self._link.now_ms(), begin_of(topic.log)
        return TopicBounds(front, newest, at, now_ms, begin, rule.purged, rule.repaired)

    async def rule(self, topic: Topic, session: AsyncClientSession | None = None) -> Front:
        """Read the properties of the topic. Raises TopicNotFoundError."""
        catalogue, document = await self._catalogue.look_up(topic.name, session)
        if document is None or layout.log_of(document) != topic.log:
            raise no_topic(topic.name)
        return Front(catalogue, document, await self._link.present())

    async def front(self, topic: Topic, rule: Front, low: Mark) -> Mark:
        """Return the newest entry that is gone. ``low`` is gone."""
        head = await self._heads.of(topic.log)
        if head is None:
            raise no_topic(topic.name)
        newest = max(head.mark, low)
        look_up = partial(marks_at, self._link, topic.log)
        front = await last_before(low, newest, rule.is_gone, look_up, near=True)
        if front != newest and rule.is_ahead(newest):
            written: dict[int, int] = {}
            look_up = partial(marks_at, self._link, topic.log, written=written)
            front = await last_written_before(front, newest, rule, look_up, written)
        if rule.present.ages.lags:
            front = await self._before_late(topic, rule, low, front)
        if len(self._fronts) >= _REMEMBERED:
            self._fronts.clear()
        # A clock set back shows hidden entries again.
        if front.offset > rule.floor.offset and self._link.guarded.step() is None:
            self._fronts[topic.log] = front
        return front

    async def _before_late(self, topic: Topic, rule: Front, low: Mark, front: Mark) -> Mark:
        """Return the mark before the first entry written later than its stamp tells.

        ``front``, if there is none before it. Looks at all entries in between.
        """
        chosen = {
            "_id": layout.places_of(topic.log, low.offset, front.offset),
            "t": {"$gte": rule.oldest_ms},
        }
        found = await self._link.entries.find(chosen, {"_id": 1}).sort("_id", 1).limit(1).to_list()
        if not found:
            return front
        last = layout.number_and_offset(found[0]["_id"])[1] - 1
        return low if last == low.offset else await mark_at(self._link, topic.log, last) or low

    async def firsts(self, rules: Mapping[int, Front]) -> dict[int, Mark]:
        """Return the first entry past the floor of each log, if it has one."""
        logs = {layout.place(log, rule.floor.offset + 1): log for log, rule in rules.items()}
        found = self._link.entries.find({"_id": {"$in": list(logs)}}, layout.MARK_FIELDS)
        return {
            logs[each["_id"]]: layout.mark_of(each)
            async for each in found.batch_size(len(logs) + 1)
            if each["kind"] != layout.END
        }

    def _low(self, topic: Topic, floor: Mark) -> Mark:
        """Return the newest entry known to be gone."""
        return max(floor, self._fronts.get(topic.log, floor))

    async def _range(
        self, topic: Topic, after: int, limit: int, session: AsyncClientSession | None
    ) -> list[TopicEntry]:
        """Return entries without a gap past an offset, at most about 1 MB of them.

        The end of the log raises TopicNotFoundError.
        """
        present = await self._link.present()
        entries: list[TopicEntry] = []
        size = 0
        chosen = {"_id": layout.places_of(topic.log, after)}
        cursor = self._link.entries.find(chosen, session=session).sort("_id", 1).limit(limit)
        async with cursor.batch_size(self._size.documents(limit)):
            async for document in cursor:
                if document["kind"] == layout.END:
                    await self._catalogue.forget(topic.log, layout.mark_of(document))
                    raise no_topic(topic.name)
                if (
                    entries
                    and layout.number_and_offset(document["_id"])[1] != entries[-1].offset + 1
                ):
                    break
                entries.append(layout.entry(document, present))
                size += len(document["data"])
                # More than one: the first one may only be compared.
                if size > READ_CHARACTERS and len(entries) > 1:
                    break
        self._size.saw(size, len(entries))
        return entries

    async def expand(
        self, topic: Topic, given: TopicEntry, after: int, limit: int
    ) -> list[TopicRecord]:
        await self.rule(topic)
        marker = decode_marker(given.data)
        if marker.last <= after:
            return []
        if given.event == EntryKind.PUBLISH:
            return await self._stored.page(topic.log, given, after, limit)
        txn, log = parse_id(marker.txn), topic.log
        first, last = layout.identity(txn, log, after + 1), layout.identity(txn, log, marker.last)
        chosen = {"x": {"$gte": first, "$lte": last}}
        now_ms = await self._link.now_ms()
        records: list[TopicRecord] = []
        size = 0
        async with self._link.reading() as session:
            cursor = self._link.entries.find(chosen, session=session).sort("x", 1).limit(limit)
            async with cursor.batch_size(self._record_size.documents(limit)):
                async for document in cursor:
                    lsn = layout.number_of(document["x"])
                    # A late copy of an entry may be on its way out.
                    if records and records[-1].number == lsn:
                        continue
                    size += len(document["data"])
                    if records and size > READ_CHARACTERS:
                        break
                    records.append(
                        layout.record(document, lsn, given.written_ms or given.ms, now_ms)
                    )
        self._record_size.saw(size, len(records))
        return records

    async def decisions(self, topic: Topic, pointers: Collection[int]) -> dict[int, Decision]:
        await self.rule(topic)
        return await decisions_of(self._link, topic.log, pointers)


class MongoTopicLog:
    def __init__(self, reader: TopicReader, topic: Topic, working: Working) -> None:
        self._reader = reader
        self._topic = topic
        self._working = working

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        async with self._working():
            return await self._reader.read(self._topic, after, limit, at_ms)

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        async with self._working():
            return await self._reader.locate(self._topic, ms, sequence)

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        async with self._working():
            return await self._reader.expand(self._topic, entry, after, limit)

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        if not pointers:
            return {}
        async with self._working():
            return await self._reader.decisions(self._topic, pointers)

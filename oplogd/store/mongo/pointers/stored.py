"""Messages stored under a pointer: their append, and reading them by a PUBLISH entry.

They are in ``oplog_payloads``, beside the operations of transactions, whose ids are larger than all
pointers: ``{_id, t, data, ttl, o, z, v}``. ``_id``: 16 hex digits of the pointer, 6 of the log and
10 of the number. The numbers of a pointer in a log are dense from 1, so its index gives each to one
message. ``t``: the write stamp. It ascends with the number. ``o``: bytes of all messages before
it, ``z``: its own.

The next ones are inserted at exactly last + 1: see ``inserts``. So a message that lands late has a
larger number than all messages of a PUBLISH entry. For this to hold for ever, a dropped message
stays as an empty document, with ``v``: 1 if it was rolled back, 2 if the pointer was
decided before it was published. They leave with the entries of the pointer.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import NotConfirmedError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import next_write_stamp, unstamp
from oplogd.model.pointer import decided, too_many_stored
from oplogd.model.transaction import decode_marker
from oplogd.store.mongo.link.inserts import AskTime, Obstacle, insert_until_taken
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize
from oplogd.store.mongo.link.search import last_before
from oplogd.store.mongo.link.topic_layout import Document, stamp_of
from oplogd.store.mongo.pointers.published import LastPublish, published_of
from oplogd.store.mongo.pointers.rows import PointerRows
from oplogd.store.mongo.transactions.payloads import MOST_PAYLOADS, PAYLOADS
from oplogd.store.numbers import number_of
from oplogd.store.topics import ENTRY_BYTES, TopicEntry, TopicRecord
from oplogd.store.transactions import RecordLimits

ROLLED_BACK = 1
DECIDED = 2

MAX_NUMBER = (1 << 39) - 2

# Bytes of messages of one insert, approximately.
_MOST_BYTES = 8_000_000

# Messages dropped at a time.
_DROPS = 5_000

# Pointers of a topic whose waiting messages one look counts.
_MOST_WAITING = 200

# Ranges of one removal.
_RANGES = 100

_SHORT = {"t": 1, "o": 1, "z": 1, "v": 1}


class Stored(NamedTuple):
    """The messages of a pointer in a log.

    ``last``: the newest one, None if there is none. ``first_new``, ``last_new``: the first and the
    last message that can still be published.
    """

    published: LastPublish
    last: Document | None
    first_new: Document | None
    last_new: Document | None

    @property
    def number(self) -> int:
        """Number of the last one."""
        return max(self.published.number, number_in(self.last))

    @property
    def waiting(self) -> tuple[int, int]:
        """Number and bytes of the messages that can still be published."""
        first, last = self.first_new, self.last_new
        if first is None or last is None:
            return 0, 0
        return number_in(last) - number_in(first) + 1, int(last["o"] + last["z"] - first["o"])

    @property
    def new_bytes(self) -> int:
        """Their bytes as counted in a topic."""
        count, size = self.waiting
        return size + ENTRY_BYTES * count

    @property
    def is_dropped(self) -> bool:
        """Whether the decision came before some of them were published."""
        return self.last is not None and self.last.get("v") == DECIDED


class StoredMessages:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._payloads = link.database[PAYLOADS]
        self._read_size = ReadSize()

    async def find(self, pointer: int, log: int) -> Stored:
        last, published = await asyncio.gather(
            self._one(pointer, log), published_of(self._link, pointer, log)
        )
        if number_in(last) < published.number:  # it was read too early, or the sweep was faster
            last = await self._one(pointer, log)
        if number_in(last) <= published.number:
            return Stored(published, last, None, None)
        new: Document = {"v": None}
        first = await self._one(pointer, log, published.number, new, order=1)
        if first is None:
            return Stored(published, last, None, None)
        assert last is not None
        last_new = last
        if last.get("v") is not None:
            last_new = await self._one(pointer, log, published.number, new) or first
        return Stored(published, last, first, last_new)

    async def waiting_bytes(self, log: int) -> int:
        """Return the bytes of messages of the oldest open pointers as counted in a topic."""
        pointers = await PointerRows(self._link).with_stored(log, _MOST_WAITING)
        return sum([(await self.find(pointer, log)).new_bytes for pointer in pointers])

    async def stamp_of(self, pointer: int, log: int, number: int) -> int:
        """Return the write stamp of a message, 0 if it is gone."""
        found = await self._payloads.find_one({"_id": _key(pointer, log, number)}, {"t": 1})
        return 0 if found is None else int(found["t"])

    async def append(
        self, pointer: int, log: int, messages: Sequence[Message], limits: RecordLimits
    ) -> None:
        """Append messages behind the last one. A majority has them when the call returns.

        Raises TransactionConflictError and TransactionTooLargeError: then nothing was stored.
        """
        todo = list(messages)
        obstacle = Obstacle(self._link)
        while todo:
            asked = AskTime(self._link.clock.boot())
            found = await self.find(pointer, log)
            obstacle.compare(found.number)
            if len(todo) == len(messages):
                check(pointer, found, messages, limits)
            documents = self._documents(pointer, log, todo, found, await self._link.now_ms())
            await self._link.step("looked-up")
            late = self._link.timing.late_seconds
            landed, _, is_late = await insert_until_taken(
                self._link, self._payloads, documents, asked, late, late
            )
            if landed and is_late:
                raise NotConfirmedError(
                    f"MongoDB at {self._link.hosts}: storing messages took too long"
                )
            del todo[:landed]
            if landed < len(documents):
                await obstacle.met(number_in(documents[landed]))

    def _documents(
        self, pointer: int, log: int, messages: Sequence[Message], found: Stored, now_ms: int
    ) -> list[Document]:
        """Return the documents of the first messages, as many as one insert takes."""
        documents: list[Document] = []
        last = found.last or {"t": 0, "o": 0, "z": 0}
        write_stamp, before = int(last["t"]), last["o"] + last["z"]
        size = 0
        most = min(MOST_PAYLOADS, self._link.quirks.inserts_per_command)
        for number, message in enumerate(messages[:most], found.number + 1):
            size += len(message.data)
            if documents and size > _MOST_BYTES:
                break
            write_stamp = next_write_stamp(write_stamp, now_ms)
            document = {
                "_id": _key(pointer, log, number),
                "t": write_stamp,
                "data": message.data.decode(),
                "o": before,
                "z": len(message.data),
            }
            if message.ttl is not None:
                document["ttl"] = message.ttl
            documents.append(document)
            before += len(message.data)
        return documents

    async def page(self, log: int, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        """See ``TopicLog.expand``."""
        marker = decode_marker(entry.data)
        pointer = int(marker.txn)
        past = marker.end - marker.records
        if after >= marker.last:
            return []
        if after > marker.after:
            low = Mark(past, *unstamp(marker.after))
            past = (await self._last_at(pointer, log, low, marker.end + 1, after)).offset
        now_ms = await self._link.now_ms()
        chosen = {"_id": _keys(pointer, log, past, marker.end), "t": {"$gt": after}, "v": None}
        records: list[TopicRecord] = []
        size = 0
        async with self._link.reading() as session:
            found = self._payloads.find(chosen, session=session).sort("_id", 1).limit(limit)
            async with found.batch_size(self._read_size.documents(limit)):
                async for document in found:
                    size += document["z"]
                    if records and size > READ_CHARACTERS:
                        break
                    records.append(_record(document, entry.written_ms or entry.ms, now_ms))
        self._read_size.saw(size, len(records))
        return records

    async def drop(self, pointer: int, log: int, after: int, upto: int, reason: int) -> None:
        """Empty the messages past a number up to another one."""
        for start in range(after, upto, _DROPS):
            chosen = {"_id": _keys(pointer, log, start, min(upto, start + _DROPS)), "v": None}
            await self._payloads.update_many(chosen, {"$set": {"data": "", "v": reason}})

    async def drop_new(self, pointer: int, log: int) -> None:
        """Empty the messages of a pointer decided before they were published."""
        found = await self.find(pointer, log)
        await self.drop(pointer, log, found.published.number, found.number, DECIDED)

    async def remove(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Remove messages. ``ranges``: pointer, log, and the number up to which they leave."""
        for start in range(0, len(ranges), _RANGES):
            some = ranges[start : start + _RANGES]
            keys = [{"_id": _keys(pointer, log, 0, upto)} for pointer, log, upto in some]
            await self._payloads.delete_many({"$or": keys})

    async def _one(
        self,
        pointer: int,
        log: int,
        after: int = 0,
        others: Document | None = None,
        order: int = -1,
    ) -> Document | None:
        """Return the last message past a number, or the first one."""
        chosen = {"_id": _keys(pointer, log, after, MAX_NUMBER), **(others or {})}
        async with self._link.reading() as session:
            return await self._payloads.find_one(
                chosen, _SHORT, sort=[("_id", order)], session=session
            )

    async def _last_at(
        self, pointer: int, log: int, low: Mark, high: int, write_stamp: int
    ) -> Mark:
        """Return number and write stamp of the last message at or before a write stamp."""

        async def look_up(numbers: Sequence[int]) -> dict[int, Mark]:
            keys = [_key(pointer, log, number) for number in numbers]
            found = self._payloads.find({"_id": {"$in": keys}}, {"t": 1})
            return {
                number_in(each): Mark(number_in(each), *unstamp(each["t"])) async for each in found
            }

        end = Mark(high, *unstamp(write_stamp + 1))
        return await last_before(low, end, lambda mark: stamp_of(mark) <= write_stamp, look_up)


def check(pointer: int, found: Stored, messages: Sequence[Message], limits: RecordLimits) -> None:
    """Raise TransactionConflictError or TransactionTooLargeError if messages may not be stored."""
    if found.published.decision is not None:
        raise decided(pointer, found.published.decision)
    count, size = found.waiting
    size += sum(len(message.data) for message in messages)
    if count + len(messages) > limits.records or size > limits.bytes:
        raise too_many_stored(pointer, limits.records, limits.bytes)


def number_in(document: Document | None) -> int:
    """Return the number of a message, 0 if there is none."""
    return 0 if document is None else int(document["_id"][22:], 16)


def _record(document: Document, publish_ms: int, now_ms: int) -> TopicRecord:
    ttl = document.get("ttl")
    expires = 0 if ttl is None else publish_ms + 1000 * ttl
    is_gone = 0 < expires < now_ms
    return TopicRecord(int(document["t"]), "" if is_gone else document["data"], expires)


def _key(pointer: int, log: int, number: int) -> str:
    return f"{pointer:016x}{number_of(log):06x}{number:010x}"


def _keys(pointer: int, log: int, after: int, upto: int) -> Document:
    """Return the range of keys past a number up to another one, for a filter of ``_id``."""
    return {"$gt": _key(pointer, log, after), "$lte": _key(pointer, log, upto)}

"""Reads a topic from a store, with any number of tasks.

A task reads a range of entries. Decisions are final, so a repeated task reads the same.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import Backend, OpenTopic, split
from oplog_sync.errors import MessagesGoneError, OptionError, SyncError
from oplog_sync.topics.place import SeenEntry, TopicHead, TopicMessage, seen_entry
from oplog_sync.topics.position import (
    GAP_ADVICE,
    Position,
    TopicOptions,
    begin_in,
    is_other,
    offset_before,
)
from oplogd.errors import TopicNotFoundError
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message import decode_content
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Judge
from oplogd.model.transaction import FIRST_ID, Isolation, decode_marker
from oplogd.store.topics import TopicEntry, TopicLog, id_of_record
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.poll import PollBegin, PollStart
from oplogd.topics.reading import begin_of, decided

_PAGE = 5_000

_T = TypeVar("_T")
_NO_MARK = Mark(0, 0)


@dataclass
class TopicRange(InputPartition):
    """The messages of the entries after the offset ``after`` up to ``upto``.

    ``has``: the reader has the first entry, or its records up to this number. ``until``: only
    records of the last entry up to this number. None: the whole entry. ``due``: a larger offset of
    the first entry is a gap. ``may_lack``: a gap is no error. ``store``: see ``Position``.
    """

    after: int
    upto: int
    has: int | None
    until: int | None
    due: int
    may_lack: bool
    store: str | None


class StoreTopic:
    """See ``TopicPlace``. ``decodes``: whether a column needs the contents of messages."""

    def __init__(self, backend: Backend, options: TopicOptions, *, decodes: bool = True) -> None:
        self._backend = backend
        self._options = options
        self._decodes = decodes
        self._isolation = options.isolation

    def head(self) -> TopicHead:
        async def head(topic: OpenTopic) -> TopicHead:
            return TopicHead((await topic.log.locate()).head, topic.store)

        return self._run(head)

    def front(self) -> Mark:
        async def front(topic: OpenTopic) -> Mark:
            return (await topic.log.locate()).front

        return self._run(front)

    def locate(self, ms: int, sequence: int) -> Mark:
        async def locate(topic: OpenTopic) -> Mark:
            bounds = await topic.log.locate(ms, sequence)
            return bounds.at if bounds.at.offset > bounds.front.offset else _NO_MARK

        return self._run(locate)

    def offset_at(self, position: Position) -> int:
        id_ = position.message_id
        return 0 if id_ is None else offset_before(id_, self.locate(id_.ms, id_.sequence))

    def first_open_ms(self) -> int | None:
        async def first_open(topic: OpenTopic) -> int | None:
            found = await topic.open_pointers()
            return min((each.begun_ms for each in found if each.has_entries), default=None)

        return self._run(first_open)

    def walk(self, after: int, upto: int) -> Iterator[Sequence[SeenEntry]]:
        return _driven(self._walk(after, upto))

    def plan(self, start: Position, end: Position) -> Sequence[InputPartition]:
        async def plan(topic: OpenTopic) -> Sequence[InputPartition]:
            begin = begin_in(topic.store, start, end, self._options)
            return [] if begin is None else await self._plan(topic, begin, end)

        return self._run(plan)

    def read(self, part: InputPartition) -> Iterator[list[TopicMessage]]:
        assert isinstance(part, TopicRange)
        return _driven(self._read(part))

    def close(self) -> None:
        """Do nothing: each look connects anew."""

    def _run(self, call: Callable[[OpenTopic], Awaitable[_T]]) -> _T:
        async def run() -> _T:
            async with self._opened() as topic:
                return await call(topic)

        return asyncio.run(run())

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[OpenTopic]:
        try:
            async with self._backend.topic(self._options.name) as topic:
                yield topic
        except TopicNotFoundError as error:
            raise OptionError(f"option topic: {error} in {self._backend.name}") from None

    async def _walk(self, after: int, upto: int) -> AsyncGenerator[Sequence[SeenEntry]]:
        async with self._opened() as topic:
            log = topic.log
            while after < upto and (page := await log.read(after, min(_PAGE, upto - after))):
                entries, judge = await decided(log, after, page)
                yield [
                    _seen(each, self._isolation, _verdict(each, judge))
                    for each in entries
                    if each.offset <= upto
                ]
                after = page[-1].offset

    async def _plan(
        self, topic: OpenTopic, start: Position, end: Position
    ) -> Sequence[InputPartition]:
        log = topic.log
        options, id_, end_id = self._options, start.message_id, end.message_id
        if end_id is None:
            return []
        if id_ is None:
            begin = PollBegin((await log.locate()).front.offset, gap=False)
        else:
            request = PollRequest(id_.to_bytes(), inclusive=False, isolation=self._isolation)
            begin = await begin_of(log, PollStart(request))
            if begin.gap and options.fails_on_gap:
                raise MessagesGoneError(
                    f"position {start.id} has left the topic {options.name}; {GAP_ADVICE}"
                )
        last = (await log.locate(end_id.ms, end_id.sequence)).at
        until = end_id.records_after if _is_at(end_id, last) else None
        may_lack = id_ is None or not options.fails_on_gap
        parts = [
            TopicRange(after, upto, None, None, after + 1, may_lack, topic.store)
            for after, upto in split((begin.after, last.offset), options.partition_rows)
        ]
        if parts:
            parts[0].has = begin.has
            parts[0].due += begin.may_lack
            parts[-1].until = until
        return parts

    async def _read(self, part: TopicRange) -> AsyncGenerator[list[TopicMessage]]:
        after, due = part.after, part.due
        async with self._opened() as topic:
            log = topic.log
            if is_other(part.store, topic.store):
                if part.may_lack:
                    return  # the next batch begins in another store than this one
                raise self._lost(after + 1)
            while after < part.upto:
                page: Sequence[TopicEntry]
                page = await log.read(after, min(_PAGE, part.upto - after))
                page, judge = await decided(log, after, page)
                if (not page or page[0].offset > due) and not part.may_lack:
                    raise self._lost(after + 1)
                rows: list[TopicMessage] = []
                for entry in page:
                    if entry.offset > part.upto:
                        break
                    is_first = entry.offset == part.after + 1 and part.has is not None
                    how = reading(entry.event, self._isolation, _verdict(entry, judge))
                    if how is Reading.EXPAND:
                        async for more in self._expand(log, entry, part):
                            rows += more
                            if len(rows) >= _PAGE:
                                yield rows
                                rows = []
                    elif is_first:
                        pass  # the reader has it
                    elif how is Reading.PASS:
                        # ``str(MessageId(ms, sequence))``, faster
                        id_ = f"{entry.ms:016x}{entry.sequence:04x}00000000000000000000"
                        rows.append(self._message(id_, entry.data))
                    elif how is Reading.HOLD:
                        raise SyncError(
                            f"topic {self._options.name}: the message at offset {entry.offset} "
                            f"waits for the decision about pointer {entry.pointer}; read it again"
                        )
                if rows:
                    yield rows
                if not page:
                    return
                after = page[-1].offset
                due = after + 1

    async def _expand(
        self, log: TopicLog, entry: TopicEntry, part: TopicRange
    ) -> AsyncIterator[list[TopicMessage]]:
        """Yield the records of an entry that are in the part."""
        marker = decode_marker(entry.data)
        is_first, is_last = entry.offset == part.after + 1, entry.offset == part.upto
        after = part.has if is_first and part.has is not None else -1
        until = part.until if is_last and part.until is not None else marker.last
        # Records still to come. They are known only if all of them are read.
        missing = marker.records if after < 0 and until >= marker.last else 0
        txn = marker.txn if int(marker.txn) >= FIRST_ID else None
        while after < min(until, marker.last):
            found = await log.expand(entry, after, _PAGE)
            missing -= len(found)
            yield [
                self._message(str(id_of_record(entry, number, marker.last)), data, txn)
                for number, data, _ in found
                if data and number <= until
            ]
            if not found:
                break
            after = found[-1].number
        is_lacking = after < min(until, marker.last) or missing > 0
        if is_lacking and not part.may_lack and not await _was_voided(log, entry):
            raise self._lost(entry.offset)

    def _message(self, id_: str, data: str, txn: str | None = None) -> TopicMessage:
        return TopicMessage(id_, decode_content(data) if self._decodes else None, txn)

    def _lost(self, offset: int) -> MessagesGoneError:
        return MessagesGoneError(
            f"the messages from offset {offset} on have left the topic {self._options.name} during "
            f"the read; {GAP_ADVICE}"
        )


def _verdict(entry: TopicEntry, judge: Judge) -> Reading:
    return Reading.HOLD if entry.pointer is None else judge(entry.pointer)


def _seen(entry: TopicEntry, isolation: Isolation, verdict: Reading) -> SeenEntry:
    mark = Mark(entry.offset, entry.ms, entry.sequence)
    has_records = entry.event in (EntryKind.COMMIT, EntryKind.PUBLISH)
    records = decode_marker(entry.data).records if has_records else 0
    return seen_entry(mark, entry.event, isolation, verdict, records)


def _is_at(id_: MessageId, mark: Mark) -> bool:
    return (id_.ms, id_.sequence) == (mark.ms, mark.sequence)


async def _was_voided(log: TopicLog, entry: TopicEntry) -> bool:
    """Return whether a rollback has taken the messages of an entry since it was read."""
    if entry.event != EntryKind.PUBLISH:
        return False
    now = await log.read(entry.offset - 1, 1)
    return bool(now) and now[0].offset == entry.offset and now[0].event != entry.event


def _driven(items: AsyncGenerator[_T]) -> Iterator[_T]:
    """Yield the items of an asynchronous generator."""

    async def following() -> _T | None:
        return await anext(items, None)

    with asyncio.Runner() as runner:
        try:
            while (item := runner.run(following())) is not None:
                yield item
        finally:
            runner.run(items.aclose())

"""Messages under pointers in a database shared by several agents.

    publish: register the pointer, append while it is not decided
    store: register the pointer, store at the next numbers
    publish stored messages: register the pointer, append one PUBLISH entry behind the last one
    decide: record the report, append the decision to each log once, drop the rest of the stored
            messages, publish the messages of a timed out pointer once more
    roll back: see ``rollbacks``

The rules of the topic are read before the first step, as its time to live is.

Everything that counts is in the log. Conditions are judged with each append, after the heads: see
``judgement``.
"""

import asyncio
from collections.abc import Sequence

from oplogd.errors import TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.pointer import Decision, decided, nothing_stored, stored_before, switched_off
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.mongo.decisions.appends import DirectGroup, PointerAppender, to_end
from oplogd.store.mongo.decisions.decision import PointerDecider
from oplogd.store.mongo.decisions.late import LateReports
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.interface.guard import guarded
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import PUBLISH_BASE, stamp_of
from oplogd.store.mongo.pointers.published import decisions_of, end_of, publish_identity
from oplogd.store.mongo.pointers.rows import PointerRows
from oplogd.store.mongo.pointers.stored import Stored, check, number_in
from oplogd.store.mongo.reading.topic_log import Working
from oplogd.store.mongo.topics.groups import Group, Under, Unless, new_entry
from oplogd.store.pointers import FoundPointer, Marks, OpenPointer, PointerKey, TimedOutPointer
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions, OpenStats, RecordLimits


@guarded
class MongoPointers:
    """See ``Pointers``. ``working`` guards each call."""

    def __init__(self, link: Link, lease: FoldLease, topics: MongoTopics, working: Working) -> None:
        self._link = link
        self._topics = topics
        self._catalogue = catalogue = topics.catalogue
        self._working = working
        self._stored = topics.stored
        self._rows = PointerRows(link)
        self._appender = PointerAppender(topics.appender)
        stored, appender = topics.stored, self._appender
        self._rollbacks = Rollbacks(link, catalogue, stored, appender)
        self._late = LateReports(link, catalogue, topics.reader, stored, appender)
        self._decider = PointerDecider(
            link, lease, topics.setup, stored, appender, self._rollbacks, self._late
        )

    @property
    def decisions(self) -> Decisions:
        return self._decider.decisions

    @decisions.setter
    def decisions(self, decisions: Decisions) -> None:
        self._decider.decisions = decisions

    async def publish(
        self, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
    ) -> Marks:
        row, rules = await asyncio.gather(
            self._rows.find(pointer, log), self._catalogue.rules_of(log)
        )
        if not rules.is_on:
            raise await self._switched_off(pointer, log)
        self._topics.bounds.require_room(log)
        if row.get("stored"):
            found = await self._stored.find(pointer, log)
            if found.first_new is not None and found.published.decision is None:
                await self._check_topic(log)
                raise stored_before(pointer)
        if not row.get("entries"):
            await self._rows.register_entries(pointer, log, rules.timeout_ms(timeout_ms))
            await self._link.step("registered")
        end = end_of(pointer, log)
        entries = (
            new_entry(EntryKind.DIRECT, each.data, each.ttl, under=Under(pointer))
            for each in messages
        )
        group = DirectGroup(log, entries, Unless(end, end))
        await to_end(self._append_all(pointer, log, group))
        return group.marks

    async def store(
        self,
        log: int,
        pointer: int,
        messages: Sequence[Message],
        timeout_ms: int,
        limits: RecordLimits,
    ) -> None:
        _, rules = await asyncio.gather(self._check_topic(log), self._catalogue.rules_of(log))
        if not rules.is_on:
            raise await self._switched_off(pointer, log)
        self._topics.bounds.require_room(log)
        check(pointer, await self._stored.find(pointer, log), messages, limits)
        await self._rows.register_stored(pointer, log, rules.timeout_ms(timeout_ms))
        await self._link.step("registered")
        try:
            await self._stored.append(pointer, log, messages, limits)
        except TransactionConflictError:
            raise await self._refusal(pointer, log) from None
        await self._link.step("stored")
        if await decisions_of(self._link, log, [pointer]):
            # It may have come before the messages, which no reader would ever get.
            await self._stored.drop_new(pointer, log)
            raise await self._refusal(pointer, log)

    async def publish_stored(self, log: int, pointer: int, timeout_ms: int) -> Mark | None:
        _, rules = await asyncio.gather(self._check_topic(log), self._catalogue.rules_of(log))
        is_registered = False
        while True:
            found = await self._stored.find(pointer, log)
            _, mark, decision = found.published
            if found.first_new is None and mark is not None and not found.is_dropped:
                return mark
            if decision is not None:
                await self._decider.finish({(pointer, log): decision})
                raise decided(pointer, decision)
            if not rules.is_on:
                raise switched_off()
            if not found.number:
                return None
            if found.first_new is None:
                raise nothing_stored(pointer)
            if notes := await self._rollbacks.pending(pointer, log):
                # A rollback cut short must not take newer messages with it.
                for note in notes:
                    await self._rollbacks.complete(note)
                continue
            if not is_registered:
                await self._rows.register_entries(pointer, log, rules.timeout_ms(timeout_ms))
                await self._link.step("registered")
                is_registered = True
            group = await self._publish_entry(pointer, log, found)
            await self._link.step("looked-up")
            await self._appender.run([group])
            await self._link.step("appended")
            if group.last is not None:
                return group.last
            if group.is_refused:
                raise await self._refusal(pointer, log)

    async def rollback(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> Mark | None:
        await self._check_topic(log)
        return await self._decider.roll_back(log, pointer, stamps, force=force)

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        # A decision made before the topic was deleted is still in the log.
        heads = (await self._topics.heads.newest(logs)).logs
        for log in logs:
            if (head := heads.get(log)) is None or head.is_ended:
                raise await self._refusal(pointer, log)
        marks = await self._decider.report(logs, pointer, decision)
        for log in logs:
            if log not in marks:
                raise await self._refusal(pointer, log)
        return {log: marks[log] for log in logs}

    async def timed_out(self, log: int, limit: int) -> list[TimedOutPointer]:
        await self._check_topic(log)
        return await self._late.select(log, limit)

    async def select(
        self, log: int, limit: int, after: PointerKey | None = None
    ) -> list[OpenPointer]:
        await self._check_topic(log)
        return [each.open for each in await self._rows.select(limit, after, log)]

    async def select_all(self, limit: int, after: PointerKey | None = None) -> list[FoundPointer]:
        return await self._rows.select(limit, after)

    async def keep(self) -> int:
        return await self._decider.keep()

    async def stats(self) -> OpenStats:
        return await self._rows.stats()

    async def _publish_entry(self, pointer: int, log: int, found: Stored) -> Group:
        """Return the PUBLISH entry of new messages, if no other one comes first."""
        number = found.published.number
        first, last = number_in(found.first_new), number_in(found.last_new)
        assert found.last_new is not None
        after = await self._stored.stamp_of(pointer, log, first - 1) if first > 1 else 0
        marker = Marker(str(pointer), last - first + 1, int(found.last_new["t"]), after, last)
        entry = new_entry(
            EntryKind.PUBLISH,
            encode_marker(marker).encode(),
            under=Under(pointer, PUBLISH_BASE + last),
            more=found.new_bytes,
        )
        unless = Unless(publish_identity(pointer, log, number + 1), end_of(pointer, log))
        return Group(log, [entry], unless=unless)

    async def _append_all(self, pointer: int, log: int, group: DirectGroup) -> None:
        """Append all entries of a group, or void those in the log. Readers may have these."""
        await self._appender.run([group])
        await self._link.step("appended")
        if not group.is_closed and not group.is_refused:
            return
        if group.marks:  # a part is in the log, if it takes several inserts
            is_late = await self._decider.is_committed(pointer, log)
            stamps = [*map(stamp_of, group.marks)]
            for note in await self._rollbacks.note(
                pointer, log, stamps, is_free=True, is_gap=is_late
            ):
                await self._rollbacks.complete(note)
        raise await self._refusal(pointer, log)

    async def _switched_off(self, pointer: int, log: int) -> Exception:
        """Return the error for messages in a topic without messages under pointers."""
        if await decisions_of(self._link, log, [pointer]):
            return await self._refusal(pointer, log)
        return switched_off()

    async def _refusal(self, pointer: int, log: int) -> Exception:
        """Return the error for a pointer decided in this log, or whose topic is gone."""
        try:
            await self._check_topic(log)
        except TopicNotFoundError as error:
            await self._decider.forget([(pointer, log)])
            return error
        decision = (await decisions_of(self._link, log, [pointer])).get(pointer)
        if decision is not None:
            await self._decider.finish({(pointer, log): decision})
        return decided(pointer, decision)

    async def _check_topic(self, log: int) -> None:
        """Raise TopicNotFoundError if the topic was deleted."""
        head = await self._topics.heads.of(log)
        if head is None or head.is_ended:
            raise await self._catalogue.no_topic(log)

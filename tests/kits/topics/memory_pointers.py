"""Pointers in memory: the model of every store's, and their stand-in for other tests."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import next_write_stamp, stamp
from oplogd.model.pointer import (
    Decision,
    Voided,
    decided,
    encode_voided,
    nothing_stored,
    stored_before,
    switched_off,
    too_late,
    too_many_stored,
)
from oplogd.model.transaction import Marker, decode_marker, encode_marker
from oplogd.store.pointers import (
    FoundPointer,
    Marks,
    OpenPointer,
    PointerKey,
    TimedOutPointer,
    runs_of,
)
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions, OpenStats, RecordLimits
from tests.kits.topics.memory import MemoryTopics, mark


@dataclass
class _Row:
    """A pointer in one topic. ``stored`` and ``published``: the last write stamp of each, 0: none.

    ``published`` counts what was rolled back, too. ``last``: mark of the last PUBLISH entry, None
    if there is none, or if it was rolled back. ``end``: mark of the decision. ``late``: mark of the
    last LATE entry.
    """

    begun_ms: int
    expires_ms: int = 0
    has_entries: bool = False
    stored: int = 0
    published: int = 0
    last: Mark | None = None
    end: Mark | None = None
    late: Mark | None = None


class MemoryPointers:
    """Implements ``oplogd.store.pointers.Pointers`` beside topics in memory.

    ``trouble``: if set, every method raises it. ``gate``: each call that appends or stores waits
    for it, then judges; ``arrived`` is set before.
    """

    def __init__(self, topics: MemoryTopics) -> None:
        self.topics = topics
        self.trouble: StoreUnavailableError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self._rows: dict[tuple[int, int], _Row] = {}
        self.decisions = Decisions()

    def another(self) -> "MemoryPointers":
        """Return another handle on the same pointers, as another agent would have."""
        handle = MemoryPointers(self.topics)
        handle._rows = self._rows
        return handle

    async def publish(
        self, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
    ) -> Marks:
        await self._enter(log)
        self._refuse(log, pointer)
        if self._waiting(log, pointer):
            raise stored_before(pointer)
        self._register(log, pointer, timeout_ms, has_entries=True)
        return Marks(map(mark, self.topics.place(log, EntryKind.DIRECT, messages, pointer)))

    async def store(
        self,
        log: int,
        pointer: int,
        messages: Sequence[Message],
        timeout_ms: int,
        limits: RecordLimits,
    ) -> None:
        await self._enter(log)
        self._refuse(log, pointer)
        waiting = [*self._waiting(log, pointer).values(), *messages]
        octets = sum(len(each.data) for each in waiting)
        if len(waiting) > limits.records or octets > limits.bytes:
            raise too_many_stored(pointer, limits.records, limits.bytes)
        row = self._register(log, pointer, timeout_ms, has_entries=False)
        stored = self.topics.stored.setdefault((log, pointer), {})
        for each in messages:
            row.stored = next_write_stamp(row.stored, self.topics.clock())
            stored[row.stored] = each

    async def publish_stored(self, log: int, pointer: int, timeout_ms: int) -> Mark | None:
        await self._enter(log)
        waiting = self._waiting(log, pointer)
        row = self._rows.get((log, pointer))
        if row is not None and row.last is not None and row.stored == row.published:
            return row.last
        self._refuse(log, pointer)
        if row is None or not row.stored:
            return None
        if not waiting:
            raise nothing_stored(pointer)
        row = self._register(log, pointer, timeout_ms, has_entries=True)
        marker = Marker(str(pointer), len(waiting), row.stored, row.published)
        row.last = self._append(log, EntryKind.PUBLISH, encode_marker(marker), pointer)
        row.published = row.stored
        return row.last

    async def rollback(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> Mark | None:
        await self._enter(log)
        row = self._rows.get((log, pointer))
        is_late = self._report(log, pointer) is Decision.COMMITTED
        if is_late and not force:
            raise too_late(pointer)
        if row is None:
            return None
        decision = self.topics.decided.get((log, pointer))
        if decision is Decision.TIMED_OUT and not is_late:
            self._abort_late(log, pointer)
        if stamps is None:
            self._remove_waiting(log, pointer)
            row.published = row.stored
        found = [
            entry
            for entry in self.topics.generation(log).entries
            if (
                entry.pointer == pointer or entry.offset in self.topics.late.get((log, pointer), ())
            )
            and entry.event != EntryKind.VOID
            and (stamps is None or stamp(entry.ms, entry.sequence) in stamps)
        ]
        if not found:
            return None
        if row.last in [mark(entry) for entry in found]:
            row.last = None
        self.topics.void(log, found)
        if is_late:
            newest = max(stamp(entry.ms, entry.sequence) for entry in found)
            self.topics.purged[log] = max(newest, self.topics.purged.get(log, 0))
        voided = Voided(str(pointer), runs_of([entry.offset for entry in found]), is_late)
        return self._append(log, EntryKind.VOID, encode_voided(voided))

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        for log in logs:
            await self._enter(log)
            if (report := self._report(log, pointer)) not in (None, decision):
                raise decided(pointer, report)
        return {log: self._decide(log, pointer, decision) for log in logs}

    async def timed_out(self, log: int, limit: int) -> list[TimedOutPointer]:
        self._work()
        self.topics.generation(log)
        found = [
            TimedOutPointer(pointer, row.begun_ms, row.end.ms)
            for (of, pointer), row in self._rows.items()
            if of == log and row.has_entries and row.late is None and row.end is not None
            if self.topics.decided[of, pointer] is Decision.TIMED_OUT
        ]
        return sorted(found, key=lambda each: each.begun_ms)[:limit]

    async def select(
        self, log: int, limit: int, after: PointerKey | None = None
    ) -> list[OpenPointer]:
        self._work()
        self.topics.generation(log)
        return [each.open for each in self._past(after) if each.log == log][:limit]

    async def select_all(self, limit: int, after: PointerKey | None = None) -> list[FoundPointer]:
        self._work()
        return self._past(after)[:limit]

    def _past(self, after: PointerKey | None) -> list[FoundPointer]:
        rows = [
            FoundPointer(log, OpenPointer(pointer, row.begun_ms, row.expires_ms, row.has_entries))
            for (log, pointer), row in self._open()
        ]
        past = [each for each in rows if after is None or each.key > after]
        return sorted(past, key=lambda each: each.key)

    async def keep(self) -> int:
        self._work()
        now = self.topics.clock()
        overdue = [place for place, row in self._open() if row.expires_ms < now]
        for log, pointer in overdue:
            self._decide(log, pointer, Decision.TIMED_OUT)
        return len(overdue)

    async def stats(self) -> OpenStats:
        self._work()
        begun = [row.begun_ms for _, row in self._open()]
        return OpenStats(len(begun), min(begun, default=0))

    def _open(self) -> list[tuple[tuple[int, int], _Row]]:
        """Return the rows of open pointers by log and pointer, except those of deleted topics."""
        return [
            (place, row)
            for place, row in self._rows.items()
            if row.end is None and self.topics.exists(place[0])
        ]

    def _waiting(self, log: int, pointer: int) -> dict[int, Message]:
        """Return the messages that are stored and were not published, by write stamp."""
        row = self._rows.get((log, pointer))
        stored = self.topics.stored.get((log, pointer), {})
        return {number: each for number, each in stored.items() if row and number > row.published}

    def _remove_waiting(self, log: int, pointer: int) -> None:
        for number in self._waiting(log, pointer):
            del self.topics.stored[log, pointer][number]

    def _register(self, log: int, pointer: int, timeout_ms: int, *, has_entries: bool) -> _Row:
        now = self.topics.clock()
        row = self._rows.setdefault((log, pointer), _Row(now))
        if not row.has_entries:
            rules = self.topics.generation(log).topic.pointers
            row.expires_ms = now + rules.timeout_ms(timeout_ms)
            row.has_entries = has_entries
        return row

    def _refuse(self, log: int, pointer: int) -> None:
        """Raise TransactionConflictError unless messages may go in under a pointer."""
        self._refuse_decided(log, pointer)
        if not self.topics.generation(log).topic.pointers.is_on:
            raise switched_off()

    def _refuse_decided(self, log: int, pointer: int) -> None:
        if (log, pointer) in self.topics.decided:
            raise decided(pointer, self.topics.decided[log, pointer])

    def _decide(self, log: int, pointer: int, decision: Decision) -> Mark:
        row = self._rows.setdefault((log, pointer), _Row(self.topics.clock()))
        if row.end is None:
            self._remove_waiting(log, pointer)
            self.topics.decided[log, pointer] = decision
            kind = EntryKind.COMMIT if decision == Decision.COMMITTED else EntryKind.ABORT
            row.end = self._append(log, kind, encode_marker(Marker(str(pointer))))
            self._count(decision)
        elif self.topics.decided[log, pointer] is Decision.TIMED_OUT and row.late is None:
            if decision is Decision.ABORTED:
                self._abort_late(log, pointer)
            elif decision is Decision.COMMITTED:
                row.late = self._publish_late(log, pointer) or row.end
                self._count(decision)
        return row.late or row.end

    def _abort_late(self, log: int, pointer: int) -> None:
        self.topics.decided[log, pointer] = Decision.ABORTED
        self._count(Decision.ABORTED)

    def _publish_late(self, log: int, pointer: int) -> Mark | None:
        topics = self.topics
        generation, now = topics.generation(log), topics.clock()
        front = topics.front(generation).offset
        again: list[Message] = []
        for entry in generation.entries:
            if entry.pointer != pointer or entry.offset <= front or 0 < entry.expires_ms < now:
                continue
            if entry.event == EntryKind.DIRECT:
                ttl = (entry.expires_ms - entry.ms) // 1000 if entry.expires_ms else None
                again.append(Message(entry.data.encode(), ttl))
                continue
            marker = decode_marker(entry.data)
            again += [
                each
                for number, each in topics.stored[log, pointer].items()
                if marker.after < number <= marker.last
                and (each.ttl is None or entry.ms + 1000 * each.ttl >= now)
            ]
        added = topics.place(log, EntryKind.LATE, again)
        topics.late[log, pointer] = {entry.offset for entry in added}
        return mark(added[-1]) if added else None

    def _report(self, log: int, pointer: int) -> Decision | None:
        """Return what the owner has reported: not the time-out."""
        row = self._rows.get((log, pointer))
        if row is not None and row.late is not None:
            return Decision.COMMITTED
        found = self.topics.decided.get((log, pointer))
        return None if found is Decision.TIMED_OUT else found

    def _count(self, decision: Decision) -> None:
        match decision:
            case Decision.COMMITTED:
                self.decisions.committed += 1
            case Decision.ABORTED:
                self.decisions.aborted += 1
            case Decision.TIMED_OUT:
                self.decisions.timed_out += 1

    def _append(self, log: int, event: EntryKind, data: str, pointer: int | None = None) -> Mark:
        (entry,) = self.topics.place(log, event, [Message(data.encode())], pointer)
        return mark(entry)

    async def _enter(self, log: int) -> None:
        """Wait for the gate. Raises TopicNotFoundError."""
        self.arrived.set()
        await self.gate.wait()
        self._work()
        self.topics.generation(log)

    def _work(self) -> None:
        if self.trouble is not None:
            raise self.trouble

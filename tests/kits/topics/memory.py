"""Topics in memory: the model of every store's topics, and their stand-in for other tests."""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oplogd.errors import LogReplacedError, TopicExistsError, TopicNotFoundError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules, Voided, encode_voided
from oplogd.model.transaction import decode_marker
from oplogd.store.pointers import runs_of
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import (
    DEFAULT_TTL,
    EntryKind,
    MessageBatch,
    Namespace,
    News,
    Outcome,
    Placed,
    Refused,
    Topic,
    TopicEntry,
    TopicLog,
    TopicRecord,
    TopicStats,
)
from tests.kits.topics.memory_leases import MemoryLeases

READ_BYTES = 1_000_000


@dataclass
class Generation:
    """One generation of a topic. ``entries[i]`` has the offset ``swept.offset + i + 1``."""

    topic: Topic
    swept: Mark
    floor_ms: int = 0
    deleted: bool = False
    entries: list[TopicEntry] = field(default_factory=list)

    @property
    def head(self) -> Mark:
        return mark(self.entries[-1]) if self.entries else self.swept


def mark(entry: TopicEntry) -> Mark:
    return Mark(entry.offset, entry.ms, entry.sequence)


class MemoryTopics:
    """Implements ``oplogd.store.topics.Topics``. ``clock`` returns ms since 1970.

    ``trouble``: if set, every method raises it. ``gate``: each append waits for it, then judges and
    places its batches. ``appends``: the batches of each call that returned. ``records``: the
    DEFERRED entries by lsn, by log and transaction; no sweep removes them. ``stored``: the messages
    that were stored, by write stamp, by log and pointer. ``decided``: the decisions by log and
    pointer. ``late``: offsets of the LATE entries by log and pointer. ``purged``: see
    ``TopicBounds``, by log. ``leases``: they judge the fences.
    """

    def __init__(self, clock: Callable[[], int], topic_ttl: int = DEFAULT_TTL) -> None:
        self.clock = clock
        self.leases = MemoryLeases(clock)
        self.trouble: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.appends: list[list[MessageBatch]] = []
        self.records: dict[tuple[int, str], dict[int, TopicEntry]] = {}
        self.stored: dict[tuple[int, int], dict[int, Message]] = {}
        self.decided: dict[tuple[int, int], Decision] = {}
        self.late: dict[tuple[int, int], set[int]] = {}
        self.purged: dict[int, int] = {}
        # Reads so far: a test of reads from memory looks that it does not grow.
        self.reads = 0
        self._ttl = topic_ttl
        self._logs: dict[int, Generation] = {}
        self._names: dict[TopicName, Generation] = {}
        self._ended_stamp = 0
        self._version = 0
        self._told = 0
        self._changed = asyncio.Event()

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        self._work()
        if name in self._names:
            raise TopicExistsError(f"the topic {name} exists")
        topic = Topic(len(self._logs) + 1, name, ttl, pointers, max_bytes)
        first = max(self._ended_stamp, stamp(self.clock(), 0))
        generation = Generation(topic, Mark(0, *unstamp(first)))
        self._names[name] = self._logs[topic.log] = generation
        self._tell()
        return topic

    async def change(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        self._work()
        generation = self._of_name(name)
        self._keep_expired(generation, self._seconds(generation.topic))
        generation.topic = Topic(generation.topic.log, name, ttl, pointers, max_bytes)
        self._tell()
        return generation.topic

    def change_default(self, ttl: int) -> None:
        """Do what a start with another ``--topic-ttl`` does."""
        for generation in self._names.values():
            if generation.topic.ttl is None:
                self._keep_expired(generation, self._ttl)
        self._ttl = ttl

    async def delete(self, name: TopicName) -> None:
        self._work()
        generation = self._of_name(name)
        del self._names[name]
        generation.deleted = True
        head = generation.head
        self._ended_stamp = max(self._ended_stamp, stamp(head.ms, head.sequence) + 1)
        self._tell()

    async def find(self, name: TopicName) -> Topic | None:
        self._work()
        generation = self._names.get(name)
        return generation.topic if generation else None

    async def in_namespace(
        self, namespace: str, after: str = "", limit: int | None = None
    ) -> list[Topic]:
        self._work()
        return [
            generation.topic
            for name, generation in sorted(self._names.items())
            if name.namespace == namespace and name.topic > after
        ][:limit]

    async def namespaces(self, after: str, limit: int) -> list[Namespace]:
        self._work()
        counts = Counter(name.namespace for name in self._names)
        return [Namespace(*each) for each in sorted(counts.items()) if each[0] > after][:limit]

    async def current(self, logs: Collection[int]) -> dict[int, Topic]:
        self._work()
        known = {log: self._logs[log] for log in logs if log in self._logs}
        return {log: each.topic for log, each in known.items() if not each.deleted}

    async def default_ttl(self) -> int:
        self._work()
        return self._ttl

    def log(self, topic: Topic) -> TopicLog:
        return _MemoryLog(self, topic.log)

    async def append(self, batches: Sequence[MessageBatch]) -> list[Outcome]:
        self.arrived.set()
        await self.gate.wait()
        self._work()
        outcomes = [self._append(batch) for batch in batches]
        self.appends.append(list(batches))
        return outcomes

    async def news(self, heads: Mapping[int, int], seconds: float) -> News:
        try:
            async with asyncio.timeout(seconds):
                while not (logs := self._grown(heads)) and self._told == self._version:
                    self._work()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            logs = []
        self._told = self._version
        return News(logs, self._version)

    async def stats(self) -> TopicStats:
        self._work()
        return TopicStats(len(self._names))

    async def shrink(self) -> int:
        """Keep all messages: bounds in bytes are the stores' own."""
        self._work()
        return 0

    async def sweep(self) -> int:
        self._work()
        count = 0
        for log, generation in self._logs.items():
            self._void_aborted(log, generation)
            front = generation.head if generation.deleted else self.front(generation)
            gone = front.offset - generation.swept.offset
            del generation.entries[:gone]
            generation.swept = front
            count += gone
        return count

    def front(self, generation: Generation) -> Mark:
        """Return the newest entry that is gone."""
        floor = max(generation.floor_ms, self.clock() - self._seconds(generation.topic) * 1000)
        return next(
            (mark(entry) for entry in reversed(generation.entries) if entry.ms < floor),
            generation.swept,
        )

    def generation(self, log: int) -> Generation:
        """Return an existing generation. Raises TopicNotFoundError."""
        self._work()
        generation = self._logs[log]
        if generation.deleted:
            raise TopicNotFoundError(f"the topic {generation.topic.name} was deleted")
        return generation

    def exists(self, log: int) -> bool:
        return not self._logs[log].deleted

    def place(
        self,
        log: int,
        event: EntryKind,
        messages: Sequence[Message],
        pointer: int | None = None,
    ) -> list[TopicEntry]:
        """Append entries of one kind. Raises TopicNotFoundError."""
        generation = self.generation(log)
        head = generation.head
        first = max(stamp(self.clock(), 0), stamp(head.ms, head.sequence) + 1)
        added = []
        for k, (data, ttl) in enumerate(messages):
            ms, sequence = unstamp(first + k)
            expires = ms + ttl * 1000 if ttl else 0
            offset = head.offset + k + 1
            added.append(TopicEntry(offset, ms, event, data.decode(), sequence, expires, pointer))
        generation.entries += added
        self._changed.set()
        return added

    def void(self, log: int, entries: Sequence[TopicEntry]) -> None:
        """Void entries in place, and remove the stored messages that they publish."""
        generation = self._logs[log]
        for entry in entries:
            if entry.event == EntryKind.PUBLISH and entry.pointer is not None:
                marker = decode_marker(entry.data)
                stored = self.stored[log, entry.pointer]
                for number in [*stored]:
                    if marker.after < number <= marker.last:
                        del stored[number]
            generation.entries[entry.offset - generation.swept.offset - 1] = _void(entry)

    def _void_aborted(self, log: int, generation: Generation) -> None:
        aborted = [each for each in generation.entries if self._is_aborted(log, each)]
        for pointer in dict.fromkeys(each.pointer for each in aborted):
            found = [each for each in aborted if each.pointer == pointer]
            self.void(log, found)
            if not generation.deleted:
                runs = runs_of([each.offset for each in found])
                data = encode_voided(Voided(str(pointer), runs))
                self.place(log, EntryKind.VOID, [Message(data.encode())])

    def _is_aborted(self, log: int, entry: TopicEntry) -> bool:
        if entry.pointer is None:
            return False
        return self.decided.get((log, entry.pointer)) == Decision.ABORTED

    def _append(self, batch: MessageBatch) -> Outcome:
        if batch.fence is not None and not self.leases.holds(batch.fence):
            return Refused.STALE
        if self._logs[batch.log].deleted:
            return Refused.DELETED
        added = self.place(batch.log, EntryKind.MESSAGE, batch.messages)
        return Placed(mark(added[0]), mark(added[-1]))

    def _seconds(self, topic: Topic) -> int:
        return self._ttl if topic.ttl is None else topic.ttl

    def _keep_expired(self, generation: Generation, ttl: int) -> None:
        generation.floor_ms = max(generation.floor_ms, self.clock() - ttl * 1000)

    def _grown(self, heads: Mapping[int, int]) -> list[int]:
        return [
            log
            for log, offset in heads.items()
            if self._logs[log].deleted or self._logs[log].head.offset > offset
        ]

    def _of_name(self, name: TopicName) -> Generation:
        if name not in self._names:
            raise TopicNotFoundError(f"there is no topic {name}")
        return self._names[name]

    def _tell(self) -> None:
        self._version += 1
        self._changed.set()

    def _work(self) -> None:
        if self.trouble is not None:
            raise self.trouble


class _MemoryLog:
    def __init__(self, topics: MemoryTopics, log: int) -> None:
        self._topics = topics
        self._log = log

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        self._topics.reads += 1
        generation = self._topics.generation(self._log)
        if at_ms is not None:
            _compare(generation, after, at_ms)
        now = self._topics.clock()
        front = self._topics.front(generation).offset
        begin = max(after, front) - generation.swept.offset
        entries: list[TopicEntry] = []
        size = 0
        for entry in generation.entries[begin : begin + limit]:
            size += len(entry.data)
            if entries and size > READ_BYTES:
                break
            expired = entry.expires_ms and now > entry.expires_ms
            entries.append(_void(entry) if expired else entry)
        return entries

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        generation = self._topics.generation(self._log)
        front = self._topics.front(generation)
        count = bisect_right(generation.entries, (ms, sequence), key=_place)
        at = mark(generation.entries[count - 1]) if count else front
        purged = self._topics.purged.get(self._log, 0)
        now_ms = self._topics.clock()
        return TopicBounds(front, generation.head, max(front, at), now_ms, purged=purged)

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        self._topics.generation(self._log)
        records: list[TopicRecord] = []
        size = 0
        for number, data, ttl_ms in self._contents(entry, after):
            expires = entry.ms + ttl_ms if ttl_ms else 0
            kept = "" if 0 < expires < self._topics.clock() else data
            size += len(kept)
            if records and (len(records) == limit or size > READ_BYTES):
                break
            records.append(TopicRecord(number, kept, expires))
        return records

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        self._topics.generation(self._log)
        decided = self._topics.decided
        return {each: decided[self._log, each] for each in pointers if (self._log, each) in decided}

    def _contents(self, entry: TopicEntry, after: int) -> Iterator[tuple[int, str, int]]:
        """Return the number, data and time to live in ms of an entry's records past a number."""
        marker = decode_marker(entry.data)
        if entry.pointer is None:
            written = self._topics.records.get((self._log, marker.txn), {})
            for lsn in range(after + 1, marker.last + 1):
                if each := written.get(lsn):
                    yield lsn, each.data, each.expires_ms and each.expires_ms - each.ms
            return
        stored = self._topics.stored.get((self._log, entry.pointer), {})
        for number, (data, ttl) in stored.items():
            if max(after, marker.after) < number <= marker.last:
                yield number, data.decode(), 1000 * (ttl or 0)


def _void(entry: TopicEntry) -> TopicEntry:
    return entry._replace(event=EntryKind.VOID, data="", pointer=None)


def _place(entry: TopicEntry) -> tuple[int, int]:
    return entry.ms, entry.sequence


def _compare(generation: Generation, offset: int, ms: int) -> None:
    if offset > generation.head.offset:
        raise LogReplacedError(f"the log of {generation.topic.name} ends before {offset}")
    place = offset - generation.swept.offset - 1
    if place >= 0 and generation.entries[place].ms != ms:
        raise LogReplacedError(f"the log of {generation.topic.name} has another entry {offset}")

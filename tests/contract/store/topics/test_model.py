"""Random calls on the topics of every store, against lists in memory."""

import asyncio

from hypothesis import given
from hypothesis import strategies as some

from oplogd.errors import TopicExistsError, TopicNotFoundError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import stamp, unstamp
from oplogd.store import Store
from oplogd.store.topics import (
    EntryKind,
    MessageBatch,
    Placed,
    Refused,
    Topic,
    TopicEntry,
)
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kit, Kits
from tests.kits.store.messages import entries_of, mark, message, named

DEFAULT = 20
NAMES = ["a", "b"]
TTLS = some.sampled_from([None, 1, 5, 30])

Create = some.tuples(some.just("create"), some.sampled_from(NAMES), TTLS)
Change = some.tuples(some.just("change"), some.sampled_from(NAMES), TTLS)
Delete = some.tuples(some.just("delete"), some.sampled_from(NAMES))
Batch = some.tuples(some.sampled_from(NAMES), some.lists(TTLS, min_size=1, max_size=4))
Append = some.tuples(some.just("append"), some.lists(Batch, min_size=1, max_size=4))
Clock = some.tuples(some.just("clock"), some.sampled_from([-3000, -1, 1, 999, 1001, 4000, 9000]))
Sweep = some.tuples(some.just("sweep"))
Calls = some.lists(
    some.one_of(Create, Change, Delete, Append, Append, Clock, Clock, Sweep),
    min_size=5,
    max_size=40,
)


class _Log:
    """One generation of a topic as lists. Entries up to ``floor`` are gone, whatever the clock."""

    def __init__(self, topic: Topic, stamp_: int) -> None:
        self.topic = topic
        self.marks = [Mark(0, *unstamp(stamp_))]
        self.data: list[tuple[Message, int]] = []
        self.floor = 0
        # Messages past their own time to live at a sweep: it may have made them void for ever.
        self.swept: set[int] = set()

    @property
    def head(self) -> int:
        return stamp(self.marks[-1].ms, self.marks[-1].sequence)

    @property
    def ttl_ms(self) -> int:
        return 1000 * (DEFAULT if self.topic.ttl is None else self.topic.ttl)

    def append(self, made: Message, number: int) -> None:
        ms, sequence = unstamp(number)
        self.marks.append(Mark(len(self.marks), ms, sequence))
        self.data.append((made, ms + made.ttl * 1000 if made.ttl else 0))

    def front(self, now: int) -> Mark:
        oldest = now - self.ttl_ms
        gone = [each for each in self.marks[1:] if each.ms < oldest or each.offset <= self.floor]
        return gone[-1] if gone else self.marks[0]

    def sweep(self, now: int) -> None:
        self.floor = self.front(now).offset
        self.swept |= {offset for offset, (_, end) in enumerate(self.data, 1) if end and end < now}

    def check(self, entries: list[TopicEntry], now: int) -> None:
        """Assert that these are all entries that can be read."""
        first = self.front(now).offset
        assert [mark(entry) for entry in entries] == self.marks[first + 1 :]
        for entry, (made, end) in zip(entries, self.data[first:], strict=True):
            if (end and end < now) or (entry.offset in self.swept and not entry.data):
                assert (entry.event, entry.data) == (EntryKind.VOID, "")
            else:
                assert (entry.event, entry.data) == (EntryKind.MESSAGE, made.data.decode())
                assert entry.expires_ms == end


class _Model:
    """Calls the topics of a store, and compares them with lists."""

    def __init__(self, kit: Kit, store: Store) -> None:
        self.kit, self.topics, self.time = kit, store.topics, store.clock
        self.present: dict[str, _Log] = {}
        self.deleted: dict[str, _Log] = {}
        self.ended = 0
        self.number = 0

    async def call(self, name: str, *arguments: object) -> None:
        await getattr(self, name)(*arguments)

    async def create(self, name: str, ttl: int | None) -> None:
        try:
            topic = await self.topics.create(named(name), ttl)
        except TopicExistsError:
            assert name in self.present
            return
        assert name not in self.present
        now = stamp(self.time.now_ms(), 0)
        self.present[name] = _Log(topic, max(self.ended, now))

    async def change(self, name: str, ttl: int | None) -> None:
        try:
            changed = await self.topics.change(named(name), ttl)
        except TopicNotFoundError:
            assert name not in self.present
            return
        log = self.present[name]
        log.floor = log.front(self.time.removal_ms()).offset
        log.topic = changed

    async def delete(self, name: str) -> None:
        try:
            await self.topics.delete(named(name))
        except TopicNotFoundError:
            assert name not in self.present
            return
        log = self.deleted[name] = self.present.pop(name)
        self.ended = max(self.ended, log.head + 1)

    async def append(self, batches: list[tuple[str, list[int | None]]]) -> None:
        logs = [self.present.get(name) or self.deleted.get(name) for name, _ in batches]
        made = []
        for _, ttls in batches:
            made.append([message(self.number + k, ttl) for k, ttl in enumerate(ttls)])
            self.number += len(ttls)
        sent = [(log, batch) for log, batch in zip(logs, made, strict=True) if log]
        outcomes = await self.topics.append(
            [MessageBatch(log.topic.log, batch) for log, batch in sent]
        )
        for (log, batch), outcome in zip(sent, outcomes, strict=True):
            if log not in self.present.values():
                assert outcome is Refused.DELETED
                continue
            for each in batch:
                log.append(each, max(stamp(self.time.now_ms(), 0), log.head + 1))
            assert outcome == Placed(log.marks[-len(batch)], log.marks[-1])

    async def clock(self, ms: int) -> None:
        if ms < 0:  # a clock that is set back may show again what no sweep has removed
            await self.sweep()
        self.kit.clock.ms += ms
        self.time.now_ms()  # each step is judged by itself

    async def sweep(self) -> None:
        await self.topics.sweep()
        for log in self.present.values():
            log.sweep(self.time.removal_ms())

    async def check(self) -> None:
        now = self.time.now_ms()
        for name in NAMES:
            log = self.present.get(name)
            assert await self.topics.find(named(name)) == (log.topic if log else None)
        for log in self.present.values():
            handle = self.topics.log(log.topic)
            log.check(await entries_of(handle, limit=3), now)
            front = log.front(now)
            bounds = await handle.locate()
            assert (bounds.front, bounds.head) == (front, log.marks[-1])
            for each in log.marks[-4:]:
                at = max(each, front)
                assert (await handle.locate(each.ms, each.sequence)).at == at


# Few long examples: a new store costs as much as three calls.
@given(Calls)
@examples(0.16)
def test_topics_behave_like_lists(topic_kits: Kits, calls: list[tuple[object, ...]]) -> None:
    async def go() -> None:
        async with topic_kits() as kit:
            model = _Model(kit, await kit.open(topic_ttl=DEFAULT))
            for name, *arguments in calls:
                await model.call(str(name), *arguments)
                await model.check()

    asyncio.run(go())

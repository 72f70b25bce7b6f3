"""Polls of all readers over random topics with pointers, compared with a plain list.

The reference lists the entries with the messages that each of them has, and knows nothing of pages,
markers or numbers of records. The requests and answers are JSON, as over HTTP.
"""

import asyncio
import json
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import MessageError, TransactionConflictError
from oplogd.model.message import Message
from oplogd.model.message_id import MessageId, end_id, record_id, stamp, unstamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision
from oplogd.model.shard import Shard
from oplogd.model.transaction import MAX_TIMEOUT_MS, Record
from oplogd.store.topics import MessageBatch, Topic
from oplogd.store.transactions import NewTransaction, RecordLimits
from oplogd.stream.feeds import Feeds
from oplogd.stream.topic_follower import TopicFollower
from oplogd.topics import gathering
from oplogd.topics.codec.json_codec import JsonCodec
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.properties import examples
from tests.kits.models.shards import shards
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.kits.topics.memory_transactions import MemoryTransactions
from tests.kits.topics.messages import decode_poll, of_json
from tests.unit.topics.pointer_polls import FIRST_WRITE_MS, LAST, TTL, Reader, Reference

NAME = TopicName("ns", "t")
LIMIT = 6
CODEC = JsonCodec()
POINTERS = range(1, 6)


class Plain(NamedTuple):
    written: list[tuple[int, int | None]]


class Commit(NamedTuple):
    """A transaction of our own with these records."""

    written: list[tuple[int, int | None]]


class Direct(NamedTuple):
    pointer: int
    written: list[tuple[int, int | None]]


class Store(NamedTuple):
    pointer: int
    written: list[tuple[int, int | None]]


class PublishStored(NamedTuple):
    pointer: int


class Rollback(NamedTuple):
    """``choices``: entries, of any pointer; None: everything under the pointer."""

    pointer: int
    choices: list[int] | None


class Decide(NamedTuple):
    pointer: int
    decision: Decision


class Pass(NamedTuple):
    ms: int


class Sweep(NamedTuple):
    pass


Step = Plain | Commit | Direct | Store | PublishStored | Rollback | Decide | Pass | Sweep


class Poll(NamedTuple):
    """``kind``: see ``World.start_of``. ``shift``: added to the chosen id or time."""

    kind: str
    choice: int
    shift: int
    inclusive: bool
    limit: int | None
    shard: Shard | None = None


choices = st.integers(0, 60)
pointers = st.sampled_from(POINTERS)
# Size of a payload, and time to live. A draw of one of all pairs is faster than two draws.
SIZES = [*range(1, 21), *range(1, 21), *[400_000] * 20]
written = st.lists(
    st.sampled_from([*product(SIZES, [None, None, None, 1, 2])]), min_size=1, max_size=4
)
stored = st.builds(
    lambda pointer, given: (Store(pointer, given), PublishStored(pointer)), pointers, written
)
steps: st.SearchStrategy[tuple[Step, ...]] = st.one_of(
    st.tuples(st.builds(Plain, written)),
    st.tuples(st.builds(Commit, written)),
    st.tuples(st.builds(Direct, pointers, written)),
    st.tuples(st.builds(Direct, pointers, written)),
    st.tuples(st.builds(Store, pointers, written)),
    stored,
    stored,
    st.tuples(st.builds(Rollback, pointers, st.none() | st.lists(choices, max_size=3))),
    st.sampled_from([(Decide(*each),) for each in product(POINTERS, Decision)]),
    st.sampled_from([(Pass(ms),) for ms in (0, 1, 500, 1001, 2500)]),
    st.just((Sweep(),)),
)
LIMITS = range(1, LIMIT + 3)
polls = st.builds(
    lambda kind, choice, rest, shard: Poll(kind, choice, *rest)._replace(shard=shard),
    st.sampled_from(["oldest", "entry", "end", "ms", "part", "message", "message", "message"]),
    choices,
    st.sampled_from([*product([0, 0, 0, -1, 1], [False, True], [*[None] * len(LIMITS), *LIMITS])]),
    shards,
)
lists = st.lists(pointers | pointers.map(str), max_size=3)
snapshots = st.builds(
    lambda read, write, progress, invalid: {
        "readPointer": read, "writePointer": write, "inProgress": progress, "invalid": invalid
    },
    st.integers(0, 6), st.none() | pointers, lists, lists,
)  # fmt: skip


def payload(size: int, ttl: int | None) -> str:
    """A large message without a time to live of its own, which would make an answer short."""
    return "x" * (size if ttl is None else min(size, 20))


def message(text: str, ttl: int | None) -> Message:
    return of_json({"payload": text} if ttl is None else {"payload": text, "ttl": ttl})


class World:
    """A poller over topics in memory, beside the reference."""

    def __init__(self, *, from_memory: bool) -> None:
        self.clock = VirtualClock()
        self.topics = MemoryTopics(self.clock.now_ms)
        self.transactions = MemoryTransactions(self.topics)
        self.pointers = MemoryPointers(self.topics)
        self.feeds = Feeds(
            self.topics,
            lambda _: None,
            max_bytes=2_000_000,
            clock=self.clock.clock,
        )
        self.follower = TopicFollower(self.topics, self.feeds)
        self.from_memory = from_memory
        memory = self.feeds if from_memory else None
        self.poller = Poller(self.topics, KnownTopics(self.topics), TopicCounters(), LIMIT, memory)
        self.reference = Reference(stamp(self.clock.ms, 0))
        self.topic: Topic

    async def follow(self) -> None:
        """Bring all new messages into memory, if the topic has a feed."""
        head = self.topics.generation(self.topic.log).head
        self.feeds.acknowledged(self.topic.log, head.offset)
        end = end_id(head.ms, head.sequence)
        while self.from_memory and self.feeds.peek(self.topic, end, 1, 1) is None:
            await self.follower.advance(0)

    async def play(self, step: Step) -> None:
        log, now, reference = self.topic.log, self.clock.ms, self.reference
        match step:
            case Plain(given):
                parts = [((0, 0), payload(*each), each[1]) for each in given]
                await self.topics.append(
                    [MessageBatch(log, [message(*each[1:]) for each in parts])]
                )
                for part in parts:
                    reference.add(now, "message", [part])
            case Commit(given):
                await self.commit([(payload(*each), each[1]) for each in given])
            case Direct(pointer, given):
                parts = [((0, 0), payload(*each), each[1]) for each in given]
                messages = [message(*each[1:]) for each in parts]
                refused = pointer in reference.decisions or reference.waiting.get(pointer)
                try:
                    await self.pointers.publish(log, pointer, messages, 900_000)
                    assert not refused
                except (TransactionConflictError, MessageError):
                    assert refused
                    return
                for part in parts:
                    reference.add(now, "direct", [part], pointer)
            case Store(pointer, given):
                await self.store(pointer, [(payload(*each), each[1]) for each in given])
            case PublishStored(pointer):
                waiting = reference.waiting.pop(pointer, None)
                if waiting is None:
                    return
                await self.pointers.publish_stored(log, pointer, 900_000)
                numbers = sorted(self.topics.stored[log, pointer])[-len(waiting) :]
                tails = [unstamp(each) for each in numbers]
                tails[-1] = tails[-1][0], tails[-1][1] | LAST
                parts = [
                    (tail, text, ttl) for tail, (_, text, ttl) in zip(tails, waiting, strict=True)
                ]
                reference.add(now, "publish", parts, pointer)
            case Rollback(pointer, picked):
                await self.rollback(pointer, picked)
            case Decide(pointer, decision):
                if reference.decisions.setdefault(pointer, decision) == decision:
                    known = (log, pointer) in self.topics.decided
                    await self.pointers.decide([log], pointer, decision)
                    reference.waiting.pop(pointer, None)
                    if not known:
                        reference.add(now, "marker", [])
            case Pass(ms):
                self.clock.ms += ms
            case Sweep():
                heads = self.topics.generation(log).head.offset
                await self.topics.sweep()
                for entry in reference.entries:
                    if entry.pointer and reference.decisions.get(entry.pointer) == Decision.ABORTED:
                        reference.void(entry)
                for _ in range(self.topics.generation(log).head.offset - heads):
                    reference.add(now, "marker", [])

    async def commit(self, given: list[tuple[str, int | None]]) -> None:
        log, reference = self.topic.log, self.reference
        new = NewTransaction(log, None, log, MAX_TIMEOUT_MS)
        id_ = (await self.transactions.begin(new)).id
        reference.add(self.clock.ms, "marker", [])
        records = [Record(lsn, log, message(*each), str(lsn)) for lsn, each in enumerate(given)]
        await self.transactions.write(id_, records, RecordLimits())
        for each in given:
            reference.add(self.clock.ms, "deferred", [((0, 0), *each)])
        await self.transactions.commit(id_, len(given))
        last = len(given) - 1
        ids = [record_id(0, 0, lsn, is_last=lsn == last) for lsn in range(len(given))]
        parts = [
            ((id_.write_ms, id_.payload_sequence), *each)
            for id_, each in zip(ids, given, strict=True)
        ]
        reference.add(self.clock.ms, "commit", parts)

    async def store(self, pointer: int, given: list[tuple[str, int | None]]) -> None:
        messages = [message(*each) for each in given]
        try:
            await self.pointers.store(self.topic.log, pointer, messages, 900_000, RecordLimits())
        except TransactionConflictError:
            assert pointer in self.reference.decisions
            return
        waiting = self.reference.waiting.setdefault(pointer, [])
        waiting += [(each, *pair) for each, pair in zip(messages, given, strict=True)]

    async def rollback(self, pointer: int, picked: list[int] | None) -> None:
        entries = self.reference.entries
        chosen = entries
        if picked is not None:
            chosen = [entries[each % len(entries)] for each in picked] if entries else []
        stamps = None if picked is None else [each.stamp for each in chosen]
        try:
            rolled = await self.pointers.rollback(self.topic.log, pointer, stamps)
        except TransactionConflictError:
            assert self.reference.decisions[pointer] == Decision.COMMITTED
            return
        if self.topics.decided.get((self.topic.log, pointer)) is Decision.ABORTED:
            # A rollback after the time-out aborts. The next sweep removes the rest.
            self.reference.decisions[pointer] = Decision.ABORTED
        for entry in chosen:
            if entry.pointer == pointer:
                self.reference.void(entry)
        if picked is None:
            self.reference.waiting.pop(pointer, None)
        if rolled is not None:
            self.reference.add(self.clock.ms, "marker", [])

    async def poll(self, step: Poll, reader: Reader) -> None:
        start = self.start_of(step)
        members = {key: each for key, each in reader._asdict().items() if each is not None}
        body = {"startFrom": start, "inclusive": step.inclusive, "limit": step.limit, **members}
        request, shard = decode_poll(CODEC, json.dumps(body).encode()), step.shard
        answer = await self.poller.poll(NAME, request, shard)
        got = json.loads(CODEC.encode(answer.messages)), answer.gap, answer.held_by
        limit, now = min(step.limit or LIMIT, LIMIT), self.clock.ms
        poll = self.reference.poll
        assert got == poll(now, start, step.inclusive, limit, reader, shard)
        if answer.reached is not None:
            rest = poll(now, answer.reached, False, 10**6, reader, shard)[0]
            whole = poll(now, start, step.inclusive, 10**6, reader, shard)[0]
            assert (got[0] + rest)[: len(whole)] == whole, "it continues elsewhere"
        assert (answer.reached is None) or shard
        assert shard is None or answer.reached is not None or not answer.messages

    def start_of(self, step: Poll) -> str | int | None:
        """Return a start at or near an entry of any kind, or at a message in it."""
        entries = self.reference.entries
        if step.kind == "oldest" or not entries:
            return None
        entry = entries[step.choice % len(entries)]
        ms, sequence = unstamp(entry.stamp + step.shift)
        match step.kind:
            case "ms":
                return ms
            case "end":
                return str(end_id(ms, sequence))
            case "part":  # any last ten bytes
                ms, sequence = unstamp(entry.stamp)
                return str(MessageId(ms, sequence, step.choice % 4, step.choice % 3))
            case "message" if entry.parts:
                write_ms, number = entry.parts[step.choice % len(entry.parts)].tail
                if write_ms >= FIRST_WRITE_MS and not number & LAST:
                    write_ms, number = unstamp(stamp(write_ms, number) + step.shift)
                    number &= LAST - 1
                return str(MessageId(*unstamp(entry.stamp), write_ms, number))
        return str(MessageId(ms, sequence))


@pytest.mark.thorough
@pytest.mark.parametrize(("page", "from_memory"), [(LIMIT, False), (1000, False), (1000, True)])
async def test_all_readers_get_what_the_list_has(
    page: int, from_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small page also makes pollers remember short rows of entries that have nothing."""
    monkeypatch.setattr(gathering, "PASSING_ENTRIES", page)

    @examples(0.3 if from_memory else 0.7)
    @given(st.lists(st.tuples(steps, polls, snapshots), min_size=10, max_size=30))
    def compare(played: list[tuple[tuple[Step, ...], Poll, dict[str, Any]]]) -> None:
        asyncio.run(playing(played, from_memory=from_memory))

    await asyncio.to_thread(compare)


async def playing(
    played: list[tuple[tuple[Step, ...], Poll, dict[str, Any]]], *, from_memory: bool
) -> None:
    """Play the steps and poll after each. In the end, a poll reads from memory or does not."""
    world = World(from_memory=from_memory)
    world.topic = await world.topics.create(NAME, TTL)
    readers = Reader("read_uncommitted"), Reader()
    oldest = Poll("oldest", 0, 0, True, None)
    try:
        for _ in range(2):  # the second poll creates a feed
            await world.poll(oldest, readers[0])
        await world.follow()
        for played_steps, poll, snapshot in played:
            for step in played_steps:
                await world.play(step)
            await world.follow()
            for reader in (*readers, Reader(None, snapshot)):
                await world.poll(poll, reader)
        await world.play(Plain([(1, None)]))
        await world.follow()
        for reader in readers:
            reads = world.topics.reads
            await world.poll(Poll("end", len(world.reference.entries) - 1, 0, False, None), reader)
            assert (world.topics.reads == reads) == from_memory
    finally:
        await world.follower.close()

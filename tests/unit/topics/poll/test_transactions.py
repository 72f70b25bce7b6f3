"""Polls of both isolations over random transactions, compared with plain lists.

The reference knows nothing of entries, pages or markers: it lists the messages as each kind of
reader sees them. The requests and answers are JSON, as over HTTP.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.message_id import MessageId, end_id, parse_message_id, record_id, stamp, unstamp
from oplogd.model.names import TopicName
from oplogd.model.transaction import MAX_TIMEOUT_MS, Isolation, Record
from oplogd.store.topics import MessageBatch, Topic
from oplogd.store.transactions import NewTransaction, RecordLimits
from oplogd.topics.codec.json_codec import JsonCodec
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from tests.kits.models.properties import examples
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions
from tests.kits.topics.messages import decode_poll, of_json

NAME, OTHER = TopicName("ns", "t"), TopicName("ns", "other")
START_MS = 1_700_000_000_000
TTL = 3
LIMIT = 6
ANSWER_BYTES = 1_000_000
CODEC = JsonCodec()


class Publish(NamedTuple):
    sizes: list[int]
    ttl: int | None


class Write(NamedTuple):
    """``sizes``: of the payloads; None: a record of the other topic. ``choice``: a transaction."""

    choice: int
    sizes: list[int | None]
    ttl: int | None


class Commit(NamedTuple):
    """``without``: the last records, which the commit leaves out."""

    choice: int
    without: int


class Abort(NamedTuple):
    choice: int


class Pass(NamedTuple):
    ms: int


class Change(NamedTuple):
    ttl: int


class Sweep(NamedTuple):
    pass


class Poll(NamedTuple):
    """``kind``: see ``World.start_of``. ``shift``: added to the chosen id or time."""

    kind: str
    choice: int
    shift: int
    inclusive: bool
    limit: int | None


Step = Publish | Write | Commit | Abort | Pass | Change | Sweep

choices = st.integers(0, 60)
sizes = st.one_of(st.integers(1, 20), st.just(400_000))
ttls = st.sampled_from([None, None, None, 1, 2])
writes = st.builds(Write, choices, st.lists(st.one_of(sizes, st.none()), max_size=5), ttls)
steps: st.SearchStrategy[tuple[Step, ...]] = st.one_of(
    st.tuples(st.builds(Publish, st.lists(sizes, min_size=1, max_size=3), ttls)),
    st.tuples(writes),
    st.tuples(writes, st.builds(Commit, choices, st.sampled_from([0, 0, 0, 1]))),
    st.tuples(st.builds(Abort, choices)),
    st.tuples(st.builds(Pass, st.sampled_from([0, 1, 500, 1001, 2500]))),
    st.tuples(st.one_of(st.builds(Change, st.integers(1, 4)), st.builds(Sweep))),
)
polls = st.builds(
    Poll,
    st.sampled_from(["oldest", "id", "record", "end", "ms", "part"]),
    choices,
    st.sampled_from([0, 0, 0, -1, 1]),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, LIMIT + 2)),
)


class Seen(NamedTuple):
    """A message as a reader sees it."""

    id: MessageId
    payload: str
    expires_ms: int

    @property
    def stamp(self) -> int:
        return stamp(self.id.ms, self.id.sequence)

    @property
    def size(self) -> int:
        return len(f'{{"payload":"{self.payload}"}}')


class Written(NamedTuple):
    payload: str
    ttl: int | None


@dataclass
class Reference:
    """``stamps``: of all entries. ``seen``: the messages in the order of each kind of reader."""

    begin: int
    ttl: int = TTL
    floor_ms: int = 0
    stamps: list[int] = field(default_factory=list)
    seen: dict[Isolation, list[Seen]] = field(default_factory=lambda: {i: [] for i in Isolation})

    def entry(self, now: int) -> tuple[int, int]:
        head = self.stamps[-1] if self.stamps else self.begin
        self.stamps.append(max(stamp(now, 0), head + 1))
        return unstamp(self.stamps[-1])

    def message(self, now: int, message: Written, *readers: Isolation) -> None:
        id_ = MessageId(*self.entry(now))
        for isolation in readers:
            self.seen[isolation].append(Seen(id_, message.payload, _expiry(id_.ms, message.ttl)))

    def commit(self, now: int, records: dict[int, Written]) -> None:
        ms, sequence = self.entry(now)
        for lsn, (payload, ttl) in sorted(records.items()):
            id_ = record_id(ms, sequence, lsn, is_last=lsn == max(records))
            self.seen[Isolation.READ_COMMITTED].append(Seen(id_, payload, _expiry(ms, ttl)))

    def change(self, now: int, ttl: int) -> None:
        self.floor_ms = max(self.floor_ms, now - self.ttl * 1000)
        self.ttl = ttl

    def poll(
        self, now: int, start: str | int | None, inclusive: bool, limit: int, isolation: Isolation
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages of the answer, and whether it announces a gap."""
        floor = stamp(max(self.floor_ms, now - self.ttl * 1000, 0), 0)
        gone = [self.begin, *(each for each in self.stamps if each < floor)]
        readable = [
            each
            for each in self.seen[isolation]
            if each.stamp >= floor and not 0 < each.expires_ms < now
        ]
        gap = False
        if isinstance(start, int):
            first = stamp(start if inclusive else start + 1, 0)
            readable = [each for each in readable if each.stamp >= first]
            gap = any(each >= first for each in gone[1:])
        elif start is not None:
            id_ = parse_message_id(start)
            at = stamp(id_.ms, id_.sequence)
            committed = isolation is Isolation.READ_COMMITTED
            readable = [each for each in readable if _follows(each, id_, inclusive)]
            gap = any(each > at for each in gone) or (committed and id_.is_inside and at in gone)
        return [
            {"id": str(each.id), "payload": each.payload} for each in _cut(readable, limit)
        ], gap


def _follows(seen: Seen, start: MessageId, inclusive: bool) -> bool:
    if seen.id[:2] != start[:2]:
        return seen.id > start
    if not seen.id.write_ms:  # it is no record
        return inclusive and seen.id == start
    lsn = seen.id.write_ms - 1
    if inclusive and start.write_ms:
        return lsn >= start.write_ms - 1
    return start.records_after is not None and lsn > start.records_after


def _cut(readable: list[Seen], limit: int) -> Iterator[Seen]:
    size = 0
    for each in readable[:limit]:
        size += each.size
        if size > ANSWER_BYTES and size > each.size:
            return
        yield each


def _expiry(ms: int, ttl: int | None) -> int:
    return ms + ttl * 1000 if ttl else 0


@dataclass
class Txn:
    id: int
    of_topic: bool
    records: list[Written | None] = field(default_factory=list)

    @property
    def touches(self) -> bool:
        return self.of_topic or any(self.records)


class World:
    """A poller over topics and transactions in memory, beside the reference."""

    def __init__(self) -> None:
        self.now = START_MS
        self.topics = MemoryTopics(lambda: self.now)
        self.transactions = MemoryTransactions(self.topics)
        self.poller = Poller(self.topics, KnownTopics(self.topics), TopicCounters(), LIMIT)
        self.reference = Reference(stamp(self.now, 0))
        # Open transactions: of a group, and of the topic.
        self.open: list[Txn] = []
        self.logs: dict[TopicName, Topic] = {}

    async def start(self) -> None:
        self.logs = {
            name: await self.topics.create(name, TTL)
            for name in (NAME, OTHER, TopicName("system", "_txn.default"))
        }
        for of_topic in (False, True):
            await self.begin(of_topic)

    def log(self, name: TopicName) -> int:
        return self.logs[name].log

    async def play(self, step: Step) -> None:
        match step:
            case Publish(sizes, ttl):
                written = [_written(size, ttl) for size in sizes]
                batch = MessageBatch(self.log(NAME), [_message(each) for each in written])
                await self.topics.append([batch])
                for each in written:
                    self.reference.message(self.now, each, *Isolation)
            case Write(choice, sizes, ttl):
                given = [None if size is None else _written(size, ttl) for size in sizes]
                await self.write(self.open[choice % len(self.open)], given)
            case Commit(choice, without):
                await self.commit(await self.next(choice), without)
            case Abort(choice):
                txn = await self.next(choice)
                await self.transactions.abort(txn.id)
                if txn.touches:
                    self.reference.entry(self.now)
            case Pass(ms):
                self.now += ms
            case Change(ttl):
                await self.topics.change(NAME, ttl)
                self.reference.change(self.now, ttl)
            case Sweep():
                await self.topics.sweep()

    async def next(self, choice: int) -> Txn:
        """Return an open transaction, and begin another one in its place."""
        txn = self.open.pop(choice % len(self.open))
        await self.begin(txn.of_topic)
        return txn

    async def begin(self, of_topic: bool) -> None:
        if of_topic:
            log = self.log(NAME)
            new = NewTransaction(log, None, log, MAX_TIMEOUT_MS)
            self.reference.entry(self.now)
        else:
            log = self.log(TopicName("system", "_txn.default"))
            new = NewTransaction(log, "default", None, MAX_TIMEOUT_MS)
        self.open.append(Txn((await self.transactions.begin(new)).id, of_topic))

    async def write(self, txn: Txn, given: list[Written | None]) -> None:
        if txn.of_topic:
            given = [each for each in given if each is not None]
        records = []
        for lsn, each in enumerate(given, len(txn.records)):
            log = self.log(OTHER if each is None else NAME)
            records.append(Record(lsn, log, _message(each or Written("", None)), str(lsn)))
            if each is not None:
                self.reference.message(self.now, each, Isolation.READ_UNCOMMITTED)
        await self.transactions.write(txn.id, records, RecordLimits())
        txn.records += given

    async def commit(self, txn: Txn, without: int) -> None:
        count = max(0, len(txn.records) - without)
        await self.transactions.commit(txn.id, count)
        if txn.touches:
            kept = {lsn: each for lsn, each in enumerate(txn.records[:count]) if each is not None}
            self.reference.commit(self.now, kept)

    async def poll(self, step: Poll, isolation: Isolation) -> None:
        start = self.start_of(step)
        body = {"startFrom": start, "inclusive": step.inclusive, "limit": step.limit}
        request = decode_poll(CODEC, json.dumps({**body, "isolation": isolation}).encode())
        answer = await self.poller.poll(NAME, request)
        got = json.loads(CODEC.encode(answer.messages)), answer.gap
        limit = min(step.limit or LIMIT, LIMIT)
        assert got == self.reference.poll(self.now, start, step.inclusive, limit, isolation)

    def start_of(self, step: Poll) -> str | int | None:
        """Return a start at or near an entry of any kind, or at a record."""
        stamps = self.reference.stamps
        if step.kind == "oldest" or not stamps:
            return None
        number = stamps[step.choice % len(stamps)] + step.shift
        ms, sequence = unstamp(number)
        match step.kind:
            case "ms":
                return ms
            case "end":
                return str(end_id(ms, sequence))
            case "part":  # any last ten bytes
                return str(MessageId(ms, sequence, step.choice % 4, step.choice % 3))
            case "record" if records := [
                each.id for each in self.reference.seen[Isolation.READ_COMMITTED] if each.id[2]
            ]:
                return str(records[step.choice % len(records)])
        return str(MessageId(ms, sequence))


def _written(size: int, ttl: int | None) -> Written:
    """Large ones do not expire: the bytes of expired ones may make a page and an answer short."""
    return Written("x" * (size if ttl is None else min(size, 20)), ttl)


def _message(written: Written) -> Any:
    members = {} if written.ttl is None else {"ttl": written.ttl}
    return of_json({"payload": written.payload, **members})


@examples(0.5)
@given(st.lists(st.tuples(steps, polls), min_size=10, max_size=30))
def test_readers_of_both_isolations_get_what_the_lists_have(
    played: list[tuple[tuple[Step, ...], Poll]],
) -> None:
    asyncio.run(playing(played))


async def playing(played: list[tuple[tuple[Step, ...], Poll]]) -> None:
    world = World()
    await world.start()
    for played_steps, poll in played:
        for step in played_steps:
            await world.play(step)
        for isolation in Isolation:
            await world.poll(poll, isolation)

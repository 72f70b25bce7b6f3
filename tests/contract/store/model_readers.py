"""Readers of one agent for the model-based test: of the store's entries, polls and streams."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message_id import MessageId, parse_message_id
from oplogd.model.pointer import Snapshot, by_decisions
from oplogd.model.transaction import Isolation, decode_marker
from oplogd.store.topics import Topic, TopicEntry, TopicLog, id_of_record
from oplogd.stream.consumer import StreamConsumer
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from tests.contract.store.stream_readers import Streams, read_messages
from tests.contract.store.transaction_reference import ALL, Named, Part, View
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.transacting import StoreHandle, payload_of

# Entries, or records, per read.
PAGE = 2


class Found(NamedTuple):
    id: MessageId
    payload: str


# The pointer at which the reader stopped, None if it did not.
Polled = tuple[list[Found], int | None]


async def read_entries(log: TopicLog, view: View, part: Part = ALL) -> Polled:
    """Return what a reader finds in the entries of a log, and the pointer at which it stops."""
    offset = 0
    if part.after is not None:
        at = (await log.locate(part.after.ms, part.after.sequence)).at
        is_inside = part.inclusive or part.after.records_after is not None
        offset = at.offset - (is_inside and (at.ms, at.sequence) == part.after[:2])
    found: list[Found] = []
    while page := await log.read(offset, PAGE):
        decisions = {}
        if pointers := {each.pointer for each in page if each.pointer is not None}:
            decisions = await log.decisions(pointers)
        judge = view.verdict if isinstance(view, Snapshot) else by_decisions(decisions)
        for entry in page:
            offset = entry.offset
            records = _records_from(entry, part)
            if records is None:
                continue
            verdict = Reading.PASS if entry.pointer is None else judge(entry.pointer)
            how = reading(entry.event, _isolation(view), verdict)
            if entry.event == EntryKind.LATE and isinstance(view, Snapshot):
                continue
            if how is Reading.HOLD:
                return found, entry.pointer
            if how is Reading.PASS:
                found.append(Found(MessageId(entry.ms, entry.sequence), payload_of(entry.data)))
            elif how is Reading.EXPAND:
                found += await _expand(log, entry, records)
            if len(found) >= part.limit:
                return found[: part.limit], None
    return found, None


def _isolation(view: View) -> Isolation:
    return Isolation.READ_COMMITTED if isinstance(view, Snapshot) else view


def _records_from(entry: TopicEntry, part: Part) -> int | None:
    """Return the number of the record after which the reader reads on, None if it has all."""
    after = part.after
    if after is None or (entry.ms, entry.sequence) > after[:2]:
        return -1
    number = after.records_after
    if entry.event not in (EntryKind.COMMIT, EntryKind.PUBLISH):
        return -1 if part.inclusive and after.write_ms == 0 else None
    if not part.inclusive:
        return number
    return decode_marker(entry.data).last - 1 if number is None else number - 1


async def _expand(log: TopicLog, entry: TopicEntry, after: int) -> list[Found]:
    marker = decode_marker(entry.data)
    found = []
    while page := await log.expand(entry, after, PAGE):
        assert len(page) <= PAGE
        for number, data, _ in page:
            assert number > after
            after = number
            if data:
                found.append(Found(id_of_record(entry, number, marker.last), payload_of(data)))
    assert after == marker.last
    return found


class Agent:
    """A handle on the store, and the polls and streams of an agent."""

    def __init__(self, store: StoreHandle, clock: VirtualClock) -> None:
        self.store = store
        self.streams = Streams(store.topics, clock)
        known = KnownTopics(store.topics)
        self.poller = Poller(store.topics, known, TopicCounters(), 1000)

    async def poll(self, topic: Topic, view: View, part: Part) -> Polled:
        """Return one answer."""
        request = PollRequest(
            None if part.after is None else part.after.to_bytes(),
            inclusive=part.inclusive,
            limit=part.limit,
            isolation=_isolation(view),
            snapshot=view if isinstance(view, Snapshot) else None,
        )
        answer = await self.poller.poll(topic.name, request)
        found = [Found(parse_message_id(id_), payload_of(data)) for id_, data in answer.messages]
        return found, answer.held_by

    async def poll_all(self, topic: Topic, view: View, part: Part) -> Polled:
        """Return all messages of a part, in answers of ``limit``."""
        found, hold = await self.poll(topic, view, part)
        last = found
        while last:
            assert len(last) <= part.limit
            last, hold = await self.poll(topic, view, Part(last[-1].id, limit=part.limit))
            found += last
        return found, hold


@dataclass(eq=False)
class Reader:
    """Polls a topic again and again. ``passed``: see ``Sight``."""

    isolation: Isolation
    last_id: MessageId | None = None
    passed: int = 0

    async def poll(self, agent: Agent, pair: "Pair", limit: int, now: int) -> None:
        part = Part(self.last_id, limit=limit)
        got, hold = await agent.poll_all(pair.topic, self.isolation, part)
        expected = pair.model.seen(self.isolation, now, first=self.passed)
        assert ([each.payload for each in got], hold) == (expected.payloads, expected.hold)
        self.passed = expected.passed
        self.last_id = got[-1].id if got else self.last_id


@dataclass(eq=False)
class Listener:
    """A stream. After a cut it is ``away`` for some calls, and resumes at its last id.

    ``is_held``: it waits at the item after those that it has passed.
    """

    isolation: Isolation
    consumer: StreamConsumer | None = None
    last_id: str | None = None
    passed: int = 0
    is_held: bool = False
    away: int = 0

    async def listen(self, agent: Agent, pair: "Pair", now: int) -> None:
        if self.away:
            self.away -= 1
            return
        if self.consumer is None:
            self.consumer = await agent.streams.connect(pair.topic, self.isolation, self.last_id)
            await agent.streams.advance()
            self.is_held = False
        got = await read_messages(self.consumer)
        if self.is_held and not got and pair.model.is_open(self.passed):
            # Nothing wakes it if the entry has expired.
            return
        expected = pair.model.seen(self.isolation, now, first=self.passed)
        assert [payload for _, payload in got] == expected.payloads
        self.passed = expected.passed
        self.is_held = expected.hold is not None
        self.last_id = got[-1][0] if got else self.last_id


@dataclass(eq=False)
class Pair:
    """A topic and its counterpart in the reference."""

    topic: Topic
    model: Named
    readers: list[Reader] = field(default_factory=lambda: [Reader(each) for each in Isolation])
    listeners: list[Listener] = field(default_factory=lambda: [*map(Listener, Isolation)])

"""Streams with filters over every store, against a model that is written here once more.

A query and a right narrow one stream. It begins with a replication, goes on live, and resumes where
it was cut, from memory, from the log, or from the states. Polls of the oplog are narrowed, too.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark, Millis, Position, format_id, parse_position
from oplogd.model.operation import Operation
from oplogd.store import Store
from oplogd.stream.follower import advance
from oplogd.stream.hub import Hub
from oplogd.stream.ring.filters import Filter, parse_filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.oplog import OplogPoller
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import operations
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kits
from tests.kits.stream.blocks import Block, parse
from tests.kits.stream.topic_worlds import read_all
from tests.kits.stream.worlds import WatchedConsumer

EVENTS = ("insert", "update", "delete")


class Asked(NamedTuple):
    """The parameters of a stream, and the right of its reader. Empty and None: everything."""

    types: list[str]
    parents: list[str]
    ids: list[str]
    events: list[str]
    right_types: list[str] | None
    right_parents: list[str] | None

    @property
    def filter(self) -> Filter:
        query = parse_filter(
            [",".join(self.types)],
            self.parents,
            100,
            events=[",".join(self.events).upper()],
            ids=self.ids,
        )
        types, parents = self.right_types, self.right_parents
        return query.narrowed(
            None if types is None else frozenset(types),
            None if parents is None else frozenset(parents),
        )

    def concerns(self, made: Operation) -> bool:
        """Return whether an operation or a state passes, but for its event."""
        has = json.loads(made.data)
        asked = [
            (self.types or None, [has["type"]]),
            (self.parents or None, has["parents"]),
            (self.ids or None, [has["id"]]),
            (self.right_types, [has["type"]]),
            (self.right_parents, has["parents"]),
        ]
        return all(names is None or any(one in names for one in own) for names, own in asked)

    def takes(self, *events: str) -> bool:
        return not self.events or any(event in self.events for event in events)

    def passing(self, made: Sequence[Operation]) -> list[Operation]:
        return [each for each in made if self.takes(each.event) and self.concerns(each)]

    def states(self, made: Sequence[Operation], *, deleted: bool) -> list[tuple[str, bytes]]:
        """Return the states after these operations. ``deleted``: also of deleted objects."""
        last = {each.key: number for number, each in enumerate(made)}
        found = [made[number] for number in sorted(last.values())]
        shown = []
        for each in found:
            is_gone = each.event == "delete"
            wanted = deleted and self.takes("delete") if is_gone else self.takes(*EVENTS[:2])
            if wanted and self.concerns(each):
                shown.append(("delete" if is_gone else "insert", each.data))
        return shown


def some(*values: str) -> st.SearchStrategy[list[str]]:
    return st.just([]) | st.lists(st.sampled_from(values), max_size=3, unique=True)


asked_of = st.builds(
    Asked,
    some("a", "b"),
    some("x", "y", "z"),
    some("1", "2", "3"),
    some(*EVENTS),
    st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
    st.none() | st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True),
)
batches = st.lists(operations(), max_size=12)


class Agent:
    """The stream's side of an agent, with a ring of few entries."""

    def __init__(self, store: Store, ring_entries: int) -> None:
        framer = Framer()
        self.store = store
        self.ring = Ring(framer.route, ring_entries, 10**9, Waker().wake)
        self.hub = Hub(
            store, self.ring, framer, heartbeat=1e9, max_connection_age=0, max_clients=1000
        )

    async def follow(self) -> None:
        head = (await self.store.locate()).head
        while self.ring.head != head:
            await advance(self.store, self.ring, 1)

    async def connect(self, position: Position | None, filter_: Filter) -> WatchedConsumer:
        consumer = await self.hub.connect(position, filter_, checkpoints=False, address="host:1")
        assert isinstance(consumer, WatchedConsumer)
        return consumer


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    monkeypatch.setattr("oplogd.stream.phases.catch_up.PAGE", 5)
    monkeypatch.setattr("oplogd.stream.phases.oplog_bridge.PAGE", 3)
    monkeypatch.setattr("oplogd.topics.oplog._FILTERED_PAGE", 3)


def told(blocks: Sequence[Block]) -> list[tuple[str, bytes]]:
    return [(each.event, each.data.encode()) for each in blocks]


def sent(made: Sequence[Operation]) -> list[tuple[str, bytes]]:
    return [(each.event, each.data) for each in made]


def without_live(blocks: list[Block]) -> Iterator[Block]:
    assert [each.event for each in blocks].count("live") == 1
    yield from (each for each in blocks if each.event != "live")


@examples(0.6)
@given(
    asked=st.lists(asked_of, min_size=1, max_size=4),
    parts=st.tuples(batches, batches, batches),
    ring_entries=st.sampled_from([1, 4, 1000]),
    pairs=st.sampled_from([0, 1_024]),
)
async def test_a_stream_has_exactly_the_operations_of_its_query_and_its_right(
    kits: Kits,
    asked: list[Asked],
    parts: tuple[list[Operation], ...],
    ring_entries: int,
    pairs: int,
) -> None:
    first, second, third = parts
    async with kits() as kit:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("oplogd.stream.ring.keys._MAX_PAIRS", pairs)
            agent = Agent(await kit.open(), ring_entries)
            agent.ring.restart((await agent.store.locate()).head)
            await agent.store.append(first)
            await agent.follow()
            for each in asked:
                await check_a_stream(agent, each, first)
            streams = [await agent.connect(None, each.filter) for each in asked]
            await agent.store.append(second)
            await agent.follow()
            last = [format_id(Mark(len(first), START_MS)) if first else None for _ in asked]
            for number, (each, stream) in enumerate(zip(asked, streams, strict=True)):
                blocks = parse(await read_all(stream))
                assert told(blocks) == sent(each.passing(second))
                assert stream.lag() == (0, 0)
                last[number] = blocks[-1].id if blocks else last[number]
                agent.hub.disconnect(stream)
            await agent.store.append(third)
            await agent.follow()
            for each, id_ in zip(asked, last, strict=True):
                if id_ is not None:
                    resumed = await agent.connect(parse_position(id_), each.filter)
                    assert told(parse(await read_all(resumed))) == sent(each.passing(third))
                    agent.hub.disconnect(resumed)
            for each in asked:
                await check_polls(agent.store, each, [*first, *second, *third])


async def check_a_stream(agent: Agent, asked: Asked, made: list[Operation]) -> None:
    """Compare a full replication, and one of the changes since a time."""
    stream = await agent.connect(Millis(0), asked.filter)
    reset, *blocks = parse(await read_all(stream))
    assert reset.event == "reset"
    assert told([*without_live(blocks)]) == asked.states(made, deleted=False)
    agent.hub.disconnect(stream)
    stream = await agent.connect(Millis(1), asked.filter)
    blocks = parse(await read_all(stream))
    assert told([*without_live(blocks)]) == asked.states(made, deleted=True)
    agent.hub.disconnect(stream)


async def check_polls(store: Store, asked: Asked, made: list[Operation]) -> None:
    """Poll everything, two operations at a time, from the last id and from the position told."""
    poller = OplogPoller(store, TopicCounters(), 2)
    wanted = sent(asked.passing(made))
    start: bytes | None = None
    for goes_by_position in (False, True):
        found: list[tuple[str, bytes]] = []
        start = None
        while True:
            answer = await poller.poll(PollRequest(start, inclusive=False), asked.filter)
            assert not answer.gap
            found += [operation_of(each.data) for each in answer.messages]
            if goes_by_position and answer.reached:
                start = bytes.fromhex(answer.reached)
            elif answer.messages:
                start = bytes.fromhex(answer.messages[-1].id)
            if not answer.messages:
                break
        assert found == wanted
    head = format_id((await store.locate()).head)
    assert start == (bytes.fromhex(head) if made else None)


def operation_of(data: str) -> tuple[str, bytes]:
    members: dict[str, Any] = json.loads(json.loads(data)["payload"])
    return members.pop("event"), json.dumps(members, separators=(",", ":")).encode()

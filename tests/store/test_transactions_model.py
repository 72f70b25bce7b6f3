"""Random calls on two agents' transactions, compared with lists in memory after every call.

All kinds of readers of both isolations are compared: reads of whole topics, polls from the oldest
message, polls that resume at the last message they got, and streams that are cut and resume.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oplogd.errors import TopicExistsError
from oplogd.event_id import Mark, format_id
from oplogd.store.topics import Topic
from oplogd.store.transactions import Transaction
from oplogd.stream.consumer import Consumer
from oplogd.topics.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from oplogd.transaction import Isolation, Record, State
from tests.operations import operation
from tests.properties import examples
from tests.store.kits import Kit, Kits
from tests.store.messages import named, publish
from tests.store.stream_readers import Streams, read_messages
from tests.store.transacting import (
    StoreHandle,
    begin,
    oplog_record,
    payload_of,
    payloads_committed,
    payloads_uncommitted,
    record,
    seen_committed,
    told_in,
    write,
)
from tests.store.transaction_reference import Errors, Line, Named, Reference, Txn, Written
from tests.stream.worlds import WatchedConsumer

NAMES = ["a", "b"]
GROUPS = ["default", "g"]
NUMBERS = some.integers(0, 3)
AGENTS = some.integers(0, 1)
TTLS = some.sampled_from([None, None, None, 1, 3])
# Added to the lsn of a new record: -1 clashes with a known one, the others leave a gap.
SHIFTS = some.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1])
# The oplog, or a number of a topic.
PLACES = some.sampled_from([None, 0, 1, 0, 1])

_T = TypeVar("_T")


class Agent:
    """A handle on the store, and the polls of an agent."""

    def __init__(self, store: StoreHandle, clock: Callable[[], int]) -> None:
        self.store = store
        self.streams = Streams(store.topics, clock)
        known = KnownTopics(store.topics)
        self.poller = Poller(store.topics, known, TopicCounters(), 1000)

    async def poll(
        self, topic: Topic, isolation: Isolation, after: str | None, limit: int
    ) -> list[tuple[str, str]]:
        """Return the ids and payloads of all messages after an id, in answers of ``limit``."""
        found: list[tuple[str, str]] = []
        while True:
            start = None if after is None else bytes.fromhex(after)
            request = PollRequest(start, inclusive=False, limit=limit, isolation=isolation)
            answer = (await self.poller.poll(topic.name, request)).messages
            assert len(answer) <= limit
            if not answer:
                return found
            found += [(id_, payload_of(data)) for id_, data in answer]
            after = answer[-1].id


@dataclass(eq=False)
class Reader:
    """Polls a topic again and again. ``got``: all it got so far."""

    isolation: Isolation
    got: list[tuple[str, str]] = field(default_factory=list)

    async def poll(self, agent: Agent, topic: Topic, limit: int) -> None:
        after = self.got[-1][0] if self.got else None
        self.got += await agent.poll(topic, self.isolation, after, limit)


@dataclass(eq=False)
class Listener:
    """A stream. After a cut it is ``away`` for some calls, and resumes at its last id.

    ``passed``: messages of the view that it has had, or has missed for ever.
    """

    isolation: Isolation
    consumer: Consumer | None = None
    last_id: str | None = None
    passed: int = 0
    away: int = 0

    async def listen(self, agent: Agent, pair: "Pair", now: int) -> None:
        if self.away:
            self.away -= 1
            return
        if self.consumer is None:
            self.consumer = await agent.streams.connect(pair.topic, self.isolation, self.last_id)
            await agent.streams.advance()
        got = await read_messages(self.consumer)
        expected = pair.model.seen(self.isolation, now, self.passed)
        assert [payload for _, payload in got] == expected
        self.passed = len(pair.model.views[self.isolation])
        self.last_id = got[-1][0] if got else self.last_id


@dataclass(eq=False)
class Pair:
    """A topic and its counterpart in the reference."""

    topic: Topic
    model: Named
    readers: list[Reader] = field(default_factory=lambda: [Reader(each) for each in Isolation])
    listeners: list[Listener] = field(default_factory=lambda: [*map(Listener, Isolation)])


class Machine(RuleBasedStateMachine):
    kits: Kits

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self.kit: Kit = self.run(self._stack.enter_async_context(self.kits()))
        self.agents = [self._agent() for _ in range(2)]
        self.reference = Reference(self.kit.clock_ms)
        self.pairs: list[Pair] = []
        self.begun: list[tuple[Transaction, Txn]] = []
        # The answers to commits by id.
        self.answers: dict[int, list[str | None]] = {}
        self.number = 0
        # The agent of all streams.
        self.listening = 0

    def _agent(self) -> Agent:
        return Agent(self.run(self.kit.open()), lambda: self.kit.clock_ms)

    def teardown(self) -> None:
        for agent in self.agents:
            self.run(agent.streams.close())
        self.run(self._stack.aclose())
        self._runner.close()

    def run(self, call: Awaitable[_T]) -> _T:
        async def awaited() -> _T:
            return await call

        return self._runner.run(awaited())

    def call(self, call: Awaitable[_T], errors: Errors) -> _T | None:
        """Return the answer to a call, None if it has raised one of these errors, as it must."""
        if not errors:
            return self.run(call)
        with pytest.raises(tuple(errors)):
            self.run(call)
        return None

    def store(self, agent: int) -> StoreHandle:
        return self.agents[agent].store

    def payload(self) -> str:
        self.number += 1
        return str(self.number)

    @property
    def existing(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.model.exists]

    # --- Calls ---

    @initialize()
    def create_all(self) -> None:
        for name in NAMES:
            self.create(name, 1000, 0)

    @rule(name=some.sampled_from(NAMES), ttl=some.sampled_from([5, 1000]), agent=AGENTS)
    def create(self, name: str, ttl: int, agent: int) -> None:
        try:
            topic = self.run(self.store(agent).topics.create(named(name), ttl))
        except TopicExistsError:
            assert name in [pair.model.name for pair in self.existing]
            return
        assert name not in [pair.model.name for pair in self.existing]
        self.pairs.append(Pair(topic, Named(name, ttl)))

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, agent=AGENTS)
    def delete(self, choice: int, agent: int) -> None:
        pair = self.existing[choice % len(self.existing)]
        self.run(self.store(agent).topics.delete(pair.topic.name))
        pair.model.exists = False

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, ttl=TTLS, agent=AGENTS)
    def publish(self, choice: int, ttl: int | None, agent: int) -> None:
        pair = self.existing[choice % len(self.existing)]
        payload = self.payload()
        self.run(publish(self.store(agent).topics, pair.topic, payload, ttl=ttl))
        pair.model.publish(Line(payload, self.reference.now, ttl), *Isolation)

    @rule(
        place=PLACES,
        group=some.sampled_from(GROUPS),
        timeout=some.sampled_from([1000, 60_000, 900_000, 900_000]),
        agent=AGENTS,
    )
    def begin(self, place: int | None, group: str, timeout: int, agent: int) -> None:
        # Most transactions begin with a group.
        pair = self.existing[-1] if place == 1 and self.existing else None
        made = self.run(
            begin(
                self.store(agent),
                group=group,
                topic=pair.topic if pair else None,
                timeout_ms=timeout,
            )
        )
        self.begun.append(
            (made, self.reference.begin(pair.model if pair else None, group, timeout))
        )

    @precondition(lambda self: self.begun)
    @rule(
        choice=NUMBERS,
        given=some.lists(some.tuples(SHIFTS, PLACES, TTLS), min_size=1, max_size=4),
        agent=AGENTS,
    )
    def write(
        self, choice: int, given: list[tuple[int, int | None, int | None]], agent: int
    ) -> None:
        """Write records past the known ones, out of order or with a gap, or clash with one."""
        made, txn = self.begun[-1 - choice % len(self.begun)]
        first = len(txn.records)
        written = {}
        for k, (shift, place, ttl) in enumerate(given):
            pair = self.pairs[-1 - (place or 0) % len(self.pairs)]
            model = txn.topic or (None if place is None else pair.model)
            lsn = max(0, first + k + shift)
            written[lsn] = Written(model, self.payload(), ttl if model else None)
        self._write(made, txn, written, agent)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, first=NUMBERS, agent=AGENTS, more=some.booleans())
    def repeat(self, choice: int, first: int, agent: int, more: bool) -> None:
        """Write known records again, perhaps with a new one."""
        made, txn = self.begun[-1 - choice % len(self.begun)]
        known = sorted(txn.records.items())
        written = dict(known[first % (len(known) + 1) :])
        if more:
            lsn = len(txn.records)
            model = txn.topic or self.pairs[-1].model
            written.setdefault(lsn, Written(model, self.payload(), None))
        # Whether a record of a topic that was deleted since is refused is left open.
        if written and all(not each.topic or each.topic.exists for each in written.values()):
            self._write(made, txn, written, agent)

    def _write(self, made: Transaction, txn: Txn, written: dict[int, Written], agent: int) -> None:
        sent = [self._record(lsn, each) for lsn, each in written.items()]
        errors = self.reference.write(txn, written)
        self.call(write(self.store(agent), made, *sent), errors)

    def _record(self, lsn: int, written: Written) -> Record:
        if written.topic is None:
            return oplog_record(lsn, operation(id_=written.payload))
        (pair,) = [pair for pair in self.pairs if pair.model is written.topic]
        return record(lsn, pair.topic, written.payload, written.ttl)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, wrong=some.sampled_from([0, 0, 0, 0, -1, 1]), agent=AGENTS)
    def commit(self, choice: int, wrong: int, agent: int) -> None:
        made, txn = self.begun[-1 - choice % len(self.begun)]
        number = max(0, len(txn.records) + wrong)
        errors = self.reference.commit(txn, number)
        commit = self.call(self.store(agent).transactions.commit(made.id, number), errors)
        if commit is None:
            return
        ids = list(commit.record_ids())
        if made.id in self.answers:
            assert ids == self.answers[made.id]
            return
        self.answers[made.id] = ids
        seen = self.run(self._seen_ids())
        for lsn, written in txn.records.items():
            exists = written.topic is None or written.topic.exists
            assert ids[lsn] == (seen[written.payload] if exists else None)

    async def _seen_ids(self) -> dict[str, str]:
        store = self.store(0)
        entries = await store.read(0, 10_000)
        ids = {
            json.loads(entry.data)["id"]: format_id(Mark(entry.offset, entry.ms))
            for entry in entries
        }
        for pair in self.existing:
            ids |= {each.payload: each.id for each in await seen_committed(store, pair.topic)}
        return ids

    @precondition(lambda self: self.begun)
    @rule(
        choice=NUMBERS,
        places=some.lists(PLACES, min_size=2, max_size=5),
        ttl=TTLS,
        agent=AGENTS,
    )
    def finish(self, choice: int, places: list[int | None], ttl: int | None, agent: int) -> None:
        """Write what is missing and some more, and commit."""
        _, txn = self.begun[-1 - choice % len(self.begun)]
        missing = set(range(max(txn.records, default=-1))) - txn.records.keys()
        first = max(txn.records, default=-1) + 1
        for lsn in [*missing, *range(first, first + len(places))]:
            self.write(choice, [(lsn - len(txn.records), places[lsn % len(places)], ttl)], agent)
        self.commit(choice, 0, agent)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, agent=AGENTS)
    def abort(self, choice: int, agent: int) -> None:
        made, txn = self.begun[-1 - choice % len(self.begun)]
        errors = self.reference.abort(txn)
        self.call(self.store(agent).transactions.abort(made.id), errors)

    @rule(ms=some.sampled_from([1, 1, 1001, 3000, 6000, 61_000, 901_000]))
    def wait(self, ms: int) -> None:
        self.kit.clock_ms += ms
        self.reference.now += ms

    @rule(agent=AGENTS)
    def keep(self, agent: int) -> None:
        now = self.reference.now
        overdue = [txn for _, txn in self.begun if txn.state == State.OPEN and txn.expires < now]
        # Another agent may be the one that keeps.
        count = self.run(self.store(agent).transactions.keep())
        assert count in (0, len(overdue))
        for txn in overdue if count else ():
            self.reference.expire(txn)

    @rule(agent=AGENTS)
    def sweep(self, agent: int) -> None:
        self.run(self.store(agent).topics.sweep())

    @rule(agent=AGENTS)
    def restart(self, agent: int) -> None:
        """Start an agent anew. All streams move to the other one if it was theirs."""
        self.run(self.agents[agent].streams.close())
        self.run(self.store(agent).close())
        self.agents[agent] = self._agent()
        if agent == self.listening:
            self.listening = 1 - agent
            for pair in self.pairs:
                for listener in pair.listeners:
                    listener.consumer = None

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, away=some.integers(0, 5))
    def cut(self, choice: int, away: int) -> None:
        pair = self.existing[choice % len(self.existing)]
        for listener in pair.listeners:
            if listener.consumer is not None:
                self.agents[self.listening].streams.cut(listener.consumer)
            listener.consumer = None
            listener.away = away

    # --- Comparisons ---

    @invariant()
    def readers_see_what_the_lists_have(self) -> None:
        self.run(self._compare())

    async def _compare(self) -> None:
        for number, agent in enumerate(self.agents):
            for pair in self.existing:
                await self._compare_topic(agent, pair, limit=1 + number)
            await self._compare_oplog(agent.store)
        for pair in self.existing:
            for reader in pair.readers:
                await reader.poll(self.agents[self.number % 2], pair.topic, 1 + self.number % 3)
                lines = pair.model.views[reader.isolation]
                assert [payload for _, payload in reader.got] == [each.payload for each in lines]
        agent = self.agents[self.listening]
        await agent.streams.advance()
        for pair in self.existing:
            for listener in pair.listeners:
                await listener.listen(agent, pair, self.reference.now)
        for group, told in self.reference.told.items():
            expected = [(event, self._id_of(txn)) for event, txn in told]
            contents = await told_in(self.store(0), group)
            found = [(json.loads(payload)["event"], key or "") for key, payload in contents]
            # A keeper aborts several transactions in any order.
            assert _without_aborts(found) == _without_aborts(expected)
            assert sorted(found) == sorted(expected)
        for made, txn in self.begun:
            if txn.state != State.OPEN or txn.expires >= self.reference.now:
                found_ = await self.store(self.number % 2).transactions.find(made.id)
                assert (found_.state, found_.records) == (txn.state, len(txn.records))

    async def _compare_topic(self, agent: Agent, pair: Pair, limit: int) -> None:
        topic, now = pair.topic, self.reference.now
        uncommitted, committed = [pair.model.seen(each, now) for each in Isolation]
        assert await payloads_uncommitted(agent.store, topic) == uncommitted
        assert await payloads_committed(agent.store, topic) == committed
        for isolation, expected in zip(Isolation, (uncommitted, committed), strict=True):
            found = await agent.poll(topic, isolation, None, limit)
            assert [payload for _, payload in found] == expected

    async def _compare_oplog(self, store: StoreHandle) -> None:
        members = [json.loads(entry.data) for entry in await store.read(0, 10_000)]
        assert [(each["id"], each["lsn"]) for each in members] == self.reference.oplog
        count: dict[str, int] = {}
        for each in members:
            count[each["txn"]] = count.get(each["txn"], 0) + 1
        assert all(each["of"] == count[each["txn"]] for each in members)

    def _id_of(self, txn: Txn) -> str:
        (id_,) = [made.id for made, each in self.begun if each is txn]
        return str(id_)


def _without_aborts(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [each for each in told if each[0] != "abort"]


# Share of the examples of other property tests, and the calls of each: some stores are slow.
SHARES = {"memory": (0.2, 50), "sqlite": (0.05, 50), "mongo-plain": (0.01, 15)}


@pytest.mark.parametrize("txn_kits", SHARES, indirect=True)
def test_all_readers_see_what_the_lists_have(
    txn_kits: Kits, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.Consumer", WatchedConsumer)
    share, calls = SHARES[request.node.callspec.params["txn_kits"]]

    class OfStore(Machine):
        kits = staticmethod(txn_kits)

    run_state_machine_as_test(
        OfStore, settings=settings(examples(share), stateful_step_count=calls)
    )

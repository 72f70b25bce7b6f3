"""Two agents' readers of random topics, compared with the reference after every call."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import MAX_POINTER, Snapshot
from oplogd.model.transaction import Isolation, State
from oplogd.store.transactions import Transaction
from tests.contract.store.model_readers import Agent, Pair, Polled, read_entries
from tests.contract.store.transaction_reference import (
    ALL,
    Errors,
    Part,
    Reference,
    Sight,
    Txn,
    View,
)
from tests.kits.store.kits import Kit, Kits
from tests.kits.store.transacting import (
    StoreHandle,
    told_in,
)

NUMBERS = some.integers(0, 3)
AGENTS = some.integers(0, 1)
# The second is as large as those of Tephra.
ALL_POINTERS = (0, 1_800_000_000_000_000_000, MAX_POINTER)
POINTERS = some.sampled_from(ALL_POINTERS)
SNAPSHOTS = some.builds(
    Snapshot,
    some.sampled_from([-1, 0, 1_900_000_000_000_000_000, MAX_POINTER]),
    some.none() | POINTERS,
    some.frozensets(POINTERS),
    some.frozensets(POINTERS),
)
EVERYTHING = Snapshot(MAX_POINTER)
NOTHING = Snapshot(-1)

_T = TypeVar("_T")


class ReaderMachine(RuleBasedStateMachine):
    kits: Kits

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self.kit: Kit = self.run(self._stack.enter_async_context(self.kits()))
        self.agents = [self._agent() for _ in range(2)]
        self.reference = Reference(self.kit.clock.ms)
        self.pairs: list[Pair] = []
        self.begun: list[tuple[Transaction, Txn]] = []
        # The answers to commits by id.
        self.answers: dict[int, list[str | None]] = {}
        self.number = 0
        # The agent of all streams.
        self.listening = 0
        self.snapshots = [NOTHING, NOTHING]

    def _agent(self) -> Agent:
        return Agent(self.run(self.kit.open()), self.kit.clock)

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

    @property
    def views(self) -> list[View]:
        return [*Isolation, EVERYTHING, *self.snapshots]

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

    @rule(number=some.integers(0, 1), snapshot=SNAPSHOTS)
    def take_snapshot(self, number: int, snapshot: Snapshot) -> None:
        self.snapshots[number] = snapshot

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, first=NUMBERS, limit=some.sampled_from([1, 2, 3, 10_000]), agent=AGENTS)
    def resume(self, choice: int, first: int, limit: int, agent: int) -> None:
        """Read on from some of the ids that any reader saw."""
        pair = self.existing[choice % len(self.existing)]
        ids = pair.model.ids()
        for id_ in ids[first :: max(1, len(ids) // 4)]:
            for view, inclusive in itertools.product(self.views, (False, True)):
                part = Part(id_, inclusive=inclusive, limit=limit)
                self.run(self._compare_view(self.agents[agent], pair, view, part))

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
        agent = self.agents[self.number % 2]
        for pair in self.existing:
            for reader in pair.readers:
                await reader.poll(agent, pair, 1 + self.number % 3, self.reference.now)
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
        seen = {view: await self._compare_view(agent, pair, view, ALL) for view in self.views}
        decided = seen[Isolation.READ_COMMITTED]
        pair.model.learn(seen[Isolation.READ_UNCOMMITTED], seen[EVERYTHING], decided)
        late = {
            line.payload
            for item in pair.model.items
            if item.kind == EntryKind.LATE
            for line in item.lines
        }
        committed = {payload: id_ for payload, id_ in decided if payload not in late}
        for snapshot in self.snapshots:
            # Ascending ids and equal ids are one order.
            assert all(committed.get(each, id_) == id_ for each, id_ in seen[snapshot])
        for view in self.views:
            sight = pair.model.seen(view, self.reference.now)
            _assert_seen(await agent.poll_all(pair.topic, view, Part(limit=limit)), sight)

    async def _compare_view(
        self, agent: Agent, pair: Pair, view: View, part: Part
    ) -> list[tuple[str, MessageId]]:
        """Compare a part of the messages. Return their payloads and ids."""
        sight = pair.model.seen(view, self.reference.now, part)
        found = await read_entries(agent.store.topics.log(pair.topic), view, part)
        _assert_seen(found, sight)
        _assert_seen(await agent.poll(pair.topic, view, part), sight)
        return [(each.payload, each.id) for each in found[0]]

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


def _assert_seen(polled: Polled, sight: Sight) -> None:
    found, hold = polled
    ids = [each.id for each in found]
    assert ids == sorted(set(ids))
    assert ([each.payload for each in found], hold) == (sight.payloads, sight.hold)


def _without_aborts(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [each for each in told if each[0] != "abort"]

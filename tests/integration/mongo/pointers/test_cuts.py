"""Calls under a pointer whose agent is killed after any step, or that lose their answers."""

import functools
from collections.abc import Awaitable, Callable

import pytest
from pymongo.database import Database

from oplogd.errors import StoreUnavailableError, TransactionConflictError
from oplogd.model.pointer import Decision
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Topic
from tests.integration.mongo.committing import KilledError, Steps, opened, stepping, topics_of
from tests.integration.mongo.pointing import (
    TEPHRA,
    TIMEOUT_MS,
    counts,
    kinds,
    publish,
    publish_stored,
    seen,
    stamp_of,
    store_messages,
    stores_messages,
    voided,
)
from tests.integration.mongo.topics.topics import inserts_entries
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Matches, Wire

_SETTLED_MS = 3_001


class Agents:
    """A keeper, and an agent that the test kills."""

    def __init__(self, keeper: MongoStore, killed: MongoStore, steps: Steps) -> None:
        self.keeper = keeper
        self.killed = killed
        self.steps = steps
        self._topics = 0

    async def topic(self) -> Topic:
        self._topics += 1
        if self._topics == 1:
            (made,) = await topics_of(self.keeper, "a1")
            return made
        name = (await self.keeper.topics.in_namespace("ns"))[0].name
        return await self.keeper.topics.create(name._replace(topic=f"a{self._topics}"), None)

    async def kill(self, step: str, times: int, call: Callable[[], Awaitable[object]]) -> None:
        self.steps.kill_at = step, times
        with pytest.raises(KilledError):
            await call()
        self.steps.kill_at = None


@pytest.fixture
async def agents(plain_url: str, make_store: MakeStore) -> Agents:
    steps = Steps()
    keeper = await opened(make_store, plain_url)
    return Agents(keeper, await stepping(make_store, plain_url, steps), steps)


async def test_a_publish_of_stored_messages_killed_after_any_step_is_repeated(
    agents: Agents,
) -> None:
    for step in ("registered", "looked-up", "appended"):
        topic = await agents.topic()
        await store_messages(agents.keeper, topic, "a", "b")
        await agents.kill(step, 1, lambda topic=topic: publish_stored(agents.killed, topic))  # type: ignore[misc]
        at = await publish_stored(agents.keeper, topic)
        assert await publish_stored(agents.killed, topic) == at
        assert await seen(agents.keeper, topic) == ["a", "b"]
        assert await kinds(agents.keeper, topic) == ["publish"]


async def test_a_pointer_whose_agent_is_killed_while_it_begins_times_out(
    agents: Agents, clock: VirtualClock
) -> None:
    """Whatever was registered or appended, a committed reader goes on."""
    topics = []
    calls: list[tuple[str, Callable[..., Awaitable[object]]]]
    calls = [("registered", publish), ("appended", publish)]
    calls += [(step, store_messages) for step in ("registered", "looked-up", "stored")]
    for step, call in calls:
        topics.append(topic := await agents.topic())
        await agents.kill(step, 1, lambda topic=topic, call=call: call(agents.killed, topic, "x"))  # type: ignore[misc]
    assert (await agents.keeper.pointers.stats()).open == 5
    clock.ms += TIMEOUT_MS
    assert await agents.keeper.pointers.keep() == 0
    clock.ms += 1
    assert await agents.killed.pointers.keep() == 0, "it does not hold the lease"
    assert await agents.keeper.pointers.keep() == 5
    assert (await agents.keeper.pointers.stats()).open == 0
    for topic in topics:
        decisions = await agents.keeper.topics.log(topic).decisions([TEPHRA])
        assert decisions == {TEPHRA: Decision.TIMED_OUT}
        with pytest.raises(TransactionConflictError, match="timed out"):
            await publish(agents.killed, topic, "y")
    assert await agents.keeper.pointers.keep() == 0


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("everything", [False, True])
async def test_a_rollback_killed_after_any_step_is_completed(
    agents: Agents,
    database: Database[Document],
    clock: VirtualClock,
    is_kept: bool,
    everything: bool,
) -> None:
    for step in ("rollback-noted", "claimed", "dropped", "voided", "void-entry"):
        topic = await agents.topic()
        marks = await publish(agents.keeper, topic, "a", "b")
        await store_messages(agents.keeper, topic, "c", "d")
        marks.append(await publish_stored(agents.keeper, topic))
        if everything:
            await store_messages(agents.keeper, topic, "e")
        log, stamps = topic.log, None if everything else [stamp_of(each) for each in marks]
        await agents.kill(
            step,
            1,
            lambda log=log, stamps=stamps: agents.killed.pointers.rollback(log, TEPHRA, stamps),  # type: ignore[misc]
        )
        if is_kept:
            assert await agents.keeper.pointers.keep() == 0, "its agent has some seconds"
            clock.ms += _SETTLED_MS
            assert await agents.keeper.pointers.keep() == 1
            assert await agents.keeper.pointers.keep() == 0
        else:
            at = await agents.keeper.pointers.rollback(log, TEPHRA, stamps)
            assert at is not None
            assert at.offset == 4
        for store in (agents.killed, agents.keeper):
            assert await kinds(store, topic) == ["void"] * 4
            assert await voided(store, topic) == [[(1, 3)]]
            assert await store.pointers.rollback(log, TEPHRA, None) is None
        assert counts(database)[2] == 0
        held = {"_id": {"$regex": f"^.{{16}}{log:06x}"}, "data": {"$ne": ""}}
        assert database["oplog_payloads"].count_documents(held) == 0


async def test_a_reader_between_two_steps_of_a_rollback_misses_no_message_of_a_publish_entry(
    agents: Agents,
) -> None:
    """If it finds less than all of them, the entry is void, so that nothing counts as gone."""
    for step in ("rollback-noted", "voided", "dropped", "void-entry"):
        topic = await agents.topic()
        await store_messages(agents.keeper, topic, "a", "b")
        await publish_stored(agents.keeper, topic)
        rollback = functools.partial(agents.killed.pointers.rollback, topic.log, TEPHRA, None)
        await agents.kill(step, 1, rollback)
        log = agents.keeper.topics.log(topic)
        entry = (await log.read(0, 1))[0]
        if entry.event == "publish":
            assert len(await log.expand(entry, -1, 10)) == 2, step


async def test_messages_that_are_stored_after_a_rollback_was_cut_stay(
    agents: Agents, database: Database[Document]
) -> None:
    for step in ("rollback-noted", "dropped", "voided"):
        topic = await agents.topic()
        await store_messages(agents.keeper, topic, "a", "b")
        rollback = functools.partial(agents.killed.pointers.rollback, topic.log, TEPHRA, None)
        await agents.kill(step, 1, rollback)
        await store_messages(agents.keeper, topic, "c")
        await publish_stored(agents.keeper, topic)
        assert await agents.keeper.pointers.rollback(topic.log, TEPHRA, []) is None
        assert await kinds(agents.keeper, topic) == ["publish"]
        assert await seen(agents.keeper, topic) == await seen(agents.killed, topic) == ["c"]
    assert counts(database)[2] == 0


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_decision_killed_after_any_step_is_completed(
    agents: Agents,
    database: Database[Document],
    clock: VirtualClock,
    is_kept: bool,
) -> None:
    for step, times in (
        ("recorded", 1), ("decision", 1), ("decision", 2), ("dropped", 1), ("dropped", 2)
    ):  # fmt: skip
        topics = [await agents.topic(), await agents.topic()]
        logs = [topic.log for topic in topics]
        for topic in topics:
            await publish(agents.keeper, topic, "a")
            await store_messages(agents.keeper, topic, "b")
        await agents.kill(
            step,
            times,
            lambda logs=logs: agents.killed.pointers.decide(logs, TEPHRA, Decision.ABORTED),  # type: ignore[misc]
        )
        if is_kept:
            clock.ms += _SETTLED_MS
            assert await agents.keeper.pointers.keep() == 0
        else:
            await agents.keeper.pointers.decide(logs, TEPHRA, Decision.ABORTED)
        assert (await agents.keeper.pointers.stats()).open == 0
        for topic in topics:
            with pytest.raises(TransactionConflictError):
                await publish_stored(agents.keeper, topic)
            assert await kinds(agents.keeper, topic) == ["direct", "abort"]
        await agents.keeper.pointers.decide(logs, TEPHRA, Decision.ABORTED)
        await agents.keeper.topics.sweep()
        for topic in topics:
            assert await kinds(agents.keeper, topic) == ["void", "abort", "void"]
    assert counts(database)[0] == counts(database)[2] == counts(database)[3] == 0


async def test_a_keeper_that_dies_is_followed_by_the_next_one(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    steps = Steps()
    keeper = await stepping(make_store, plain_url, steps)
    (one, two) = await topics_of(keeper, "a", "b")
    for topic in (one, two):
        await publish(keeper, topic, "x")
        await store_messages(keeper, topic, "y")
    clock.ms += TIMEOUT_MS + 1
    steps.kill_at = "decision", 1
    with pytest.raises(KilledError):
        await keeper.pointers.keep()
    await keeper.close()
    after = await opened(make_store, plain_url)
    assert await after.pointers.keep() == 1
    assert (await after.pointers.stats()).open == 0
    for topic in (one, two):
        assert await kinds(after, topic) == ["direct", "abort"]
    assert await after.pointers.keep() == 0


class FailsOnce(Steps):
    """``fail_at``: the step at which the store is unreachable, once; None: it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_at: str | None = None

    async def __call__(self, name: str) -> None:
        if name == self.fail_at:
            self.fail_at = None
            raise StoreUnavailableError("store x: away")
        await super().__call__(name)


async def test_a_rollback_that_fails_is_told_and_holds_up_no_other(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    steps = FailsOnce()
    keeper = await stepping(make_store, plain_url, steps)
    topics = await topics_of(keeper, "a", "b")
    for pointer, topic in enumerate(topics):
        await publish(keeper, topic, "x", pointer=pointer)
        steps.kill_at = "rollback-noted", 1
        with pytest.raises(KilledError):
            await keeper.pointers.rollback(topic.log, pointer, None)
    steps.kill_at, steps.fail_at = None, "voided"
    clock.ms += _SETTLED_MS
    with pytest.raises(StoreUnavailableError, match="away"):
        await keeper.pointers.keep()
    assert sorted([await kinds(keeper, topic) for topic in topics]) == [["void"], ["void", "void"]]
    assert await keeper.pointers.keep() == 1
    assert [await kinds(keeper, topic) for topic in topics] == [["void", "void"]] * 2


# --- Lost answers ---

GREETINGS = {"hello", "ismaster", "isMaster"}


def from_insert() -> Matches:
    """Match the first command that appends to topics, and all after it.

    New connections are greeted, so that no driver waits for a server.
    """
    is_lost = False

    def matches(command: Command) -> bool:
        nonlocal is_lost
        is_lost |= inserts_entries(command)
        return is_lost and bool(command) and command.keys().isdisjoint(GREETINGS)

    return matches


async def test_a_call_whose_answer_was_lost_is_repeated(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    keeper = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url(retryWrites="false", serverSelectionTimeoutMS="5000"))
    (topic,) = await topics_of(keeper, "a")
    await store_messages(keeper, topic, "a", "b")
    wire.cut(from_insert())
    with pytest.raises(StoreUnavailableError):
        await publish_stored(store, topic)
    wire.cut(None)
    at = await publish_stored(store, topic)
    assert await kinds(keeper, topic) == ["publish"]
    wire.cut(from_insert())
    with pytest.raises(StoreUnavailableError):
        await store.pointers.rollback(topic.log, TEPHRA, [stamp_of(at)])
    wire.cut(None)
    assert await store.pointers.rollback(topic.log, TEPHRA, [stamp_of(at)]) is not None
    wire.cut(from_insert())
    with pytest.raises(StoreUnavailableError):
        await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    wire.cut(None)
    marks = await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    assert marks[topic.log].offset == at.offset + 2
    assert await kinds(keeper, topic) == ["void", "void", "commit"]
    assert await voided(keeper, topic) == [[(1, 1)]]
    await store.close()


async def test_one_lost_answer_neither_doubles_a_message_nor_fails_the_call(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    keeper = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url(retryWrites="false"))
    (topic,) = await topics_of(keeper, "a")
    await publish(store, topic, "0")
    times = 0

    def once(command: Document) -> bool:
        nonlocal times
        times += inserts_entries(command)
        return times == 1 and inserts_entries(command)

    wire.cut(once)
    marks = await publish(store, topic, "a", "b")
    wire.wait_cuts(1)
    assert [each.offset for each in marks] == [2, 3]
    assert await seen(keeper, topic) == ["0", "a", "b"]
    await store.close()


async def test_a_store_whose_answer_was_lost_may_have_stored(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    keeper = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url(retryWrites="false"))
    (topic,) = await topics_of(keeper, "a")
    wire.cut(stores_messages)
    with pytest.raises(StoreUnavailableError):
        await store_messages(store, topic, "a")
    wire.cut(None)
    await store_messages(store, topic, "a")
    await publish_stored(keeper, topic)
    assert await seen(keeper, topic) == ["a", "a"]
    await store.close()

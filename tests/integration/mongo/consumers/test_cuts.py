"""Creations and deletions of named consumers by agents that die, sleep, or lose answers.

mongo-java-server only: the updates of FerretDB are not atomic, so it proves nothing here.
"""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import ConsumerNotFoundError, StaleTermError, StoreUnavailableError
from oplogd.model.consumer import ShardKey, ShardPosition
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import KilledError, Steps, opened, stepping
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire
from tests.kits.store.consuming import (
    FIRST,
    KEY,
    NAME,
    OF_OPLOG,
    SECOND,
    SETTINGS,
    acknowledge,
    created,
    given,
    position,
    reading,
)

CREATION = ["inserted", "read", "shards"]
DELETION = ["marked", "ended", "removed"]


class Agents:
    """Two agents. The test stops ``stopped`` after a step."""

    def __init__(self, other: MongoStore, stopped: MongoStore, steps: Steps) -> None:
        self.other = other
        self.stopped = stopped
        self.steps = steps

    async def killed_in_creation(self, step: str) -> None:
        self.steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await self.stopped.consumers.create(NAME, OF_OPLOG, FIRST)

    async def killed_in_deletion(self, step: str) -> None:
        self.steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await self.stopped.consumers.delete(NAME)

    async def is_hidden(self) -> None:
        """Assert that no method of readers finds the consumer."""
        consumers = self.other.consumers
        with pytest.raises(ConsumerNotFoundError):
            await consumers.find(NAME)
        with pytest.raises(ConsumerNotFoundError):
            await consumers.take(KEY, "a", None)
        with pytest.raises(ConsumerNotFoundError):
            await consumers.seek(NAME, [0], FIRST)
        assert await consumers.select("", 10) == []
        assert await consumers.terms([KEY]) == {}
        (outcome,) = await acknowledge(self.other, given(SECOND))
        assert isinstance(outcome.error, ConsumerNotFoundError)


@pytest.fixture
async def agents(plain_url: str, make_store: MakeStore) -> Agents:
    steps = Steps()
    return Agents(
        await opened(make_store, plain_url), await stepping(make_store, plain_url, steps), steps
    )


def shards_of(database: Database[Document]) -> set[str]:
    """Return the ids of the shards in the database."""
    return {each["_id"] for each in database["oplog_consumer_shards"].find({})}


def ids_of(database: Database[Document]) -> set[str]:
    """Return the ids that the shards of all consumers should have."""
    return {
        f"{each['of']}/{number}"
        for each in database["oplog_consumers"].find({})
        for number in range(each["shards"])
    }


@pytest.mark.parametrize("step", CREATION)
async def test_a_creation_whose_agent_died_is_completed_by_the_next_one(
    agents: Agents, database: Database[Document], step: str
) -> None:
    await agents.killed_in_creation(step)
    await agents.is_hidden()
    row, is_new = await agents.other.consumers.create(NAME, OF_OPLOG, SECOND)
    assert (row.shards, is_new) == ([ShardPosition(FIRST)] * 3, False)
    assert await agents.stopped.consumers.find(NAME) == row
    assert await reading(agents.stopped) == 1
    assert shards_of(database) == ids_of(database)


@pytest.mark.parametrize("step", CREATION)
async def test_a_creation_whose_agent_died_can_be_deleted(
    agents: Agents, database: Database[Document], step: str
) -> None:
    await agents.killed_in_creation(step)
    await agents.other.consumers.delete(NAME)
    await agents.is_hidden()
    assert shards_of(database) == ids_of(database) == set()
    await created(agents.other)


@pytest.mark.parametrize("step", DELETION)
async def test_a_deletion_whose_agent_died_is_completed_by_the_next_creation(
    agents: Agents, database: Database[Document], step: str
) -> None:
    await created(agents.other, settings=OF_OPLOG)
    terms = [await reading(agents.other, key=ShardKey(NAME, 1)) for _ in range(3)]
    await agents.killed_in_deletion(step)
    await agents.is_hidden()
    await created(agents.other)
    assert await reading(agents.stopped) > max(terms)
    assert shards_of(database) == ids_of(database)


@pytest.mark.parametrize("step", DELETION)
async def test_a_deletion_whose_agent_died_is_completed_by_the_next_one(
    agents: Agents, database: Database[Document], step: str
) -> None:
    await created(agents.other, settings=OF_OPLOG)
    last = [await reading(agents.other) for _ in range(3)][-1]
    await agents.killed_in_deletion(step)
    for _ in range(2):
        with pytest.raises(ConsumerNotFoundError):
            await agents.other.consumers.delete(NAME)
        assert shards_of(database) == ids_of(database) == set()
    await created(agents.other)
    with pytest.raises(StaleTermError):
        await agents.other.consumers.take(KEY, "a", last)


@pytest.mark.parametrize("step", ["inserted", "read", "shards"])
@pytest.mark.parametrize("last", ["deleted", "created", "marked"])
async def test_a_creator_that_slept_changes_nothing_of_a_later_consumer(
    agents: Agents, database: Database[Document], step: str, last: str
) -> None:
    """Meanwhile its consumer is completed by another agent, read, and deleted."""
    agents.steps.hold_at = step
    creating = asyncio.create_task(agents.stopped.consumers.create(NAME, OF_OPLOG, FIRST))
    await agents.steps.held.wait()
    _, is_new = await agents.other.consumers.create(NAME, OF_OPLOG, SECOND)
    assert not is_new
    terms = [await reading(agents.other, key=ShardKey(NAME, 2)) for _ in range(3)]
    if last == "marked":
        chosen = database["oplog_consumers"].update_one({}, {"$set": {"state": "deleting"}})
        assert chosen.modified_count == 1
    else:
        await agents.other.consumers.delete(NAME)
    if last == "created":
        await created(agents.other, settings=OF_OPLOG)
        terms.append(await reading(agents.other, key=ShardKey(NAME, 2)))
    agents.steps.go_on.set()
    row, is_new = await creating
    assert is_new == (last != "created")
    if is_new:
        assert row.shards == [ShardPosition(FIRST, term=max(terms) + 1)] * 3
    assert row == await agents.other.consumers.find(NAME)
    assert shards_of(database) == ids_of(database)
    terms.append(await reading(agents.other, key=ShardKey(NAME, 2)))
    assert terms == sorted(set(terms))


async def test_a_take_in_a_race_with_a_deletion_gives_no_term(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """Its swap comes after the deletion has noted the terms."""
    steps = Steps()
    deleter = await stepping(make_store, plain_url, steps)
    taker = await opened(make_store, wire.url())
    await created(deleter)
    assert await reading(deleter) == 1
    swap = wire.hold(lambda command: command.get("findAndModify") == "oplog_consumer_shards")
    taking = asyncio.create_task(reading(taker, "b"))
    await asyncio.to_thread(swap.wait)
    steps.hold_at = "ended"
    deleting = asyncio.create_task(deleter.consumers.delete(NAME))
    await steps.held.wait()
    await asyncio.to_thread(swap.release)
    with pytest.raises(ConsumerNotFoundError):
        await taking
    steps.go_on.set()
    await deleting
    await created(deleter)
    with pytest.raises(StaleTermError):
        await taker.consumers.take(KEY, "a", 1)
    assert await reading(taker) == 3


async def test_a_take_does_not_change_a_shard_of_a_later_consumer(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    taker = await opened(make_store, wire.url())
    await created(other)
    swap = wire.hold(lambda command: command.get("findAndModify") == "oplog_consumer_shards")
    taking = asyncio.create_task(reading(taker))
    await asyncio.to_thread(swap.wait)
    await other.consumers.delete(NAME)
    await created(other)
    before = await position(other)
    await asyncio.to_thread(swap.release)
    # It finds the later consumer after its swap has failed.
    assert await taking == before.term + 1
    assert await position(other) == before._replace(term=before.term + 1, reader="a")


@pytest.mark.parametrize("command", ["insert", "update"])
async def test_a_creation_whose_answer_was_lost_can_be_repeated(
    command: str, wire: Wire, plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())

    def is_cut(sent: Command) -> bool:
        return sent.get(command) == "oplog_consumers"

    wire.cut(is_cut)
    with pytest.raises(StoreUnavailableError, match="the connection broke"):
        await store.consumers.create(NAME, OF_OPLOG, FIRST)
    assert wire.cuts == 1
    wire.cut(None)
    row, is_new = await store.consumers.create(NAME, OF_OPLOG, FIRST)
    assert not is_new
    assert await other.consumers.find(NAME) == row
    assert shards_of(database) == ids_of(database)


async def test_changes_whose_answers_were_lost_can_be_repeated(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    await created(other)

    def is_swap(sent: Command) -> bool:
        return sent.get("findAndModify") == "oplog_consumer_shards"

    wire.cut(is_swap)
    with pytest.raises(StoreUnavailableError, match="the connection broke"):
        await reading(store)
    wire.cut(None)
    assert await reading(store) == 2
    wire.cut(is_swap)
    (outcome,) = await acknowledge(store, given(FIRST, 2))
    assert isinstance(outcome.error, StoreUnavailableError)
    wire.cut(None)
    (outcome,) = await acknowledge(store, given(FIRST, 2))
    assert outcome.is_older
    assert outcome.shard == await position(other)


async def test_a_late_copy_of_a_creation_is_completed_with_terms_behind_those_before(
    wire: Wire, plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    insert = wire.hold(lambda command: command.get("insert") == "oplog_consumers")
    creating = asyncio.create_task(store.consumers.create(NAME, SETTINGS, FIRST))
    await asyncio.to_thread(insert.wait)
    insert.cut()
    with pytest.raises(StoreUnavailableError):
        await creating
    await created(other)
    terms = [await reading(other) for _ in range(3)]
    await other.consumers.delete(NAME)
    await asyncio.to_thread(insert.release)
    with pytest.raises(ConsumerNotFoundError):
        await other.consumers.find(NAME)
    row, is_new = await other.consumers.create(NAME, SETTINGS, SECOND)
    assert (row.shards[0].position, is_new) == (FIRST, False)
    assert await reading(store) > max(terms)
    assert shards_of(database) == ids_of(database)

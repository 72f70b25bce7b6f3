"""Begins of transactions between the judgement that their group is idle and the end of its log."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import DEFAULT_TTL, Topic
from oplogd.store.transactions import NewTransaction
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire

NAME = TopicName("system", "_txn.g")


def ends_a_log(command: Command) -> bool:
    return any(each.get("kind") == "end" for each in command.get("documents", ()))


def begins(command: Command) -> bool:
    return any(each.get("kind") == "message" for each in command.get("documents", ()))


async def both(
    wire: Wire, plain_url: str, make_store: MakeStore, *, keeps: str
) -> tuple[MongoStore, MongoStore, Topic]:
    """Return a store at MongoDB, one behind the wire, and the idle log. ``keeps``: the keeper."""
    plain = make_store(plain_url, "plain", lease=60)
    wired = make_store(wire.url(), "plain", lease=60)
    for each in (wired, plain) if keeps == "wired" else (plain, wired):
        await each.open()
    return plain, wired, await plain.topics.create(NAME, None)


async def test_a_begin_before_the_end_keeps_the_log(
    clock: VirtualClock,
    wire: Wire,
    plain_url: str,
    make_store: MakeStore,
) -> None:
    plain, keeper, topic = await both(wire, plain_url, make_store, keeps="wired")
    clock.ms += 1000 * DEFAULT_TTL + 1
    held = wire.hold(ends_a_log)
    retiring = asyncio.create_task(keeper.transactions.retire(lambda log: False))
    await asyncio.to_thread(held.wait)
    begun = await plain.transactions.begin(NewTransaction(topic.log, "g", None, 60_000))
    held.release()
    assert await retiring == 0
    assert await plain.topics.find(NAME) == topic
    committed = await plain.transactions.commit(begun.id, 0)
    assert committed.transaction.commit is not None


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_begin_whose_record_comes_after_the_end_is_refused_and_leaves_no_row(
    is_seen: bool,
    clock: VirtualClock,
    database: Database[Document],
    wire: Wire,
    plain_url: str,
    make_store: MakeStore,
) -> None:
    """``is_seen``: the keeper judges after the row of the transaction is there."""
    keeper, agent, topic = await both(wire, plain_url, make_store, keeps="plain")
    clock.ms += 1000 * DEFAULT_TTL + 1
    held = wire.hold(begins)
    new = NewTransaction(topic.log, "g", None, 60_000)
    beginning = asyncio.create_task(agent.transactions.begin(new))
    await asyncio.to_thread(held.wait)
    if is_seen:
        assert await keeper.transactions.retire(lambda log: False) == 0
    else:
        await keeper.topics.delete(NAME)
    held.release()
    if is_seen:
        assert (await beginning).log == topic.log
    else:
        with pytest.raises(TopicNotFoundError):
            await beginning
    assert database["oplog_txns"].count_documents({}) == is_seen

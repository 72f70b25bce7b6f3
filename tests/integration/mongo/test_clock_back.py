"""What an agent left undone while the clock was ahead is done when the clock is right again."""

from collections.abc import Awaitable

import pytest
from pymongo.database import Database

from oplogd.model.pointer import Decision
from oplogd.model.transaction import State
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import (
    KilledError,
    Steps,
    begin,
    opened,
    stepping,
    topics_of,
)
from tests.integration.mongo.pointing import TEPHRA, kinds, publish
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.store.stepping import YEARS, stepped

_SETTLED_MS = 3_001


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def keeper(plain_url: str, make_store: MakeStore) -> MongoStore:
    return await opened(make_store, plain_url)


@pytest.fixture
async def other(
    plain_url: str, make_store: MakeStore, keeper: MongoStore, steps: Steps
) -> MongoStore:
    return await stepping(make_store, plain_url, steps)


async def killed_ahead(
    clock: VirtualClock, steps: Steps, step: str, stores: list[MongoStore], call: Awaitable[object]
) -> None:
    """Kill a call after a step in a year that both agents have followed. Then set it back."""
    await stepped(clock, stores, YEARS, 61)
    steps.kill_at = step, 1
    with pytest.raises(KilledError):
        await call
    steps.kill_at = None
    await stepped(clock, stores, -YEARS, 661)


@pytest.mark.parametrize("step", ["decided", "commit-record"])
async def test_a_commit_is_completed(
    keeper: MongoStore, other: MongoStore, steps: Steps, clock: VirtualClock, step: str
) -> None:
    await topics_of(keeper, "a")
    transaction = await begin(other, timeout_ms=900_000)
    call = other.transactions.commit(transaction.id, 0)
    await killed_ahead(clock, steps, step, [keeper, other], call)
    await keeper.transactions.keep()
    assert await keeper.transactions.select(State.COMMITTING, None, 10) == []


async def test_a_rollback_is_completed(
    keeper: MongoStore, other: MongoStore, steps: Steps, clock: VirtualClock
) -> None:
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a")
    call = other.pointers.rollback(topic.log, TEPHRA, None)
    await killed_ahead(clock, steps, "rollback-noted", [keeper, other], call)
    await keeper.pointers.keep()
    assert await kinds(keeper, topic) == ["void", "void"]


async def test_a_report_is_completed(
    keeper: MongoStore, other: MongoStore, steps: Steps, clock: VirtualClock
) -> None:
    topics = await topics_of(keeper, "a", "b")
    for topic in topics:
        await publish(keeper, topic, "x")
    call = other.pointers.decide([each.log for each in topics], TEPHRA, Decision.COMMITTED)
    await killed_ahead(clock, steps, "recorded", [keeper, other], call)
    await keeper.pointers.keep()
    for topic in topics:
        assert await kinds(keeper, topic) == ["direct", "commit"]


async def test_indexes_are_looked_after(
    keeper: MongoStore, clock: VirtualClock, database: Database[Document]
) -> None:
    await topics_of(keeper, "a")
    await stepped(clock, [keeper], YEARS, 61)
    await keeper.transactions.keep()
    await keeper.pointers.keep()
    await stepped(clock, [keeper], -YEARS, 661)
    database["oplog_txns"].drop_index("active")
    database["oplog_pointers"].drop_index("due")
    await keeper.transactions.keep()
    await keeper.pointers.keep()
    assert "active" in database["oplog_txns"].index_information()
    assert "due" in database["oplog_pointers"].index_information()

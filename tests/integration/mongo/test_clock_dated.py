"""What was dated by a server's clock that was ahead for a while, once the clock is right again."""

import pytest
from pymongo.database import Database

from oplogd.errors import TransactionNotFoundError
from oplogd.store.leases import LeaseRequest
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import (
    Steps,
    begin,
    opened,
    record,
    stepping,
    topics_of,
    write,
)
from tests.integration.mongo.pointing import publish
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore

YEARS = 10 * 365 * 86_400
_SETTLED_MS = 3_001


class World:
    """A keeper, an agent that the test kills, and the clock of their server."""

    def __init__(self, clock: VirtualClock, keeper: MongoStore, killed: MongoStore) -> None:
        self.clock = clock
        self.keeper = keeper
        self.killed = killed
        self.steps = Steps()

    async def step(self, seconds: int) -> None:
        """Set the clock, and let it stand until times follow it."""
        self.clock.jump(seconds)
        for _ in range(2):
            await self.stand(61)

    async def stand(self, seconds: int) -> None:
        for _ in range(2):
            for store in (self.keeper, self.killed):
                await store.keep_clock()
            self.clock.ms += 500 * seconds


@pytest.fixture
async def world(plain_url: str, make_store: MakeStore, clock: VirtualClock) -> World:
    keeper = await opened(make_store, plain_url)
    steps = Steps()
    world = World(clock, keeper, await stepping(make_store, plain_url, steps))
    world.steps = steps
    return world


async def test_transactions_are_forgotten_as_before(world: World) -> None:
    (topic,) = await topics_of(world.keeper, "a")
    begun = await write(world.keeper, await begin(world.keeper), record(0, topic, "a"))
    await world.keeper.transactions.commit(begun.id, 1)
    await world.step(YEARS)
    await world.keeper.transactions.keep()
    await world.step(-YEARS)
    for _ in range(2):
        await world.stand(86_400)
    await world.keeper.transactions.keep()
    with pytest.raises(TransactionNotFoundError):
        await world.keeper.transactions.find(begun.id)


async def test_a_topic_that_was_deleted_leaves_the_store(
    world: World, database: Database[Document]
) -> None:
    (topic,) = await topics_of(world.keeper, "a")
    await publish(world.keeper, topic, "a")
    await world.step(YEARS)
    await world.keeper.topics.delete(topic.name)
    await world.step(-YEARS)
    for _ in range(2):
        await world.stand(86_400)
        await world.keeper.topics.sweep()
    number = f"{topic.log & 0xFFFFFF:06x}"
    assert database["oplog_entries"].count_documents({"_id": {"$regex": f"^{number}"}}) == 0


async def test_the_list_of_leases_goes_by_the_clock_of_the_leases(world: World) -> None:
    request = LeaseRequest("a", "me", 10_000)
    await world.keeper.leases.poll(request)
    world.clock.jump(-5000)
    await world.stand(11)
    found = await world.keeper.leases.find("a")
    assert await world.keeper.leases.select("", 10) == [found]

"""Named consumers for tests: settings, ids, and short ways to read and acknowledge."""

from typing import Protocol

from oplogd.model.consumer import Acknowledgement, ConsumerSettings, ShardKey, ShardPosition
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.transaction import Isolation
from oplogd.store.consumers import Acknowledged, Consumers

NAME = "billing"
KEY = ShardKey(NAME, 0)
SETTINGS = ConsumerSettings(TopicName("shop", "orders"))
OF_OPLOG = ConsumerSettings(
    OPLOG, frozenset({"car", "ä"}), frozenset({"a/b", "c"}), Isolation.READ_UNCOMMITTED, 3
)
# Ids of a log in their order, and times as within a replication.
FIRST, SECOND, THIRD = (f"{number:024x}" for number in (0x655, 0x656, 0x657))
TIME = "1700000000000"
EARLIER = "1600000000000"


class WithConsumers(Protocol):
    """A store."""

    @property
    def consumers(self) -> Consumers: ...


def given(
    id_: str, term: int = 1, *, key: ShardKey = KEY, instead_of: str | None = None
) -> Acknowledgement:
    return Acknowledgement(key, term, id_, instead_of)


async def created(
    store: WithConsumers, name: str = NAME, settings: ConsumerSettings = SETTINGS
) -> None:
    _, is_new = await store.consumers.create(name, settings, "0")
    assert is_new


async def reading(store: WithConsumers, reader: str = "a", key: ShardKey = KEY) -> int:
    """Let a reader take a shard. Return its term."""
    _, shard = await store.consumers.take(key, reader, None)
    return shard.term


async def position(store: WithConsumers, key: ShardKey = KEY) -> ShardPosition:
    return (await store.consumers.find(key.name)).shards[key.shard]


async def acknowledge(
    store: WithConsumers, *acknowledgements: Acknowledgement
) -> list[Acknowledged]:
    return await store.consumers.acknowledge(acknowledgements)

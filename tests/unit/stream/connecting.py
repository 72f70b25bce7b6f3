"""Consumers of a world, and operations for them."""

from oplogd.stream.ring.filters import Filter
from tests.kits.models.operations import operation
from tests.kits.stream.clients import Client
from tests.kits.stream.worlds import World

RARE = Filter(frozenset({"rare"}))


async def connected(
    world: World, last_id: str, filter_: Filter = RARE, checkpoints: bool = False
) -> Client:
    client = Client(world, filter_, checkpoints)
    await client.begin(last_id)
    world.clients.append(client)
    assert client.consumer is not None
    return client


async def grow(world: World, *types: str) -> None:
    await world.append([operation(type_=type_) for type_ in types])
    await world.catch_up()

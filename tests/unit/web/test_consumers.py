"""The list of consumers in /status: its members and its bounded size."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oplogd.model.event_id import format_id
from oplogd.stream.lags import survey
from oplogd.stream.ring.filters import Filter
from oplogd.web.figures.consumers import MAX_CONSUMERS, consumer_members
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered, operation
from tests.kits.stream.clients import Client
from tests.kits.stream.worlds import Sizes, World

SIZES = Sizes(cap=10**9, ring_entries=16, ring_bytes=10**9, page=4, chunk=10**6)
RARE = Filter(frozenset({"rare"}))
ALL = Filter()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(tmp_path, SIZES, monkeypatch)
    await world.start()
    yield world
    await world.stop()


async def connect(world: World, filter_: Filter, last_id: str = "") -> Client:
    client = Client(world, filter_)
    await client.begin(last_id)
    world.clients.append(client)
    return client


async def grow(world: World, *types: str) -> None:
    await world.append([operation(type_=type_) for type_ in types])
    await world.catch_up()


async def listed(world: World) -> list[dict[str, Any]]:
    answer = await consumer_members(await survey(world.hub.consumers, world.clock.ms))
    assert answer["consumers_left_out"] == 0
    return sorted(answer["consumers"], key=lambda consumer: int(consumer["id"]))


async def lags(world: World) -> list[tuple[int, float]]:
    return [
        (consumer["lag"]["operations"], consumer["lag"]["seconds"])
        for consumer in await listed(world)
    ]


async def test_the_lag_counts_operations_that_pass_the_filter_and_were_not_handed_out(
    world: World,
) -> None:
    await connect(world, ALL)
    await connect(world, RARE)
    assert await lags(world) == [(0, 0), (0, 0)]
    await grow(world, "video", "video")
    world.clock.ms += 2000
    await grow(world, "rare", "video")
    world.clock.ms += 1500
    assert await lags(world) == [(4, 3.5), (1, 1.5)]
    for client in world.clients:
        while await client.read():
            pass
    assert await lags(world) == [(0, 0), (0, 0)]


async def test_a_consumer_of_rare_operations_does_not_lag_because_others_are_busy(
    world: World,
) -> None:
    await connect(world, RARE)
    await grow(world, "rare")
    assert await world.clients[0].read()
    await grow(world, *["video"] * 100)
    assert await lags(world) == [(0, 0)]


async def test_operations_from_before_the_consumer_all_count_in_the_lag(world: World) -> None:
    await grow(world, "video")
    world.clock.ms += 1000
    await grow(world, "video", "rare")
    world.clock.ms += 1000
    await connect(world, RARE, format_id(world.mark(1)))
    assert await lags(world) == [(2, 1)]
    await grow(world, "video", "rare")
    assert await lags(world) == [(3, 1)]


async def test_behind_the_ring_every_operation_counts(world: World) -> None:
    await grow(world, "video")
    world.clock.ms += 1000
    await grow(world, *["video"] * 100)
    world.clock.ms += 1000
    await connect(world, RARE, format_id(world.mark(1)))
    assert await lags(world) == [(100, 2)]


async def test_a_replicating_consumer_lags_by_the_operations_since_its_start(
    world: World,
) -> None:
    await world.append(numbered(10))
    await world.catch_up()
    client = await connect(world, ALL, "0")
    assert await lags(world) == [(0, 0)]
    await client.read()
    await client.read()
    world.clock.ms += 1000
    await grow(world, "video", "video")
    world.clock.ms += 250
    (shown,) = await listed(world)
    assert shown["phase"] == "replication"
    assert shown["position"] == client.last_id
    assert shown["lag"] == {"operations": 2, "seconds": 0.25}
    assert shown["sent"] == 4


async def test_a_consumer_is_shown_with_its_filter_and_position(world: World) -> None:
    await grow(world, "video")
    client = await connect(world, Filter(frozenset({"b", "a"}), frozenset({"x"})))
    assert client.consumer is not None
    client.consumer.connected_at = START_MS / 1000
    assert await listed(world) == [
        {
            "id": 1,
            "name": "",
            "address": "test",
            "filter": {"types": ["a", "b"], "parents": ["x"], "left_out": 0},
            "phase": "live",
            "position": format_id(world.mark(1)),
            "lag": {"operations": 0, "seconds": 0},
            "sent": 0,
            "connected_since": "2023-11-14T22:13:20.000Z",
        }
    ]


async def test_a_filter_shows_the_further_sets_that_it_has(world: World) -> None:
    a, x, y = frozenset("a"), frozenset("x"), frozenset("y")
    await connect(world, Filter(parents=x, within=y, ids=a, events=frozenset({"delete"})))
    (shown,) = await listed(world)
    assert shown["filter"] == {
        "types": [], "parents": ["x"], "within": ["y"], "ids": ["a"], "events": ["delete"],
        "left_out": 0,
    }  # fmt: skip


async def test_a_long_filter_is_shortened(world: World) -> None:
    await connect(
        world, Filter(frozenset(f"t{n:02}" for n in range(50)), frozenset({"x" * 60_000, "y"}))
    )
    (shown,) = await listed(world)
    assert shown["filter"]["types"] == [f"t{n:02}" for n in range(10)]
    assert shown["filter"]["parents"] == ["x" * 99 + "…", "y"]
    assert shown["filter"]["left_out"] == 40


async def test_of_many_consumers_the_ones_with_the_largest_lag_are_shown(world: World) -> None:
    await grow(world, "video")
    for _ in range(3):
        await connect(world, ALL, format_id(world.mark(1)))
    await grow(world, "video", "video")
    for _ in range(MAX_CONSUMERS + 50):
        await world.hub.connect(None, ALL, checkpoints=False, address="test")
    answer = await consumer_members(await survey(world.hub.consumers, world.clock.ms))
    told = [consumer["id"] for consumer in answer["consumers"]]
    assert told == [1, 2, 3, *range(4, MAX_CONSUMERS + 1)]
    assert answer["consumers_left_out"] == 53
    assert len(msgspec.json.encode(answer)) < 300 * MAX_CONSUMERS

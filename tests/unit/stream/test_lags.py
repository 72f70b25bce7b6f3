"""Lags of consumers and names, fall-backs, and refused consumers."""

import asyncio
from typing import get_args

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import EventId, Position, parse_position
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import TooManyClientsError, TooManyFromAddressError
from oplogd.stream.lags import MAX_NAMES, MeasuredLag, Named, shown_names, survey
from oplogd.stream.refused import Refusal
from oplogd.stream.ring.filters import Filter
from tests.kits.models.operations import numbered
from tests.kits.stream.clients import Client
from tests.kits.stream.worlds import Sizes, World

SIZES = Sizes(cap=10**9, ring_entries=16, ring_bytes=10**9, page=4, chunk=10**6)
ALL = Filter()


@pytest.fixture
def sizes() -> Sizes:
    return SIZES


async def connect(world: World, name: str = "", position: Position | None = None) -> StreamConsumer:
    return await world.hub.connect(
        position, ALL, checkpoints=False, address="192.0.2.1:1", name=name
    )


async def grow(world: World, count: int) -> None:
    await world.append(numbered(count))
    await world.catch_up()


async def test_a_survey_returns_the_largest_lag_of_all_and_of_each_name(world: World) -> None:
    assert (await survey(world.hub.consumers, world.clock.ms))[1:] == (MeasuredLag(0, 0.0), {})
    await connect(world, "search")
    await grow(world, 2)
    world.clock.ms += 3000
    await connect(world, "search")
    await connect(world)
    await connect(world, "copy")
    await grow(world, 1)
    world.clock.ms += 500
    lags = await survey(world.hub.consumers, world.clock.ms)
    assert lags.largest == MeasuredLag(3, 3.5)
    assert lags.named == {
        "copy": Named(1, MeasuredLag(1, 0.5)),
        "search": Named(2, MeasuredLag(3, 3.5)),
    }


async def test_of_too_many_names_the_ones_with_the_largest_lags_are_returned(world: World) -> None:
    late = await connect(world, "zz-late")
    await grow(world, 1)
    for number in range(MAX_NAMES + 9):
        await connect(world, f"name-{number:03}")
    lags = await survey(world.hub.consumers, world.clock.ms + 1000)
    shown, left_out = shown_names(lags.named)
    assert list(shown) == [
        *(f"name-{number:03}" for number in range(MAX_NAMES - 1)),
        late.name,
    ]
    assert left_out == 10


async def test_a_survey_of_many_consumers_gives_way_to_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        await connect(world)
    monkeypatch.setattr("oplogd.stream.follower._WORK_SECONDS", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await survey(world.hub.consumers, world.clock.ms)
    counting.cancel()
    assert turns >= 50


# --- Fall-backs ---


def fallbacks(world: World) -> tuple[int, int]:
    return world.hub.counters.to_store, world.hub.counters.to_states


async def drain(client: Client) -> None:
    while await client.read():
        pass


async def test_a_consumer_that_falls_behind_the_ring_is_counted_once_each_time(
    world: World,
) -> None:
    client = Client(world, ALL)
    await client.begin("")
    for times in (1, 2):
        await grow(world, SIZES.ring_entries)
        await drain(client)
        assert fallbacks(world) == (times - 1, 0)
        await grow(world, 3 * SIZES.ring_entries)
        await drain(client)
        assert fallbacks(world) == (times, 0)
    assert client.consumer is not None
    world.hub.disconnect(client.consumer)


async def test_a_consumer_with_an_unknown_id_is_counted_when_it_gets_states(
    world: World,
) -> None:
    await grow(world, 1)
    other = parse_position(f"{world.mark(1).ms // 1000:08x}{world.mark(1).ms % 1000:04x}{999:012x}")
    assert isinstance(other, EventId)
    await connect(world, position=other)
    assert fallbacks(world) == (0, 1)
    await connect(world, position=parse_position("0"))
    await connect(world, position=parse_position(str(world.mark(1).ms)))
    await connect(world)
    assert fallbacks(world) == (0, 1), "they asked for states, or for new operations"


# --- Refused consumers ---


async def test_consumers_that_are_not_connected_are_counted_by_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = world.hub
    before = hub.refused.members()
    assert before == dict.fromkeys(get_args(Refusal), 0)

    async def away(offset: int = 0) -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "locate", away)
        with pytest.raises(StoreUnavailableError):
            await connect(world)
    monkeypatch.setattr(hub, "max_clients_per_address", 1)
    await connect(world)
    with pytest.raises(TooManyFromAddressError):
        await connect(world)
    monkeypatch.setattr(hub, "max_clients", 1)
    for _ in range(2):
        with pytest.raises(TooManyClientsError):
            await connect(world)
    assert hub.refused.members() == {
        **before,
        "store": 1,
        "max_clients_per_address": 1,
        "max_clients": 2,
    }

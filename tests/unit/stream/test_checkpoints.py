"""Heartbeats and the positions in them."""

import asyncio
import time

import pytest

from oplogd.model.event_id import format_id
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import HEARTBEAT
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered
from tests.kits.stream.checks import mark_of
from tests.kits.stream.reading import awaited
from tests.kits.stream.worlds import DEADLINE, World
from tests.unit.stream.connecting import connected, grow

RARE = Filter(frozenset({"rare"}))


async def beaten(consumer: StreamConsumer) -> bytes:
    """Return the next chunk of a consumer whose heartbeat becomes due while it asks the store."""
    chunk = asyncio.create_task(awaited(consumer))
    await asyncio.sleep(0)
    consumer.last_write = float("-inf")
    return await chunk


async def test_heartbeats_are_sent_while_pages_of_the_store_hold_nothing_that_passes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.phases.catch_up.PAGE", 1)
    await world.append(numbered(3))
    world.ring.restart(world.head)
    client = await connected(world, format_id(world.mark(1)))
    assert client.consumer is not None
    assert await beaten(client.consumer) == HEARTBEAT
    assert mark_of(client.consumer) == world.mark(2)


async def test_heartbeats_are_sent_while_pages_of_states_hold_nothing_that_passes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.phases.oplog_bridge.PAGE", 1)
    await world.append(numbered(2))
    client = await connected(world, str(START_MS), checkpoints=True)
    assert client.consumer is not None
    assert await beaten(client.consumer) == HEARTBEAT
    assert await beaten(client.consumer) == HEARTBEAT
    assert (await awaited(client.consumer)).endswith(b"event: live\ndata:\n\n")


async def test_a_heartbeats_checkpoint_skips_operations_that_do_not_pass(world: World) -> None:
    await grow(world, "rare")
    client = await connected(world, "", checkpoints=True)
    assert client.consumer is not None
    greeting = f"id: {format_id(world.mark(1))}\n\n".encode()
    assert await awaited(client.consumer) == greeting
    assert await awaited(client.consumer) == greeting  # it has caught up
    await grow(world, "video", "video")
    client.consumer.heartbeat = 0
    assert (
        await awaited(client.consumer) == HEARTBEAT + f"id: {format_id(world.mark(3))}\n\n".encode()
    )


async def test_a_heartbeats_checkpoint_skips_operations_that_did_not_pass_while_it_slept(
    world: World,
) -> None:
    client = await connected(world, "", checkpoints=True)
    assert client.consumer is not None
    assert [await client.read() for _ in range(3)] == [True, True, False]
    await grow(world, "video", "video")
    client.consumer.last_write = float("-inf")
    world.hub.look(time.monotonic())
    assert await client.woken() == HEARTBEAT + f"id: {format_id(world.mark(2))}\n\n".encode()


@pytest.mark.parametrize("is_behind_the_ring", [False, True])
async def test_a_filtered_stream_says_once_that_it_has_caught_up(
    world: World, is_behind_the_ring: bool
) -> None:
    await grow(world, "rare", "video", "video", "rare", "video")
    if is_behind_the_ring:
        await world.restart_ring()
    client = await connected(world, format_id(world.mark(1)), checkpoints=True)
    assert client.consumer is not None
    chunks = [await awaited(client.consumer) for _ in range(3)]
    assert [chunk.partition(b"\n")[0].decode() for chunk in chunks] == [
        f"id: {format_id(world.mark(number))}" for number in (1, 4, 5)
    ]
    assert not await client.read()


async def test_the_checkpoint_of_an_empty_log_is_the_time_of_its_beginning(world: World) -> None:
    client = await connected(world, "", checkpoints=True)
    assert client.consumer is not None
    assert await awaited(client.consumer) == f"id: {START_MS}\n\n".encode()


async def test_the_first_checkpoint_comes_also_if_the_follower_lost_its_place_before(
    world: World,
) -> None:
    await grow(world, "rare")
    client = await connected(world, "", checkpoints=True)
    await world.restart_ring()
    assert client.consumer is not None
    assert await awaited(client.consumer) == f"id: {format_id(world.mark(1))}\n\n".encode()


@pytest.mark.parametrize(("last_id", "calls"), [("0", 3), ("1", 3)], ids=["everything", "changes"])
async def test_heartbeats_are_sent_while_the_store_does_not_answer_and_nothing_is_asked_twice(
    world: World, last_id: str, calls: int
) -> None:
    client = await connected(world, last_id, Filter())
    consumer = client.consumer
    assert consumer is not None
    if last_id == "0":
        assert (await awaited(consumer)).startswith(b"id: 1")
    answers = asyncio.Event()
    asked = asyncio.Semaphore(0)

    async def wait() -> None:
        asked.release()
        await answers.wait()

    world.store.meddle = [wait] * (calls + 1)  # checkpoint, states, locate
    chunk = client.act(awaited(consumer))
    world.store.victim = client
    async with asyncio.timeout(DEADLINE):
        await asked.acquire()
        for _ in range(2):
            consumer.last_write = float("-inf")
            assert consumer.tick(time.monotonic())
            consumer.wake()
            assert await chunk == HEARTBEAT
            chunk = client.act(awaited(consumer))
            await asyncio.sleep(0)
        answers.set()
        assert (await chunk).endswith(b"event: live\ndata:\n\n")
    assert len(world.store.meddle) == 1


async def test_heartbeats_carry_no_checkpoint_unless_asked_for(world: World) -> None:
    client = await connected(world, "")
    assert client.consumer is not None
    client.consumer.heartbeat = 0
    assert await awaited(client.consumer) == HEARTBEAT


async def test_the_first_checkpoint_comes_also_to_a_consumer_that_is_behind_the_ring(
    world: World,
) -> None:
    await world.append(numbered(3))
    await world.restart_ring()
    client = await connected(world, format_id(world.mark(1)), Filter(), checkpoints=True)
    assert client.consumer is not None
    assert await awaited(client.consumer) == f"id: {format_id(world.mark(1))}\n\n".encode()


async def test_a_heartbeat_has_no_checkpoint_while_the_log_may_be_another_one(world: World) -> None:
    await grow(world, "rare")
    client = await connected(world, "", checkpoints=True)
    assert client.consumer is not None
    assert [await client.read() for _ in range(3)] == [True, True, False]
    client.consumer.last_write = float("-inf")
    world.ring.restart(world.head)
    assert await client.woken() == HEARTBEAT

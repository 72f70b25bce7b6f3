"""A single consumer: heartbeats, checkpoints, its end, and steps that ask the store."""

import asyncio
import time

import pytest

from oplogd.model.event_id import Millis, format_id
from oplogd.store import Entry
from oplogd.stream.hub import TooManyClientsError
from oplogd.stream.ring.filters import Filter
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered, operation
from tests.kits.stream.reading import AwaitedConnection, awaited
from tests.kits.stream.worlds import DEADLINE, World
from tests.unit.stream.connecting import connected, grow

RARE = Filter(frozenset({"rare"}))


async def test_a_resume_reads_past_pieces_of_the_ring_that_hold_nothing_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", 1)
    await grow(world, "video", "video", "video", "rare", "video", "rare")
    client = await connected(world, format_id(world.mark(1)))
    assert await client.read()
    assert await client.read()
    assert not await client.read()
    client.check_drained()


async def test_a_consumer_whose_connection_is_full_is_not_woken_but_ends_when_its_age_is_reached(
    world: World,
) -> None:
    client = await connected(world, "")
    consumer = client.consumer
    assert consumer is not None
    consumer.last_write = float("-inf")
    consumer.connection = AwaitedConnection(is_full=True)
    assert not consumer.tick(time.monotonic())
    consumer.ends_at = 0
    assert not consumer.tick(time.monotonic())
    assert await awaited(consumer) == b""


async def test_a_consumer_ends_while_the_store_does_not_answer(world: World) -> None:
    client = await connected(world, "1", Filter())
    consumer = client.consumer
    assert consumer is not None
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    world.store.meddle = [wait]
    chunk = client.act(awaited(consumer))
    world.store.victim = client
    async with asyncio.timeout(DEADLINE):
        await asked.wait()
        consumer.end()
        assert await chunk == b""
        assert not cancelled.is_set()
        await client.disconnect()
        await cancelled.wait()


async def test_a_pause_ends_after_its_time_or_by_a_wake(world: World) -> None:
    client = await connected(world, "")
    consumer = client.consumer
    assert consumer is not None
    assert consumer.take() is None
    consumer.connection = connection = AwaitedConnection()
    loop = asyncio.get_running_loop()
    called = client.act(connection.called())
    await asyncio.sleep(0)
    consumer.pause(0.01)
    consumer.wake()
    await called
    called = client.act(connection.called())
    began = loop.time()
    consumer.pause(0.01)
    await called
    assert loop.time() - began >= 0.009


async def test_end_wakes_a_consumer_that_sleeps(world: World) -> None:
    client = await connected(world, "")
    assert client.consumer is not None
    assert not await client.read()
    client.consumer.end()
    assert await client.woken() == b""


async def test_a_stream_ends_at_its_age_and_not_before(world: World) -> None:
    client = await connected(world, "")
    assert client.consumer is not None
    client.consumer.ends_at = 100.0
    client.consumer.tick(99.9)
    assert not client.consumer.ending
    client.consumer.tick(100.0)
    assert client.consumer.ending


async def test_consumers_over_the_limit_are_refused_until_one_leaves(world: World) -> None:
    world.hub.max_clients = 1
    client = await connected(world, "")
    with pytest.raises(TooManyClientsError):
        await world.hub.connect(Millis(0), RARE, checkpoints=False, address="test")
    await client.disconnect()
    await connected(world, "")


async def test_live_of_an_empty_log_resumes_though_the_log_has_begun_meanwhile(
    world: World,
) -> None:
    client = await connected(world, "0", Filter())
    assert await client.read()

    async def append() -> None:
        await world.append([operation()])

    async def nothing() -> None:
        pass

    world.store.meddle = [
        nothing,
        append,
    ]  # after the checkpoint is known, before the last look at the log
    assert await client.read()
    assert (client.phase, client.last_id, client.place) == ("live", "1", 0)
    await client.disconnect()
    await client.resume(client.filter)
    await world.catch_up()
    while await client.read():
        pass
    client.check_drained()
    assert client.resets == 1
    assert len(client.objects) == 1


async def test_counters_count_operations_and_states_but_no_reset_or_live(world: World) -> None:
    await grow(world, "rare", "video")
    client = await connected(world, "0")
    await grow(world, "rare")
    while await client.read():
        pass
    client.check_drained()
    assert client.consumer is not None
    assert client.consumer.sent == world.hub.counters.events_sent == 1


async def test_a_replication_of_a_few_objects_reads_no_pages_of_states(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.append(numbered(30, type_="a"))
    await world.append([operation("delete", "a", "7"), operation("update", "a", "8")])
    await world.catch_up()
    monkeypatch.setattr(world.store, "states", None)
    few = Filter(frozenset({"a", "b"}), ids=frozenset({"9", "8", "7", "none"}))
    client = await connected(world, "0", few)
    while await client.read():
        pass
    client.check_drained()
    assert list(client.objects) == ["a/9", "a/8"], "in the order of their time"
    assert client.consumer is not None
    assert client.consumer.sent == 2, "no deletion is in a full replication"


async def test_a_purge_in_the_midst_of_a_replication_is_noticed_before_live(world: World) -> None:
    await world.append([operation(id_="gone"), operation(id_="stays")])
    world.clock.ms += 10
    await world.append([operation("delete", id_="gone")])
    client = await connected(world, str(START_MS + 5), Filter())
    assert len(client.objects) == 2

    async def purge() -> None:
        await world.purge(world.head.ms + 1)

    world.store.meddle = [purge]  # after the checkpoint is known, before the states are read
    await world.catch_up()
    while await client.read():
        pass
    client.check_drained()
    assert client.resets == 1
    assert len(client.objects) == 1


async def test_a_live_consumer_that_fell_off_ring_and_log_goes_on_from_the_states(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.ring, "max_entries", 2)
    await grow(world, "video")
    client = await connected(world, "", Filter())
    world.store.shrink(600)
    for number in range(20):
        await grow(world, f"type{number}")
    assert not await world.is_in_log(2)
    while await client.read():
        pass
    client.check_drained()
    assert client.resets == 0
    assert len(client.objects) == 21


async def test_live_of_an_empty_log_has_the_time_of_the_last_state_as_its_id(world: World) -> None:
    await world.append(numbered(3))
    world.clock.ms += 10
    await world.new_epoch()
    client = await connected(world, "0", Filter())
    while await client.read():
        pass
    assert (client.phase, client.last_id) == ("live", str(START_MS + 10))
    assert len(client.objects) == 3


async def test_a_new_epoch_in_the_midst_of_a_replication_begins_it_anew(world: World) -> None:
    await world.append(numbered(3))
    client = await connected(world, "0", Filter())
    assert await client.read()
    await world.new_epoch()
    while await client.read():
        pass
    client.check_drained()
    assert client.resets == 2


async def test_entries_that_leave_the_log_during_a_replication_come_as_states_before_live(
    world: World,
) -> None:
    await world.append([operation(id_="first")])
    client = await connected(world, "0", Filter())
    assert await client.read()
    assert await client.read()
    world.store.shrink(600)
    while await world.is_in_log(2) or len(world.history) == 1:
        await grow(world, f"type{len(world.history)}")
    assert await world.is_in_log(3)
    await world.restart_ring()
    while await client.read():
        pass
    client.check_drained()
    assert (client.phase, client.resets) == ("live", 1)
    assert world.hub.counters.to_states == 0


async def test_a_deletion_that_left_the_log_and_the_states_during_a_replication_begins_it_anew(
    world: World,
) -> None:
    await world.append([operation(id_="gone")])
    client = await connected(world, "0", Filter())
    assert await client.read()
    assert await client.read()
    await world.append([operation("delete", id_="gone")])
    world.clock.ms += 10
    world.store.shrink(600)
    while await world.is_in_log(2):
        await grow(world, f"type{len(world.history)}")
    await world.purge(START_MS + 1)
    await world.restart_ring()
    while await client.read():
        pass
    client.check_drained()
    assert client.resets == 2


async def test_the_position_in_the_empty_log_of_a_new_epoch_is_the_time_of_its_beginning(
    world: World,
) -> None:
    await world.append(numbered(3))
    world.clock.ms += 10
    await world.new_epoch()
    client = await connected(world, "", checkpoints=True)
    assert client.consumer is not None
    assert client.consumer.phase.position == str(START_MS + 10)
    assert await awaited(client.consumer) == f"id: {START_MS + 10}\n\n".encode()


async def test_a_live_consumer_is_behind_only_if_the_ring_has_something_for_it(
    world: World,
) -> None:
    await grow(world, "rare")
    client = await connected(world, "")
    assert client.consumer is not None
    await grow(world, "video")
    assert not client.consumer.phase.is_behind()
    await grow(world, "rare")
    assert client.consumer.phase.is_behind()
    assert await client.read()
    assert not client.consumer.phase.is_behind()


async def test_a_page_of_the_store_with_a_hole_is_read_up_to_the_hole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.append(numbered(5))
    await world.restart_ring()
    client = await connected(world, format_id(world.mark(1)), Filter())
    read = world.store.read

    async def with_hole(after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        monkeypatch.setattr(world.store, "read", read)
        return [entry for entry in await read(after, limit, at_ms) if entry.offset != 3]

    monkeypatch.setattr(world.store, "read", with_hole)
    assert await client.read()
    assert client.place == 2
    while await client.read():
        pass
    client.check_drained()

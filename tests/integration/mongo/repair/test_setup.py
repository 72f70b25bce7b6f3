"""Databases that need work: the first server's, of the wrong kind, dropped meanwhile."""

import asyncio
import contextlib
from typing import Any

import pytest
from bson.int64 import Int64
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from oplogd.clock import Clock, now_ms
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.model.event_id import EventId, format_id
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.link import Link
from oplogd.stream.phases.start import FULL_REPLICATION, Since, resolve
from tests.integration.mongo.first_server import Document, fill, first_servers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import folded, live_states, op, states_of, whole_log
from tests.kits.mongo.wire import Wire


async def append(store: MongoStore, operation: Operation, number: int = 0) -> None:
    """Try until the operation is in, as the agent's writer does. ``number``: its sequence."""
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(StoreUnavailableError):
                return await store.append([operation], BatchId("retried", number))
            await asyncio.sleep(0.02)


async def test_a_database_of_the_first_server_is_taken_over(
    capped_url: str, make_store: MakeStore
) -> None:
    async with AsyncMongoClient[Document](capped_url) as client:
        database = client.get_default_database()
        last = await fill(database, capped=True)
        store, second = make_store(capped_url, "capped"), make_store(capped_url, "capped")
        await asyncio.gather(store.open(), second.open())
        text = (
            '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x3kd2"],"type":"video","id":"%s"}'
        )
        assert await live_states(store) == {"video/a": text % "a", "video/b": text % "b"}
        assert await database.oplog_ops_of_first_server.count_documents({}) == 3
        assert await database.oplog_ops.count_documents({}) == 0
        seconds = int(str(last)[:8], 16)
        position = EventId(seconds, int(str(last)[8:12], 16), int(str(last)[12:], 16))
        bounds = await store.locate(position.offset)
        assert resolve(position, bounds, now_ms()) == Since(seconds * 1000)
        everything = await states_of(store, 0)
        assert [state.deleted for state in everything].count(True) == 1
        await store.append([op("a", "delete"), op("d")])
        assert set(await live_states(second)) == {"video/b", "video/d"}
        assert [entry.offset for entry in await whole_log(second)] == [1, 2]


async def test_an_agent_of_the_first_server_that_goes_on_writing_is_named(
    capped_url: str, make_store: MakeStore
) -> None:
    store = make_store(capped_url, "capped")
    await store.open()
    await store.append([op("a")])
    async with AsyncMongoClient[Document](capped_url) as client:
        stray, _ = first_servers("x")
        await client.get_default_database().oplog_ops.insert_one(stray)
    async with asyncio.timeout(120):
        while not (warnings := (await store.stats()).warnings):
            await asyncio.sleep(0.02)
    assert str(stray["_id"]) in warnings[0]
    assert "first server" in warnings[0]
    await store.append([op("b")])
    assert [entry.offset for entry in await whole_log(store)] == [1, 2]


async def test_an_uncapped_log_is_refused_with_the_command_that_mends_it(
    capped_url: str, make_store: MakeStore
) -> None:
    plain = make_store(capped_url, "plain")
    await plain.open()
    await plain.append([op("a")])
    await plain.close()
    with pytest.raises(
        StoreError, match=r'db\.runCommand\(\{convertToCapped: "oplog_ops"'
    ) as refusal:
        await make_store(capped_url, "capped").open()
    assert not isinstance(refusal.value, StoreUnavailableError)


async def test_another_size_is_a_warning_with_the_command_that_mends_it(
    capped_url: str, make_store: MakeStore
) -> None:
    first = make_store(capped_url, "capped", max_bytes=1 << 20)
    await first.open()
    await first.close()
    store = make_store(capped_url, "capped", max_bytes=2 << 20)
    await store.open()
    (warning,) = (await store.stats()).warnings
    assert 'db.runCommand({collMod: "oplog_ops", cappedSize: 2097152})' in warning


@pytest.mark.parametrize("recreate", [False, True], ids=["dropped", "dropped-and-made-anew"])
async def test_offsets_go_on_after_the_log_was_dropped(
    capped_url: str, recreate: bool, make_store: MakeStore
) -> None:
    store, other = make_store(capped_url, "capped"), make_store(capped_url, "capped")
    await store.open()
    await other.open()
    for number in range(5):
        await store.append([op(str(number))])
    before = await whole_log(store)
    await store.checkpoint()
    async with AsyncMongoClient[Document](capped_url) as client:
        database = client.get_default_database()
        await database.oplog_ops.drop()
        if recreate:
            await database.create_collection("oplog_ops", capped=True, size=1 << 21)
    with pytest.raises(StoreUnavailableError, match="oplog_ops is gone"):
        await other.append([op("5")])
    await append(other, op("5"))
    entries = await whole_log(store)
    assert [entry.offset for entry in entries] == [6]
    assert await live_states(other) == folded(before + entries)
    gone = before[-2]
    bounds = await store.locate(gone.offset)
    position = EventId(gone.ms // 1000, gone.ms % 1000, gone.offset)
    assert resolve(position, bounds, now_ms()) != FULL_REPLICATION


async def test_the_next_check_waits_for_a_share_of_a_check_but_not_of_a_repair(
    plain_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating an index takes an hour here, and a check three seconds."""
    time = VirtualClock()
    store = make_store(plain_url, "plain", lease=1e9, clock=Clock(monotonic=time.monotonic))
    create, look, hold = (
        AsyncCollection.create_index,
        store.setup.look_for_first_server,
        store.lease.hold,
    )
    checks = turns = 0

    async def create_slowly(*arguments: Any, **options: Any) -> str:
        time.move(3600)
        return await create(*arguments, **options)

    async def look_slowly() -> None:
        nonlocal checks
        await look()
        time.move(3)
        checks += 1

    async def take_turn() -> bool:
        nonlocal turns
        turns += 1
        return await hold()

    async def checks_after(seconds: float) -> int:
        """Return the number of checks so far, when this time has passed and a turn has ended."""
        time.move(seconds)
        began = turns
        async with asyncio.timeout(60):
            while turns < began + 2:
                await asyncio.sleep(0.01)
        return checks

    monkeypatch.setattr(AsyncCollection, "create_index", create_slowly)
    monkeypatch.setattr(store.setup, "look_for_first_server", look_slowly)
    monkeypatch.setattr(store.lease, "hold", take_turn)
    await store.open()
    for number in (1, 3):
        assert [await checks_after(seconds) for seconds in (0.5, 0.5)] == [number, number + 1]
        await store.link.log.drop()
        assert [await checks_after(seconds) for seconds in (59, 1)] == [number + 1, number + 2]
        assert "offset" in await store.link.log.index_information()


async def test_a_new_epoch_sets_the_log_aside_and_every_consumer_starts_anew(
    capped_url: str, make_store: MakeStore
) -> None:
    store = make_store(capped_url, "capped")
    await store.open()
    await store.append([op("a"), op("b", "delete")])
    old = (await whole_log(store))[0]
    await store.new_epoch()
    bounds = await store.locate(old.offset)
    assert (bounds.head.offset, bounds.oldest, bounds.first_offset) == (2, None, 3)
    position = EventId(old.ms // 1000, old.ms % 1000, old.offset)
    assert resolve(position, bounds, now_ms()) == FULL_REPLICATION
    await store.append([op("c")])
    assert [entry.offset for entry in await whole_log(store)] == [3]
    assert set(await live_states(store)) == {"video/a", "video/c"}
    assert len(format_id(bounds.head)) == 24


async def test_a_killed_cursor_makes_neither_gap_nor_repeat(
    capped_url: str, make_store: MakeStore
) -> None:
    store = make_store(capped_url, "capped")
    await store.open()
    await store.append([op("0")])
    seen = [entry.offset for entry in await store.follow(0, 100, 5)]
    for number in range(1, 6):
        async with asyncio.timeout(120):
            while (
                True
            ):  # a cursor that the server itself has just ended is opened anew by the next call
                assert await store.follow(seen[-1], 100, 0.05) == []
                if cursor := store.tail.cursor_id:
                    break
        assert isinstance(cursor, Int64)  # an int below 2**31 would be sent as one, and refused
        answer = await store.link.database.command("killCursors", "oplog_ops", cursors=[cursor])
        assert answer["cursorsKilled"] == [cursor]
        following = asyncio.create_task(store.follow(seen[-1], 100, 30))
        await append(
            store, op(str(number)), number
        )  # FerretDB may read on in the killed cursor, and refuses to write
        seen += [entry.offset for entry in await following]
    assert seen == list(range(1, 7))


async def test_a_cursor_that_misses_an_entry_and_stays_silent_is_found_out(
    capped_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(capped_url, "capped")
    await store.open()
    await append(store, op("0"), 0)
    assert [entry.offset for entry in await store.follow(0, 100, 30)] == [1]
    command = store.tail.run_command
    silent = asyncio.Event()

    async def miss(asked: Document) -> Document:
        answer = await command(asked)
        if "getMore" in asked:
            silent.set()
            answer["nextBatch"] = []
        return answer

    monkeypatch.setattr(store.tail, "run_command", miss)
    async with asyncio.timeout(60):
        following = asyncio.create_task(store.follow(1, 100, 3600))
        await silent.wait()
        await append(store, op("1"), 1)
        await append(store, op("2"), 2)
        seen = [entry.offset for entry in await following]
    monkeypatch.undo()
    while len(seen) < 2:
        seen += [entry.offset for entry in await store.follow(seen[-1], 100, 30)]
    assert seen == [2, 3]


async def test_a_plain_log_is_trimmed_behind_the_checkpoint(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", max_bytes=20_000)
    await store.open()
    for start in range(0, 1_000, 50):
        await store.append([op(str(number)) for number in range(start, start + 50)])
    await store.checkpoint()
    async with asyncio.timeout(120):
        while (await store.stats()).bytes > 20_000:
            await asyncio.sleep(0.02)
    # Those statistics may have an oldest entry that was trimmed before their bytes were read.
    stats = await store.stats()
    assert stats.states == 1_000
    assert stats.newest is not None
    assert stats.oldest is not None
    assert stats.newest.offset == 1_000
    assert 50 < stats.operations < 400  # a cap of bytes: some 300
    first = (await store.read(0, 10))[0].offset
    later = (await store.stats()).oldest  # the trimming may go on meanwhile
    assert later is not None
    assert stats.oldest.offset <= first <= later.offset


async def test_credentials_show_in_no_message(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.store._OPEN_SECONDS", 0.0)
    store = make_store(
        "mongodb://user:hunter2@127.0.0.1:1/oplog?serverSelectionTimeoutMS=100", "capped"
    )
    await store.open()
    with pytest.raises(StoreUnavailableError, match=r"MongoDB at 127\.0\.0\.1:1: ") as away:
        await store.locate()
    assert "hunter2" not in str(away.value)
    for url in ("mongodb://user:hunter2@host:port/", "mongodb://user:hunter2@host/?maxPoolSize=x"):
        with pytest.raises(StoreError) as refused:
            make_store(url, "capped")
        assert "hunter2" not in str(refused.value)


async def test_a_collection_is_looked_up_without_a_list_of_all_others(wire: Wire) -> None:
    link = Link(wire.url())
    try:
        held = wire.hold(lambda command: "listCollections" in command)
        asking = asyncio.create_task(link.options("oplog_ops"))
        command = await asyncio.to_thread(held.wait)
        await asyncio.to_thread(held.release)
        assert await asking is None
        assert command["filter"] == {"name": "oplog_ops"}
    finally:
        await link.close()

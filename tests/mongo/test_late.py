"""Inserts that are carried out after the log was trimmed past their place: not lost, and not taken for the log's oldest entry."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from oplogd.store import Correction, CorrectionResult
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.layout import Document
from tests.agents import DEADLINE, Agent, fold
from tests.mongo.agents import agent, replicated
from tests.mongo.conftest import MakeStore
from tests.mongo.operations import document, live_states, offsets, op, stop_folding
from tests.mongo.wire import Wire, asks_for_head, inserts

CAP = 20_000
SMALL = ("--capped-collection-size", str(CAP), "--lease", "500ms")
PAUSE_SECONDS = 1.2
"""Longer than an insert may take without being late."""


def operation(number: int) -> dict[str, Any]:
    return {"event": "insert", "type": "video", "id": str(number)}


def wait_for(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 2 * DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def turn_over(database: Database[Document], other: Agent, past: int) -> None:
    """Append until the log was trimmed past an offset, and folded and trimmed to the end."""

    def append() -> bool:
        assert other.post([operation(number) for number in range(1000, 1200)]) == 200
        return offsets(database)[0] > past

    wait_for("the log has turned over", append)
    size: list[int] = []

    def is_at_rest() -> bool:
        store = other.status()["store"]
        size[:] = [*size[-4:], store["bytes"]]
        return (
            store["lag"]["fold"] == 0 and len(size) == 5 and len(set(size)) == 1 and size[0] <= CAP
        )

    wait_for("the log is at rest", is_at_rest)


@pytest.mark.parametrize("how", ["stopped", "held"])
def test_an_operation_whose_writer_paused_while_the_log_was_trimmed_past_its_place_is_not_lost(
    how: str,
    wire: Wire,
    database: Database[Document],
    plain_url: str,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
) -> None:
    with (
        agent(tmp_path, plain_url, "plain", *SMALL) as other,
        agent(tmp_path, wire.url(), "plain", *SMALL) as paused,
        other.follow() as stream,
    ):
        for number in range(5):
            assert paused.post(operation(number)) == 204
        held = wire.hold(inserts) if how == "held" else wire.hold(asks_for_head, "after")
        posted: Future[int] = pool.submit(paused.post, operation(5))
        held.wait()
        if how == "stopped":
            paused.process.send_signal(signal.SIGSTOP)
            held.release()
        threading.Event().wait(PAUSE_SECONDS)
        turn_over(database, other, 6)
        if how == "stopped":
            paused.process.send_signal(signal.SIGCONT)
        else:
            held.release()
        assert posted.result(DEADLINE) == 204
        assert other.post(operation(6)) == 204
        events = stream.take(5)
        while events[-1].operation["id"] != "6":
            events += stream.take(1)
        assert [event.operation["id"] for event in events].count("5") == 1
        assert [int(event.id[12:], 16) for event in events] == list(range(1, len(events) + 1))
        assert replicated(other) == replicated(paused) == fold(events)
        log = offsets(database)
        assert log == list(range(log[0], len(events) + 1))


def test_an_insert_carried_out_behind_the_log_is_not_its_oldest_entry(
    wire: Wire, database: Database[Document], plain_url: str, tmp_path: Path
) -> None:
    with (
        agent(tmp_path, plain_url, "plain", *SMALL) as other,
        agent(tmp_path, wire.url(), "plain", *SMALL) as writer,
        other.follow() as stream,
    ):
        for number in range(5):
            assert writer.post(operation(number)) == 204
        late = wire.hold(inserts)
        writer.send_udp(operation(5))
        late.wait()
        late.cut()  # the writer tries again, and that is in the log
        writer.wait_status(events_ingested=6)
        events = stream.take(6)
        turn_over(database, other, 20)
        database["oplog_ops"].delete_many(
            {"n": {"$lte": offsets(database)[4]}}
        )  # room: nothing is trimmed from now on
        late.release()
        log = offsets(database)
        assert log[:1] == [6]
        assert log[1:] == list(range(log[1], log[-1] + 1))
        with agent(tmp_path, plain_url, "plain", *SMALL) as new:
            for each in (new, other, writer):
                store = each.status()["store"]
                assert int(store["oldest_id"][12:], 16) == log[1]
                assert store["ops"] == len(log) - 1
            with new.follow(events[4].id) as resumed:
                told = resumed.until("live")
            assert "5" in [event.operation["id"] for event in told if event.event == "insert"]
            assert new.post(operation(6)) == 204
            assert offsets(database)[-1] == log[-1] + 1


async def test_an_operation_that_came_late_to_a_capped_log_is_appended_again(
    capped_url: str, make_store: MakeStore
) -> None:
    with Wire(capped_url) as wire, MongoClient[Document](capped_url) as client:
        log = client.get_default_database()["oplog_ops"]
        other = make_store(capped_url, "capped", lease=60)
        await other.open()
        writer = MongoStore(wire.url(), collection="capped")
        await writer.open()
        try:
            await writer.append([op("first")])
            held = wire.hold(inserts)
            writing = asyncio.create_task(writer.append([op("late"), op("later")]))
            await asyncio.to_thread(held.wait)
            await asyncio.sleep(PAUSE_SECONDS)
            await other.append([op(str(number)) for number in range(20)])
            await other.checkpoint()
            log.delete_many({"n": {"$lte": 11}})  # as the server does with the oldest entries
            await asyncio.to_thread(held.release)
            await writing
            assert [each["n"] for each in log.find().sort("n", 1)] == [2, 3, *range(12, 24)]
            located = await other.locate(2)
            assert located.oldest is not None
            assert (located.oldest.offset, located.head.offset, located.at_ms) == (12, 23, None)
            assert {"video/late", "video/later"} < (await live_states(other)).keys()
        finally:
            await writer.close()


@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "touched"])
async def test_a_correction_carried_out_behind_the_log_is_judged_again(
    touched: bool, wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", max_bytes=10_000)
    store = make_store(wire.url(), "plain", max_bytes=10_000)
    await other.open()
    await store.open()
    await other.append([op("a", "update"), op("b")])
    await other.checkpoint()
    held = wire.hold(inserts)
    correcting = asyncio.create_task(
        store.correct([Correction(op("a", "delete"), 1), Correction(op("c"), None)])
    )
    await asyncio.to_thread(held.wait)
    await asyncio.sleep(PAUSE_SECONDS)
    async with asyncio.timeout(30):
        while (await other.read(0, 1))[0].offset < 10:
            await other.append([op("x") for _ in range(100)])
            await other.checkpoint()
    if touched:
        await other.append([op("a"), op("c", "delete")])
        await other.checkpoint()
    await asyncio.to_thread(held.release)
    assert await correcting == [
        CorrectionResult.SKIPPED if touched else CorrectionResult.APPLIED,
        CorrectionResult.APPLIED,
    ]
    assert ("video/a" in await live_states(store)) is touched
    assert "video/c" in await live_states(store)
    log = offsets(database)
    assert log == list(range(log[0], log[-1] + 1))


async def test_a_writer_whose_clock_stood_still_learns_from_the_clusters_time_that_it_was_late(
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Wire(plain_url, as_replica_set=True) as wire:
        other = make_store(plain_url, "plain", max_bytes=10_000, lease=60)
        await other.open()
        store = MongoStore(wire.url(retryWrites="false"), collection="plain", max_bytes=10_000)
        await store.open()
        try:
            await store.append([op("first")])
            monkeypatch.setattr("oplogd.store.mongo.append.boot_seconds", lambda: 0.0)
            monkeypatch.setattr("oplogd.store.mongo.log.boot_seconds", lambda: 0.0)
            held = wire.hold(inserts)
            writing = asyncio.create_task(store.append([op("late")]))
            await asyncio.to_thread(held.wait)
            wire.cluster_seconds += 60
            async with asyncio.timeout(30):
                while (await other.read(0, 1))[0].offset < 10:
                    await other.append([op("x") for _ in range(100)])
                    await other.checkpoint()
            await asyncio.to_thread(held.release)
            await writing
            assert "video/late" in await live_states(other)
            log = offsets(database)
            assert log == list(range(log[0], log[-1] + 1))
        finally:
            await store.close()


async def test_what_was_put_in_the_way_of_an_insert_that_is_not_late_stays_in_the_log(
    database: Database[Document],
    wire: Wire,
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However soon a log is full: an entry is trimmed only some seconds after it was folded."""
    monkeypatch.setattr("oplogd.store.mongo.projection.TRIM_SECONDS", 3600.0)
    other = make_store(plain_url, "plain", max_bytes=10_000, lease=60)
    await other.open()
    store = make_store(wire.url(), "plain", max_bytes=10_000)
    await store.open()
    await store.append([op("first")])
    for module in ("append", "log"):
        monkeypatch.setattr(
            f"oplogd.store.mongo.{module}.boot_seconds", lambda: 0.0
        )  # nothing is late
    held = wire.hold(inserts)
    writing = asyncio.create_task(store.append([op("soon")]))
    await asyncio.to_thread(held.wait)
    for _ in range(3):
        await other.append([op("x") for _ in range(100)])
        await other.checkpoint()
        await other._projection._trim()
    await asyncio.to_thread(held.release)
    await writing
    assert "video/soon" in await live_states(other)
    assert offsets(database) == list(range(1, 303))
    monkeypatch.setattr("oplogd.store.mongo.projection.TRIM_SECONDS", 0.0)
    await other._projection._trim()
    log = offsets(database)
    assert log == list(range(log[0], 303))
    assert 200 < log[0] < 302


async def test_an_agent_that_was_idle_does_not_go_on_behind_a_stray(
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    await store.append([op(str(number)) for number in range(1, 6)])
    await store.checkpoint()
    right = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: right(clock) + 2 * PAUSE_SECONDS)
    log = database["oplog_ops"]
    log.delete_many({})
    log.insert_many([document(6), *(document(n) for n in range(100, 121))])
    assert [entry.offset for entry in await store.read(5, 10)] == [6]
    located = await store.locate(6)
    assert located.oldest is not None
    assert (located.oldest.offset, located.head.offset, located.at_ms) == (100, 120, None)
    await store.append([op("last")])
    assert offsets(database) == [6, *range(100, 122)]


SHAPES = [
    ([], range(1, 2)),
    ([], range(7, 8)),
    ([], range(1, 400)),
    ([5], range(7, 8)),
    ([5], range(100, 400)),
    ([98], range(100, 400)),
    ([*range(1, 41)], range(100, 400)),
    ([5, 6, 7, 50, 51, 98], range(100, 400)),
    ([1, 1000, 5000], range(100_000, 100_300)),
    ([*range(90, 99, 2)], range(100, 117)),
]


async def test_the_oldest_entry_is_the_first_behind_the_last_gap(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    log = database["oplog_ops"]
    opened = make_store(plain_url, "plain", lease=60)
    await opened.open()
    await stop_folding(opened)  # it keeps the lease
    for turn, (strays, genuine) in enumerate(SHAPES):
        log.delete_many({})
        log.insert_many([document(n, ms=1_700_000_000_000 + turn) for n in (*strays, *genuine)])
        fresh = make_store(plain_url, "plain", lease=60)
        await fresh.open()
        for store in (opened, fresh):  # one of them remembers another oldest entry
            located = await store.locate()
            assert located.oldest is not None
            assert (located.oldest.offset, located.head.offset) == (genuine[0], genuine[-1]), strays
            assert (await store.stats()).operations == len(genuine)

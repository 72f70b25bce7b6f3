"""Inserts that are carried out after the log was trimmed past their place are not lost."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from oplogd.clock import Clock
from oplogd.store import Correction, CorrectionResult
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.timing import DEFAULT_TIMING
from oplogd.store.mongo.log.trim import Trimmer
from tests.kits.agents.agent import DEADLINE, fold
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.agents import agent, is_folded, operation, replicated, wait_for
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, offsets, op
from tests.kits.mongo.wire import PAUSE_SECONDS, Wire, asks_for_head, inserts

CAP = 20_000
# The agent that folds keeps the lease although the test moves its time.
SMALL = ("--capped-collection-size", str(CAP), "--lease", "60s")

TRIM_SECONDS = DEFAULT_TIMING.trim_seconds

# Entries leave the log as soon as it is full.
TRIMMED_AT_ONCE = Timing(trim_seconds=0.0)

# The clock of a machine that sleeps: by it no insert is late.
STANDING_STILL = Clock(boot=lambda: 0.0)


class FoldingAgent(MovedAgent):
    """It has a clock of its own: an entry stays some seconds after it was folded."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir()
        self._clock = MovedClock(folder)
        flags = ("--mongo-url", url, "--log-collection", "plain", *SMALL)
        super().__init__(folder, *flags, environ=self._clock.environ)

    def turn_over(self, database: Database[Document], past: int) -> None:
        """Append until the log was trimmed past an offset, and folded and trimmed to the end."""

        def append() -> bool:
            assert self.post([operation(number) for number in range(1000, 1200)]) == 200
            wait_for("it is folded", lambda: is_folded(self))
            self._clock.move(TRIM_SECONDS)
            return offsets(database)[0] > past

        wait_for("the log has turned over", append)
        size: list[int] = []

        def is_at_rest() -> bool:
            self._clock.move(TRIM_SECONDS)
            store = self.status()["store"]
            size[:] = [*size[-4:], store.get("bytes", CAP + 1)]  # no figure while the store is slow
            is_stable = len(size) == 5 and len(set(size)) == 1 and size[0] <= CAP
            return is_stable and is_folded(self)

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
    clock = MovedClock(tmp_path)
    moved: dict[str, Any] = {"make": MovedAgent, "environ": clock.environ}
    with (
        FoldingAgent(tmp_path / "other", plain_url) as other,
        agent(tmp_path, wire.url(), "plain", *SMALL, **moved) as paused,
        other.follow() as stream,
    ):
        for number in range(5):
            assert paused.post(operation(number)) == 204
        held = wire.hold(inserts) if how == "held" else wire.hold(asks_for_head, "after")
        posted: Future[int] = pool.submit(paused.post, operation(5))
        held.wait()
        if how == "stopped":
            paused.freeze()
            held.release()
        clock.move(PAUSE_SECONDS)
        other.turn_over(database, 6)
        if how == "stopped":
            paused.thaw()
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
        FoldingAgent(tmp_path / "other", plain_url) as other,
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
        other.turn_over(database, 20)
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
        own = VirtualClock()
        writer = MongoStore(wire.url(), collection="capped", clock=Clock(boot=own.monotonic))
        await writer.open()
        try:
            await writer.append([op("first")])
            held = wire.hold(inserts)
            writing = asyncio.create_task(writer.append([op("late"), op("later")]))
            await asyncio.to_thread(held.wait)
            own.move(PAUSE_SECONDS)
            await other.append([op(str(number)) for number in range(20)])
            await other.checkpoint()
            log.delete_many({"n": {"$lte": 11}})  # as the server does with the oldest entries
            await asyncio.to_thread(held.release)
            await writing
            assert [each["n"] for each in log.find().sort("n", 1)] == [2, 3, *range(12, 24)]
            bounds = await other.locate(2)
            assert bounds.oldest is not None
            assert (bounds.oldest.offset, bounds.head.offset, bounds.at_ms) == (12, 23, None)
            assert {"video/late", "video/later"} < (await live_states(other)).keys()
        finally:
            await writer.close()


@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "touched"])
async def test_a_correction_carried_out_behind_the_log_is_judged_again(
    touched: bool, wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    own = VirtualClock()
    other = make_store(plain_url, "plain", max_bytes=10_000, timing=TRIMMED_AT_ONCE)
    store = make_store(wire.url(), "plain", max_bytes=10_000, clock=Clock(boot=own.monotonic))
    await other.open()
    await store.open()
    await other.append([op("a", "update"), op("b")])
    await other.checkpoint()
    held = wire.hold(inserts)
    correcting = asyncio.create_task(
        store.correct([Correction(op("a", "delete"), 1), Correction(op("c"), None)])
    )
    await asyncio.to_thread(held.wait)
    own.move(PAUSE_SECONDS)
    async with asyncio.timeout(120):
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
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    with Wire(plain_url, as_replica_set=True) as wire:
        other = make_store(plain_url, "plain", max_bytes=10_000, lease=60, timing=TRIMMED_AT_ONCE)
        await other.open()
        store = MongoStore(
            wire.url(retryWrites="false"),
            collection="plain",
            max_bytes=10_000,
            clock=STANDING_STILL,
        )
        await store.open()
        try:
            await store.append([op("first")])
            held = wire.hold(inserts)
            writing = asyncio.create_task(store.append([op("late")]))
            await asyncio.to_thread(held.wait)
            wire.cluster_seconds += 60
            async with asyncio.timeout(120):
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
    database: Database[Document], wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """However soon a log is full: an entry is trimmed only some seconds after it was folded."""
    timing = Timing(trim_seconds=3600.0)
    other = make_store(plain_url, "plain", max_bytes=10_000, lease=60, timing=timing)
    await other.open()
    store = make_store(wire.url(), "plain", max_bytes=10_000, clock=STANDING_STILL)
    await store.open()
    await store.append([op("first")])
    held = wire.hold(inserts)
    writing = asyncio.create_task(store.append([op("soon")]))
    await asyncio.to_thread(held.wait)
    for _ in range(3):
        await other.append([op("x") for _ in range(100)])
        folded = (await other.checkpoint()).offset
        await other.projection.trimmer.trim(folded)
    await asyncio.to_thread(held.release)
    await writing
    assert "video/soon" in await live_states(other)
    assert offsets(database) == list(range(1, 303))
    await Trimmer(other.link, other.log, seconds=0.0).trim((await other.checkpoint()).offset)
    log = offsets(database)
    assert log == list(range(log[0], 303))
    assert 200 < log[0] < 302

"""The conditional append: no operation is doubled or put behind a hole.

Meanwhile answers are lost, a majority lags, or the primary changes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pymongo.database import Database

from oplogd.errors import StoreUnavailableError
from oplogd.store import BatchId, Correction, CorrectionResult
from oplogd.store.mongo import Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.states.fold import forget_writers
from tests.kits.agents.agent import DEADLINE, fold
from tests.kits.mongo.agents import agent, operation, replicated
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import document, live_states, offsets, op, whole_log
from tests.kits.mongo.wire import Command, Wire, asks_for_head, inserts


def asks_for_token(command: Command) -> bool:
    """Return whether a command looks up a writer's operations in the log."""
    return command.get("find") == "oplog_ops" and "w" in command.get("filter", {})


STEPS: dict[str, Callable[[Command], bool]] = {
    "head": asks_for_head,
    "token": asks_for_token,
    "insert": inserts,
}


# A majority that lags


def test_a_batch_is_in_the_log_once_however_often_it_was_tried_while_the_majority_lagged(
    wire: Wire, tmp_path: Path
) -> None:
    with agent(tmp_path, wire.url(), "plain") as only, only.follow() as stream:
        for number in range(5):
            assert only.post(operation(number)) == 204
        wire.lag(5)
        wire.cut(inserts)  # without a majority no write is answered
        only.send_udp(*map(operation, range(5, 15)))
        wire.wait_cuts(2)
        wire.cut(None)
        wire.lag(None)
        only.wait_status(events_ingested=15, queue_size=0)
        assert only.post(operation(15)) == 204
        assert [int(event.operation["id"]) for event in stream.take(16)] == list(range(16))


async def test_a_writer_gives_up_while_no_majority_has_what_is_in_its_way_and_doubles_nothing(
    wire: Wire, database: Database[Document], make_store: MakeStore
) -> None:
    store = make_store(wire.url(), "plain", timing=Timing(majority_seconds=0.3))
    await store.open()
    await store.append([op("1")], BatchId("w", 0))
    wire.lag(1)
    database["oplog_ops"].insert_one(document(2))
    with pytest.raises(
        StoreUnavailableError, match="no majority of the replica set has what its primary wrote"
    ):
        await store.append([op("3"), op("4")], BatchId("w", 1))
    assert offsets(database) == [1, 2]
    wire.lag(None)
    await store.append([op("3"), op("4")], BatchId("w", 1))
    assert [entry.data.encode() for entry in await whole_log(store)] == [
        op(i).data for i in ("1", "other", "3", "4")
    ]


async def test_corrections_give_up_and_are_not_doubled_either(
    wire: Wire, database: Database[Document], make_store: MakeStore
) -> None:
    store = make_store(wire.url(), "plain", timing=Timing(majority_seconds=0.3))
    await store.open()
    await store.append([op("a")])
    await store.checkpoint()
    wire.lag(1)
    database["oplog_ops"].insert_one(document(2, "b"))
    tried = wire.count(inserts)
    given = [Correction(op("a", "delete"), 1), Correction(op("b", "delete"), 0)]
    with pytest.raises(
        StoreUnavailableError, match="no majority of the replica set has what its primary wrote"
    ):
        await store.correct(given)
    assert wire.count(inserts) - tried < 50
    wire.lag(None)
    assert await store.correct(given) == [CorrectionResult.APPLIED, CorrectionResult.SKIPPED]
    assert [entry.event for entry in await whole_log(store)] == ["insert", "insert", "delete"]


@pytest.mark.parametrize("step", STEPS)
async def test_an_insert_that_is_carried_out_during_a_step_of_the_next_try_is_not_doubled(
    step: str, wire: Wire, make_store: MakeStore
) -> None:
    store = make_store(wire.url(), "plain")
    await store.open()
    await store.append([op("0")], BatchId("other", 0))
    batch = [op(str(number)) for number in range(1, 4)]
    late = wire.hold(inserts)
    writing = asyncio.create_task(store.append(batch, BatchId("w", 0)))
    await asyncio.to_thread(late.wait)
    late.cut()
    with pytest.raises(StoreUnavailableError):
        await writing
    held = wire.hold(STEPS[step])
    writing = asyncio.create_task(store.append(batch, BatchId("w", 0)))
    await asyncio.to_thread(held.wait)
    await asyncio.to_thread(late.release)
    await asyncio.to_thread(held.release)
    await writing
    await store.append([op("4")], BatchId("w", 3))
    assert [entry.data.encode() for entry in await whole_log(store)] == [
        op(str(number)).data for number in range(5)
    ]


async def test_a_writer_in_doubt_does_not_take_its_stray_for_an_operation_in_the_log(
    wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    other, store = (make_store(url, "plain", lease=60) for url in (plain_url, wire.url()))
    await other.open()
    await store.open()
    await other.append([op("first")])
    await other.checkpoint()
    late = wire.hold(inserts)
    writing = asyncio.create_task(store.append([op("late")], BatchId("w", 0)))
    await asyncio.to_thread(late.wait)
    late.cut()
    with pytest.raises(StoreUnavailableError):
        await writing
    held = wire.hold(asks_for_token)
    writing = asyncio.create_task(store.append([op("late")], BatchId("w", 0)))
    await asyncio.to_thread(held.wait)
    await other.append([op("a"), op("b"), op("c")])
    await other.checkpoint()
    database["oplog_ops"].delete_many({"n": {"$lte": 3}})  # as trimming does
    await asyncio.to_thread(late.release)
    await asyncio.to_thread(held.release)
    await writing
    assert offsets(database) == [2, 4, 5]
    assert "video/late" in await live_states(other)


# A fail-over


@pytest.mark.parametrize("how", ["on its way", "tried again"])
def test_nothing_is_put_behind_entries_that_a_fail_over_takes_back(
    how: str, wire: Wire, database: Database[Document], pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    with (
        agent(tmp_path, wire.url(), "plain") as first,
        agent(tmp_path, wire.url(), "plain") as second,
        second.follow() as stream,
    ):
        for number in range(5):
            assert first.post(operation(number)) == 204
        wire.lag(5)
        database["oplog_ops"].insert_many(
            [document(6), document(7)]
        )  # the old primary has them, no majority does
        tried = wire.count(inserts)
        held = wire.hold(inserts) if how == "on its way" else None
        posted: Future[int] = pool.submit(first.post, operation(5))
        if held:
            held.wait()
        else:
            wire.wait_seen(inserts, tried + 3)
        database["oplog_ops"].delete_many({"n": {"$in": [6, 7]}})  # the new one never had them
        wire.lag(None)
        if held:
            held.release()
        assert posted.result(DEADLINE) == 204
        assert [second.post(operation(number)) for number in (6, 7)] == [204, 204]
        events = stream.take(8)
        assert [int(event.operation["id"]) for event in events] == list(range(8))
        assert [int(event.id[12:], 16) for event in events] == list(range(1, 9))
        assert offsets(database) == list(range(1, 9))
        assert replicated(first) == replicated(second) == fold(events)


@pytest.mark.parametrize("fits", [True, False], ids=["whole", "without its checkpoint"])
async def test_a_head_that_is_gone_after_a_restore_is_forgotten(
    fits: bool, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    await store.append([op(str(number)) for number in range(1, 9)])
    await store.checkpoint()
    await store.projection.stop()
    database["oplog_ops"].delete_many({"n": {"$gt": 5}})
    database["oplog_ops"].insert_one(document(6))
    if fits:
        database["oplog_meta"].update_one({"_id": "oplog_ops"}, {"$set": {"n": 5}})
        await store.append([op("7")])
        assert offsets(database) == list(range(1, 8))
        assert (await store.locate()).head.offset == 7
    else:
        with pytest.raises(
            StoreUnavailableError, match="the log ends with offset 6, before the checkpoint"
        ):
            await store.append([op("7")])
        assert offsets(database) == list(range(1, 7))


async def test_a_writer_that_folds_again_while_old_writers_are_forgotten_stays_known(
    wire: Wire, database: Database[Document], make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.states.fold.MOST_WRITERS", 4)
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    for writer in "abcde":
        await store.append([op(writer)], BatchId(writer, 0))
    await store.checkpoint()
    held = wire.hold(lambda command: "$unset" in str(command.get("updates")))
    forgetting = asyncio.create_task(forget_writers(store.link))
    await asyncio.to_thread(held.wait)
    await store.append([op("a again")], BatchId("a", 1))
    await store.checkpoint()
    await asyncio.to_thread(held.release)
    await forgetting
    known = [database["oplog_meta"].find_one({"_id": "oplog_ops"})]
    await forget_writers(store.link)
    known.append(database["oplog_meta"].find_one({"_id": "oplog_ops"}))
    assert [set(row["writers"]) for row in known if row] == [set("abcde"), set("ea")]

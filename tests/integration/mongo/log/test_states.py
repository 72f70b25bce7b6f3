"""States that lose their indexes, or are dropped."""

import asyncio
import contextlib
import http.client
import threading
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from oplogd.errors import StoreUnavailableError
from oplogd.store import StateCursor
from oplogd.store.mongo import Timing
from oplogd.store.mongo.setup.states import StatesKeeper
from tests.kits.agents.agent import DEADLINE, Agent, fold
from tests.kits.mongo.agents import agent, is_folded, new_epoch, replicated, wait_for
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op
from tests.kits.sse.stream import Stream

WARNING = "oplog_states was dropped"


def warnings(source: Agent) -> list[str]:
    found: list[str] = source.status()["store"].get("warnings", [])
    return found


def test_a_missing_index_is_created_again_and_nothing_else_changes(
    plain_url: str, tmp_path: Path
) -> None:
    with (
        MongoClient[dict[str, Any]](plain_url) as client,
        agent(tmp_path, plain_url, "plain") as only,
    ):
        database = client.get_default_database()
        assert (
            only.post([{"event": "insert", "type": "video", "id": str(n)} for n in range(20)])
            == 200
        )
        before = replicated(only)
        created = (database.oplog_meta.find_one({"_id": "oplog_ops"}) or {})["created"]
        indexes = database.oplog_states.index_information()
        for name in indexes:
            if "n" in dict(indexes[name]["key"]):
                database.oplog_states.drop_index(name)
                wait_for(
                    "it is created again",
                    lambda: database.oplog_states.index_information() == indexes,
                )
        for name in indexes:
            if name != "_id_":
                database.oplog_states.drop_index(name)
        wait_for(
            "all are created again", lambda: database.oplog_states.index_information() == indexes
        )
        assert replicated(only) == before
        assert warnings(only) == []
        assert (database.oplog_meta.find_one({"_id": "oplog_ops"}) or {})["created"] == created


def test_states_that_are_dropped_are_folded_anew_from_a_log_that_holds_everything(
    plain_url: str, tmp_path: Path
) -> None:
    with (
        MongoClient[dict[str, Any]](plain_url) as client,
        agent(tmp_path, plain_url, "plain") as only,
    ):
        database = client.get_default_database()
        assert (
            only.post([{"event": "insert", "type": "video", "id": str(n)} for n in range(20)])
            == 200
        )
        assert only.post({"event": "delete", "type": "video", "id": "3"}) == 204
        before = replicated(only)
        with only.follow() as live:
            for again in range(3):
                database.oplog_states.drop()
                name = f"after-{again}"
                assert only.post({"event": "insert", "type": "video", "id": name}) == 204
                (event,) = live.take(1)
                before = fold([event], before)
                assert replicated(only) == before, "a copy waits, or starts over"
        assert warnings(only) == []


def test_states_that_cannot_be_folded_anew_stop_copies_until_a_new_epoch(
    plain_url: str, tmp_path: Path
) -> None:
    flags = ("--capped-collection-size", "20000")
    with MongoClient[dict[str, Any]](plain_url) as client:
        database = client.get_default_database()
        with agent(tmp_path, plain_url, "plain", *flags) as only:
            for start in range(0, 1_000, 100):
                assert (
                    only.post(
                        [
                            {"event": "insert", "type": "video", "id": str(start + n)}
                            for n in range(100)
                        ]
                    )
                    == 200
                )
            wait_for("the log is trimmed", lambda: database.oplog_ops.find_one({"n": 1}) is None)
            wait_for("all is folded", lambda: is_folded(only))
            states = database.oplog_states.find().to_list()
            with only.follow() as live:
                database.oplog_states.drop()
                wait_for(WARNING, lambda: any(WARNING in each for each in warnings(only)))
                assert only.post({"event": "insert", "type": "video", "id": "after"}) == 204
                assert live.take(1)[0].key == "video/after", "who follows the log goes on"
            copied: list[str] = []
            with only.follow("0") as copy, agent(tmp_path, plain_url, "plain", *flags) as second:
                thread = threading.Thread(target=read, args=(copy, copied), daemon=True)
                thread.start()
                wait_for("the reset", lambda: copied)
                (warning,) = (each for each in warnings(second) if WARNING in each)
                assert "--new-epoch" in warning
                assert "oplog-sync" in warning
                only.kill()
                thread.join(DEADLINE)
            assert copied == ["reset"], "no copy of what is left"
        database.oplog_states.insert_many(
            [each for each in states if each["_id"] != "video/after"]
        )  # as oplog-sync would
        assert new_epoch(plain_url).returncode == 0
        with agent(tmp_path, plain_url, "plain", *flags) as only:
            assert len(replicated(only)) == 1_001
            assert warnings(only) == []


def read(stream: Stream, events: list[str]) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while event := stream.next():
            events.append(event.event)


async def test_a_page_of_states_is_not_taken_for_the_last_one_where_they_were_dropped(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    await store.append([op(str(n)) for n in range(10)])
    mark = await store.checkpoint()
    await store.projection.stop()
    with MongoClient[dict[str, Any]](plain_url) as client:
        client.get_default_database().oplog_states.drop()
    with pytest.raises(StoreUnavailableError, match="oplog_states was dropped"):
        await store.states(StateCursor(0, None), mark.offset, live_only=True, limit=500)


@pytest.mark.parametrize("by", ["the same agent", "another agent"])
async def test_states_that_are_dropped_while_they_are_folded_anew_are_folded_anew_again(
    by: str, plain_url: str, make_store: MakeStore
) -> None:
    """The row has gone back: states older than its last checkpoint do not prove that all exist."""
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    await store.append([op(str(number)) for number in range(1, 11)])
    await store.checkpoint()
    await store.projection.stop()
    keeper = StatesKeeper(store.link)
    first = keeper if by == "the same agent" else StatesKeeper(store.link)
    with MongoClient[dict[str, Any]](plain_url) as client:
        database = client.get_default_database()
        await keeper.keep(await store.log.row(), exists=True)
        states = database.oplog_states.find().sort("n", 1).to_list()
        database.oplog_states.drop()
        await first.keep(await store.log.row(), exists=False)
        assert (await store.log.row()).folded.offset == 0
        database.oplog_states.drop()  # when half of them were there again
        database.oplog_states.insert_many(states[5:])
        database.oplog_meta.update_one({"_id": "oplog_ops"}, {"$set": {"n": 10}})
        await keeper.keep(await store.log.row(), exists=True)
        assert (await store.log.row()).folded.offset == 0


async def test_many_deleted_objects_are_forgotten_by_the_batch(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", timing=Timing(purge_leases=0))
    await store.open()
    await store.append([op(str(n), "delete") for n in range(2_500)])
    await store.append([op("kept")])
    await store.checkpoint()
    now = (await store.locate()).now_ms
    forgotten = 0
    async with asyncio.timeout(120):
        while forgotten < 2_500:  # the present millisecond's stay
            forgotten += await store.purge(now + 10_000)
    assert forgotten == 2_500
    assert (await store.stats()).states == 1

"""Streams with `onGap` `copy`: a target with versions stays equal to the source."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from oplog_sync.backend import StoreRow
from oplog_sync.backend.mongo import MongoBackend
from oplog_sync.errors import SyncError
from oplog_sync.source import stream as stream_module
from oplog_sync.source.copies import VersionedRows, versioned_batch
from oplogd.model.event_id import Mark, format_id
from tests.integration.spark.source.mirrors import (
    MANY,
    SMALL_LOG,
    START_MS,
    Query,
    World,
    place_of,
    two_stores,
)
from tests.kits.agents.agent import Agent
from tests.kits.models import properties
from tests.kits.servers.stores import StorePlace
from tests.kits.spark.helpers import append, operation


@pytest.fixture(autouse=True)
def no_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "HOLD_SECONDS", 0.0)


THROUGH = pytest.mark.parametrize("through", ["store", "agent"])


@THROUGH
@pytest.mark.parametrize("start", ["0", "now"])
def test_the_target_is_equal_to_the_source_after_gaps_restarts_and_purges(
    tmp_path: Path, through: str, start: str
) -> None:
    chance = properties.chance(7)
    with (
        Agent(tmp_path, *SMALL_LOG) as agent,
        closing(Query(start=start, **place_of(tmp_path, agent, through))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", chance)
        query.batch()
        world.change(20)
        query.batch()
        for _ in range(properties.rounds(25, 500)):
            world.change(chance.choice([1, 5, 60, MANY]))
            if chance.random() < 0.5:
                world.purge()
            if chance.random() < 0.3:
                query.restart()
            if chance.random() < 0.7:
                query.batch(dies=chance.random() < 0.4, chance=chance)
            if chance.random() < 0.4:
                query.finish(chance)
                assert start == "now" or query.target.objects == world.objects
        world.change(MANY)
        world.purge()
        query.finish()
        assert query.target.objects == world.objects
        assert query.events.count("live") > 2


@pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)
def test_the_target_is_equal_to_a_source_in_mongodb(tmp_path: Path, place: StorePlace) -> None:
    chance = properties.chance(12)
    url = str(place.store)
    with (
        place.agent(tmp_path) as agent,
        closing(Query(start="0", store=url, partitionRows="10")) as query,
    ):
        world = World(agent, url, chance)
        for _ in range(properties.rounds(10, 100)):
            world.change(chance.choice([1, 5, 60]))
            if chance.random() < 0.4:
                query.settle()
                world.trim()
                world.purge()
            query.batch(dies=chance.random() < 0.4, chance=chance)
        query.finish(chance)
        assert query.target.objects == world.objects
        assert query.events.count("live") > 1


@THROUGH
def test_a_batch_that_was_planned_before_its_operations_left_the_log_is_a_copy(
    tmp_path: Path, through: str
) -> None:
    chance = random.Random(1)
    with (
        Agent(tmp_path, *SMALL_LOG) as agent,
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", chance)
        world.change(50)
        query.batch()
        world.change(50)
        query.batch(dies=True, chance=chance)
        world.change(MANY)
        world.purge()
        query.events.clear()
        query.batch()
        assert query.events.count("live") == 1
        assert set(query.events) == {"insert", "live"}
        query.finish()
        assert query.target.objects == world.objects


@THROUGH
def test_the_object_of_the_last_operation_before_a_gap_is_removed_if_it_was_deleted(
    tmp_path: Path, through: str
) -> None:
    chance = random.Random(5)
    with (
        Agent(tmp_path, *SMALL_LOG) as agent,
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", chance)
        world.change(50)
        query.finish()
        for is_applied in (True, False):
            world.send([("last", False)])
            if is_applied:
                query.finish()
            else:
                query.batch(dies=True)  # all of it was applied
            world.send([("last", True)])
            world.change(MANY)
            world.purge()
            query.finish()
            assert query.target.objects == world.objects


def test_a_copy_has_live_objects_only_and_operations_have_versions_of_their_own(
    tmp_path: Path,
) -> None:
    with (
        Agent(tmp_path) as agent,
        closing(Query(start="0", **place_of(tmp_path, agent, "store"))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", random.Random(6))
        world.send([("a", False), ("b", False), ("a", True)])
        query.finish()
        assert query.events == ["insert", "live"]
        assert [version - START_MS * 2**20 for version, _ in query.target.rows.values()] == [3]
        world.send([("b", False), ("b", False), ("c", False)])
        query.finish()
        assert sorted(version for version, _ in query.target.rows.values()) == [
            START_MS * 2**20 + offset for offset in (5, 6)
        ]


@THROUGH
@pytest.mark.parametrize("changes", [0, 5, 200])
def test_a_query_for_the_present_operations_copies_another_store(
    tmp_path: Path, through: str, changes: int
) -> None:
    with (
        two_stores(tmp_path, through) as (agent, replace),
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        World(agent, tmp_path / "oplog.db", random.Random(8)).change(100)
        query.finish_available()
        world = World(replace(), tmp_path / "oplog.db", random.Random(9))
        world.change(changes, names=3)
        query.finish_available()
        assert query.target.objects == world.objects
        query.restart()
        world.send([("present", False)])
        query.reader.prepareForTriggerAvailableNow()
        expected = dict(world.objects)
        world.send([("later", False)])
        query.finish()
        # A copy may have more.
        assert query.target.objects in (expected, world.objects)
        assert through == "agent" or query.target.objects == expected


@THROUGH
def test_a_query_that_has_read_nothing_copies_another_store(tmp_path: Path, through: str) -> None:
    with two_stores(tmp_path, through) as (agent, replace):
        World(agent, tmp_path / "oplog.db", random.Random(8)).change(100)
        with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
            newest = Mark(*db.execute("SELECT max(seq), max(ts) FROM ops").fetchone())
        options = {"start": format_id(newest), **place_of(tmp_path, agent, through)}
        with closing(Query(**options)) as query:
            query.reader.initialOffset()
            world = World(replace(), tmp_path / "oplog.db", random.Random(9))
            world.change(5)
            query.finish()
            assert query.target.objects == world.objects


@THROUGH
@pytest.mark.parametrize("changes", [5, MANY], ids=["shorter", "longer"])
def test_another_store_in_the_place_of_the_first_is_copied_above_all_versions(
    tmp_path: Path, through: str, changes: int
) -> None:
    chance = random.Random(2)
    with (
        two_stores(tmp_path, through) as (agent, replace),
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        World(agent, tmp_path / "oplog.db", chance).change(100)
        query.finish()
        newest = max(version for version, _ in query.target.rows.values())
        world = World(replace(), tmp_path / "oplog.db", chance)
        world.change(changes, names=3)
        query.restart()
        query.finish()
        assert query.target.objects == world.objects
        assert min(version for version, _ in query.target.rows.values()) > newest
        world.change(20, names=3)
        query.finish()
        assert query.target.objects == world.objects


@THROUGH
def test_a_query_on_an_empty_log_copies_a_restored_store_with_older_operations(
    tmp_path: Path, through: str
) -> None:
    (tmp_path / "second").mkdir()
    with Agent(tmp_path / "second") as agent:
        world = World(agent, tmp_path / "second/oplog.db", random.Random(10))
        world.change(30)
    with (
        two_stores(tmp_path, through) as (agent, replace),
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        query.finish()
        assert query.target.objects == {}
        world.use(replace())
        query.finish()
        assert query.target.objects == world.objects
        world.change(5)
        query.finish()
        assert query.target.objects == world.objects


@THROUGH
@pytest.mark.parametrize("start", ["time", "oldest"])
def test_a_query_whose_start_has_left_the_log_begins_with_a_copy(
    tmp_path: Path, through: str, start: str
) -> None:
    """Also if it had planned its first batch, and asks for the start again."""
    chance = random.Random(11)
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", chance)
        world.change(MANY if start == "time" else 60)
        # A second before the first operation.
        options = {"start": "1" if start == "time" else "oldest"}
        with closing(Query(**options, **place_of(tmp_path, agent, through))) as query:
            if start == "oldest":
                query.batch(dies=True, chance=chance)
                world.change(MANY)
                world.purge()
            query.finish()
            assert query.events.count("live") == 1
            assert query.target.objects == world.objects


@THROUGH
def test_a_batch_that_was_planned_before_a_backup_was_restored_is_a_copy(
    tmp_path: Path, through: str
) -> None:
    with (
        two_stores(tmp_path, through) as (agent, replace),
        closing(Query(start="0", **place_of(tmp_path, agent, through))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", random.Random(12))
        world.change(50)
        query.finish()
        world.change(15)
        backup = dict(world.objects)
        with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
            (tmp_path / "second").mkdir()
            db.execute("VACUUM INTO ?", [str(tmp_path / "second/oplog.db")])
        world.change(35)
        query.batch(dies=True, chance=random.Random(13))
        replace()
        query.finish()
        assert query.target.objects == backup


@THROUGH
@pytest.mark.parametrize("limit", [{}, {"maxOperationsPerTrigger": "1"}])
def test_a_first_batch_may_have_one_operation(
    tmp_path: Path, through: str, limit: dict[str, str]
) -> None:
    with Agent(tmp_path) as agent:
        world = World(agent, tmp_path / "oplog.db", random.Random(14))
        world.send([("a", False)])
        options = {"start": "oldest", **place_of(tmp_path, agent, through), **limit}
        with closing(Query(**options)) as query:
            query.finish()
            assert query.target.objects == world.objects
            assert "live" not in query.events


def test_a_repeated_batch_waits_a_little_for_an_agent_that_does_not_know_its_end_yet(
    tmp_path: Path,
) -> None:
    with (
        Agent(tmp_path) as agent,
        closing(Query(start="0", **place_of(tmp_path, agent, "agent"))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", random.Random(15))
        world.change(10)
        query.finish()
        world.change(10)
        query.batch(dies=True, chance=random.Random(16))
        head = query.log.head
        late = [query.start, query.start]

        def lagging() -> Any:
            return late.pop() if late else head()

        query.log.head = lagging  # type: ignore[method-assign]
        query.events.clear()
        query.batch()
        assert "live" not in query.events
        assert len(query.pauses) == 2
        query.finish()
        assert query.target.objects == world.objects


@pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)
def test_a_copy_reads_members_that_have_its_end(
    place: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(place.store, [operation("insert", "a", str(n)) for n in range(10)])
    asked: list[int | None] = []
    up_to_date = MongoBackend._up_to_date

    def noted(*arguments: Any) -> Any:
        asked.append(arguments[-1])
        return up_to_date(*arguments)

    settled: list[MongoBackend] = []
    monkeypatch.setattr(MongoBackend, "settle", lambda backend: settled.append(backend))
    monkeypatch.setattr(MongoBackend, "_up_to_date", noted)
    with closing(Query(start="0", store=f"{place.store}?readPreference=secondary")) as query:
        parts = query.log.copy({"id": "", "offset": 7, "ms": 0})
        found = [row for part in parts for rows in query.log.rows(part) for row in rows]
    assert len(found) == 10, "newer ones, too"
    assert set(asked) == {7}
    assert len(settled) == 1


def test_a_stream_may_have_only_its_versions(tmp_path: Path) -> None:
    rows = VersionedRows([StoreRow("a/1", "insert", 5, 0, "")], 10, None)
    batch = versioned_batch(rows, T.StructType().add("version", T.LongType()))
    assert batch.to_pylist() == [{"version": 15}]


def test_a_checkpoint_without_versions_is_refused(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as agent,
        closing(Query(start="0", **place_of(tmp_path, agent, "store"))) as query,
    ):
        world = World(agent, tmp_path / "oplog.db", random.Random(4))
        world.change(1)
        query.batch()
        world.change(1)
        assert query.start is not None
        del query.start["base"]
        with pytest.raises(SyncError, match="the checkpoint was made without onGap copy"):
            query.batch()

"""What has left a topic between two runs of a query, in a store and through agents alike."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oplog_sync.errors import MessagesGoneError
from oplog_sync.source import OplogDataSource
from oplog_sync.source.positions import Offset
from oplog_sync.topics.columns import topic_schema
from tests.integration.spark.topics.world import TOPIC, places, publish_under
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.servers.stores import StorePlace, new_place

WAYS = ("store", "agent")

_QUICK = pytest.mark.parametrize("place", ["sqlite", "mongo-plain"], indirect=True)


class World(NamedTuple):
    """A topic, and where its readers find it."""

    topic: Topic
    where: dict[str, str]

    @classmethod
    def of(cls, place: StorePlace, agent: Agent) -> "World":
        where = {"store": str(place.store), "agent": agent.url}
        return cls(Topic(agent, TOPIC).create(), where)

    def create_again(self) -> None:
        self.topic.delete()
        self.topic.create()


class Query:
    """A query for what is there, again and again, from one checkpoint. ``way``: see WAYS."""

    def __init__(self, way: str, **options: str) -> None:
        self._way = way
        self._options = {"topic": TOPIC, "retryFor": "30s", **options}
        self.noted: list[Offset] = []

    def options(self, world: World) -> dict[str, str]:
        return {self._way: world.where[self._way], **self._options}

    def run(self, world: World, **options: str) -> list[str]:
        """Return the payloads of its batches. A batch that fails is planned again later."""
        found: list[str] = []
        with closing(_Stopped(self.options(world) | options)) as source:
            reader = source.reader
            reader.prepareForTriggerAvailableNow()
            at = self.noted[-1] if self.noted else reader.initialOffset()
            while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) is not at:
                assert "start" in at or end != at
                for part in reader.partitions(at, end):
                    for batch in reader.read(part):
                        found += batch["payload"].to_pylist()
                self.noted.append(end)
                at = end
        return found


class _Stopped:
    def __init__(self, options: dict[str, Any]) -> None:
        self.reader = OplogDataSource(options).streamReader(topic_schema(False))

    def close(self) -> None:
        self.reader.stop()


def queries(*starts: str, **options: str) -> Iterator[Query]:
    for way in WAYS:
        for start in starts or ("oldest",):
            yield Query(way, start=start, **options)


def fails_and_goes_on(query: Query, world: World, *payloads: str) -> None:
    for _ in range(2):
        with pytest.raises(MessagesGoneError, match=r"topic shop/orders.*; .* onGap to oldest"):
            query.run(world)
    assert query.run(world, onGap="oldest") == [*payloads]
    assert query.run(world) == []
    world.topic.publish("later")
    assert query.run(world) == ["later"]


@_QUICK
def test_a_query_that_began_on_an_empty_topic_notices_what_leaves_it(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        for query in queries("now", "oldest"):
            assert query.run(world) == query.run(world) == []
            assert len(query.noted) == 1, "it notes that there was nothing"
            world.topic.publish("gone")
            world.create_again()
            world.topic.publish("new 1", "new 2")
            fails_and_goes_on(query, world, "new 1", "new 2")
            world.create_again()


@_QUICK
def test_a_query_whose_first_message_waits_for_a_decision_notices_what_leaves(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        for query in queries():
            publish_under(world.topic, 5, "held")
            assert query.run(world) == query.run(world) == []
            assert len(query.noted) == 1
            world.create_again()
            world.topic.publish("new")
            fails_and_goes_on(query, world, "new")
            world.create_again()


@_QUICK
def test_a_topic_created_again_is_a_gap_before_its_first_message(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        for limit in ({}, {"maxOperationsPerTrigger": "1"}):
            for query in queries(**limit):
                world.topic.publish("old")
                assert query.run(world) == ["old"]
                world.create_again()
                fails_and_goes_on(query, world)
                world.create_again()


@_QUICK
def test_a_topic_of_another_store_is_a_gap(
    tmp_path: Path, place: StorePlace, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    is_file = place.kind is None
    other_place = StorePlace(folder / "oplog.db") if is_file else new_place(request, "mongo-plain")
    with place.agent(tmp_path) as agent, other_place.agent(folder) as other_agent:
        world, other = World.of(place, agent), World.of(other_place, other_agent)
        other.topic.publish("other 1")
        world.topic.publish("old")
        earlier, later = list(queries()), list(queries("now"))
        for query in earlier:
            assert query.run(world) == ["old"]
            # All that the other topic has is older than the position.
            fails_and_goes_on(query, other, "other 1")
            other.create_again()
            other.topic.publish("other 1")
        for query in later:
            assert query.run(world) == []
            other.topic.publish("other 2")
            fails_and_goes_on(query, other, "other 1", "other 2")
            assert query.run(world, onGap="oldest") == ["old"], "and back"
            other.create_again()
            other.topic.publish("other 1")


@_QUICK
def test_a_checkpoint_without_a_store_gets_to_know_it(tmp_path: Path, place: StorePlace) -> None:
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        world.topic.publish("1")
        for query in queries():
            assert query.run(world) == ["1"]
            noted = query.noted[-1]
            assert noted["store"] == agent.request("GET", "/status").headers["oplog-store"]
            for before in (noted, {"id": "0", "offset": 0, "ms": 0}):
                query.noted = [{name: before[name] for name in ("id", "offset", "ms")}]
                assert query.run(world) == ([] if before is noted else ["1"])
                assert query.noted[1:] == [noted]
                assert query.run(world) == []


def test_a_store_that_only_an_earlier_release_has_opened_is_read_without_its_identity(
    tmp_path: Path,
) -> None:
    place = StorePlace(tmp_path / "oplog.db")
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        world.topic.publish("1")
    with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
        db.execute("DROP TABLE identity")
    query = Query("store", start="oldest")
    assert query.run(world) == ["1"]
    assert "store" not in query.noted[-1]
    with place.agent(tmp_path):
        assert query.run(world) == []
        assert "store" in query.noted[-1]


def test_the_next_batch_tells_that_the_messages_of_a_planned_first_batch_are_gone(
    tmp_path: Path,
) -> None:
    place = StorePlace(tmp_path / "oplog.db")
    with place.agent(tmp_path) as agent:
        world = World.of(place, agent)
        for query in queries():
            world.topic.publish("1", "2")
            query.run(world)
            end = query.noted[-1]
            world.create_again()
            world.topic.publish("new")
            source = _Stopped(query.options(world))
            with closing(source):
                reader = source.reader
                parts = reader.partitions(reader.initialOffset(), end)
                assert [batch for part in parts for batch in reader.read(part)] == []
            fails_and_goes_on(query, world, "new")


def test_no_task_reads_a_store_other_than_that_of_its_plan(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    one, two = StorePlace(tmp_path / "oplog.db"), StorePlace(folder / "oplog.db")
    with one.agent(tmp_path) as agent, two.agent(folder) as other_agent:
        for each in (agent, other_agent):
            Topic(each, TOPIC).create().publish("1", "2")
        with places(one, agent) as planned, places(two, other_agent) as read:
            for way in WAYS:
                driver = planned[way].origin()
                begin = driver.latest(driver.start("oldest"), 1)
                parts = driver.plan(begin, driver.latest(begin, None))
                with pytest.raises(MessagesGoneError, match="topic shop/orders"):
                    list(read[way].origin().rows(parts[0]))
                goes_on = planned[way].origin(fails_on_gap=False)
                (part,) = goes_on.plan(begin, goes_on.latest(begin, None))
                assert list(read[way].origin(fails_on_gap=False).rows(part)) == []

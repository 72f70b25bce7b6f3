"""A pipe on Spark: the tables of its sinks after copies, gaps, failures and restarts."""

import json
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from oplog_sync.source import register
from tests.integration.spark.pipe.pipes import SparkFolder, operation, postgres_sink, table
from tests.integration.spark.source.mirrors import MANY, SMALL_LOG, World
from tests.kits.agents.agent import Agent
from tests.kits.pipe.processes import PipeFolder
from tests.kits.pipe.targets import new_target
from tests.kits.servers.postgres import PostgresServer

CHANGES = '''
def shape(message):
    """Drop some, delete some, bring others to one object."""
    data = message.data
    number = int(message.id)
    if number % 5 == 0:
        return None
    if number % 5 == 1:
        message.id = "many"
    if number % 5 == 2 and data["parents"]:
        message.op = "delete"
    message.data = {"id": message.id, "from": number}
    return message


def refuse(message):
    if message.id == "7":
        message.data = {"text": "\\0"}
    return message
'''


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


def test_run_and_spark_give_the_same_tables_from_one_file(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    chance = random.Random(5)
    (tmp_path / "agent").mkdir()
    found = []
    with Agent(tmp_path / "agent") as agent:

        def change() -> None:
            changes = []
            for _ in range(300):
                event = chance.choice(["insert", "update", "delete"])
                parents = ["p"] if chance.random() < 0.3 else []
                kind = chance.choice("ab")
                changes.append(operation(event, chance.randrange(40), parents, kind))
            assert agent.post(changes) == 200

        change()
        folders = []
        for name in ("run", "spark"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "changes.py").write_text(CHANGES)
            database = postgres.new_database()
            sinks = [
                postgres_sink(database),
                postgres_sink(database, "only_a", namespace="^a$"),
                postgres_sink(database, "shaped", transforms=["changes:shape"]),
            ]
            folders.append((folder, database, sinks))
        (run, run_url, run_sinks), (other, spark_url, spark_sinks) = folders
        pipe = PipeFolder(run, [agent.url], run_sinks, name="p")
        on_spark = SparkFolder(spark, other, [agent.url], spark_sinks)
        for round in range(3):
            if round:
                change()
            newest = agent.status()["store"]["newest_id"]
            with pipe.run() as process:
                pipe.wait_status(
                    lambda status, newest=newest: (
                        status["sources"][0]["position"] == newest  # type: ignore[misc]
                        and all(
                            each["flushed"] == status["log"]["end"] - 1 for each in status["sinks"]
                        )
                    )
                )
                assert process.stop() == 0
            assert on_spark.run() == 0
            for name in ("objects", "only_a"):
                rows = table(spark_url, name)
                assert rows == table(run_url, name)
                found.append(len(rows))
            assert table(spark_url, "shaped") == table(run_url, "shaped")
    assert all(found)


def test_a_table_equals_the_source_after_two_gaps_with_purged_tombstones(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", chance)
        pipe = SparkFolder(spark, tmp_path, [agent.url], [postgres_sink(url)])
        for _ in range(3):
            world.change(MANY)
            world.purge()
            assert pipe.run() == 0
            rows = table(url, "objects", "id, data->>'timestamp'")
            assert dict(rows) == world.objects
            world.change(20)
            assert pipe.run() == 0
            rows = table(url, "objects", "id, data->>'timestamp'")
            assert dict(rows) == world.objects


def test_the_order_of_the_sources_in_the_file_decides_nothing(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    for each in folders:
        each.mkdir()
    with Agent(folders[0]) as one, Agent(folders[1]) as two:
        sources = [{"name": "b", "agents": [two.url]}, {"name": "a", "agents": [one.url]}]
        pipe = SparkFolder(spark, tmp_path, [], [postgres_sink(url)], sources=sources)
        assert one.post([operation("insert", n) for n in range(3)]) == 200
        assert pipe.run() == 0  # so the sources have other versions
        assert two.post([operation("insert", n, type="b") for n in range(3)]) == 200
        assert pipe.run() == 0
        sources.reverse()
        pipe = SparkFolder(
            spark, tmp_path, [], [postgres_sink(url)], sources=sources, name=pipe.name
        )
        assert (
            two.post([operation("delete", 0, type="b"), operation("update", 1, ["p"], "b")]) == 200
        )
        assert pipe.run() == 0
        rows = table(url, "objects", "id, data->'parents'")
        assert rows == [("a/0", []), ("a/1", []), ("a/2", []), ("b/1", ["p"]), ("b/2", [])]
        with psycopg.connect(url) as connection:
            # As if a later checkpoint had written it.
            connection.execute("UPDATE objects SET version = version + 5000::bigint * 1048576")
        assert one.post([operation("update", 2)]) == 200
        assert pipe.run() == 2
        assert "another folder or checkpoint has written the row" in pipe.error
        other = [{"name": "c", "agents": [two.url]}, sources[0]]
        pipe = SparkFolder(
            spark, tmp_path, [], [postgres_sink(url, start="end")], sources=other, name=pipe.name
        )
        assert pipe.run() == 2
        assert "give another --checkpoint" in pipe.error.lower()


def test_objects_of_a_copy_that_come_to_one_row_keep_their_order(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    with Agent(tmp_path) as agent:
        numbers = [n for n in random.Random(4).sample(range(1000), 200) if n % 5 == 1]
        assert agent.post([operation("insert", n) for n in numbers]) == 200
        sink = postgres_sink(url, transforms=["changes:shape"])
        assert SparkFolder(spark, tmp_path, [agent.url], [sink]).run() == 0
    assert table(url, "objects", "id, data->'from'") == [("a/many", numbers[-1])]


def test_a_store_is_read_in_the_place_of_its_agents(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    chance = random.Random(6)
    (tmp_path / "changes.py").write_text(CHANGES)
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", chance)
        sinks = [postgres_sink(url), postgres_sink(url, "shaped", transforms=["changes:shape"])]
        name = ""
        for store in ("oplog.db", None, "oplog.db"):
            sources = [{"agents": [agent.url], "store": store}]
            given = {"name": name} if name else {}
            pipe = SparkFolder(spark, tmp_path, [], sinks, sources=sources, **given)
            name = pipe.name
            world.change(MANY)
            world.purge()
            assert pipe.run() == 0
            rows = table(url, "objects", "id, data->>'timestamp'")
            assert dict(rows) == world.objects


@pytest.mark.parametrize("name", ["mongodb", "elasticsearch"])
def test_other_targets_equal_the_source_after_a_restart_and_a_gap(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    target = new_target(name, request)
    sink = {"name": "objects", **target.settings(), "timeout": 5}
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", random.Random(8))
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        for count in (100, 30, MANY):
            world.change(count)
            world.purge()
            assert pipe.run() == 0
            found = {f"a/{id}": each.data["timestamp"] for id, each in target.objects("a").items()}
            assert found == world.objects
        # After each restart, for tasks that may have outlived the driver.
        late = {"mongodb": 30.0, "elasticsearch": 15.0}[name]
        assert pipe.pauses == [late, late]


def test_refused_messages_are_dead_letters_and_their_copy_removes_nothing(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    sink = postgres_sink(url, transforms=["changes:refuse"], dead_letter="dead.jsonl")
    with Agent(tmp_path, *SMALL_LOG) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert agent.post([operation("insert", n) for n in range(1, 10)]) == 200
        assert pipe.run() == 0
        assert len(table(url, "objects")) == 8
        (letter,) = map(json.loads, (tmp_path / "dead.jsonl").read_text().splitlines())
        assert letter["id"] == "7"
        assert letter["data"]["type"] == "a"
        assert "unsupported Unicode escape sequence" in letter["error"]
        # The object is in the source: were the copy whole, its row of an earlier time would go.
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO objects SELECT 'a/7', 1, source, timestamp, oplog_owner FROM objects"
                " LIMIT 1"
            )
        assert agent.post([operation("update", 1) for _ in range(MANY)]) == 200
        assert pipe.run() == 0
        assert len(table(url, "objects")) == 9
        status = pipe.last.status().sinks[0]
        assert (status.dead, status.not_whole) == (1, ["system/oplog"])


def test_a_sink_that_fails_ends_alone(
    spark: SparkSession, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    sinks = [
        postgres_sink(url, transforms=["changes:refuse"]),
        {**postgres_sink(url), "name": "missing", "table": "missing", "create": False},
        {**postgres_sink(url), "name": "whole", "table": "whole"},
    ]
    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], sinks)
        assert agent.post([operation("insert", n) for n in range(300)]) == 200
        assert pipe.run() == 4
    assert len(table(url, "whole")) == 300
    refused, missing, whole = pipe.last.status().sinks
    assert "unsupported Unicode escape sequence" in (refused.error or "")
    assert missing.error == 'PostgreSQL: relation "missing" does not exist'
    assert (whole.error, whole.written) == (None, 300)
    assert "\\0" not in caplog.text


def test_a_parked_sink_is_tried_again_until_it_works(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    sink = postgres_sink(url, on_failure="park", create=False)
    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert agent.post([operation("insert", n) for n in range(3)]) == 200
        with pipe.running() as running:
            parked = running.wait(lambda status: status.phase == "parked")
            statement = (parked.error or "").partition(" create it: ")[2]
            with psycopg.connect(url) as connection:
                connection.execute(statement.encode())
                connection.execute(
                    "CREATE TABLE objects (id text PRIMARY KEY, version bigint, source text,"
                    " timestamp timestamptz, oplog_owner text, data jsonb)"
                )
            running.wait(lambda status: status.phase == "bulk" and status.written == 3)
    assert running.code == 0
    assert len(table(url, "objects")) == 3


def test_a_driver_ends_when_a_later_one_writes_the_same_rows(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        sink = postgres_sink(url, on_failure="park")
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert agent.post([operation("insert", 0)]) == 200
        with pipe.running() as running:
            running.wait(lambda status: status.written == 1)
            (tmp_path / "other").mkdir()
            sinks = [postgres_sink(url)]
            session = spark.newSession()
            register(session)
            other = SparkFolder(session, tmp_path / "other", [agent.url], sinks, name=pipe.name)
            assert other.run() == 0
            assert agent.post([operation("insert", 1)]) == 200
            ended = running.wait(lambda status: status.phase == "stopped")
            assert f"another driver writes the rows of '{pipe.name}/objects'" in (ended.error or "")
        assert running.code == 4
        assert other.run() == 0
    assert len(table(url, "objects")) == 2


def test_a_change_of_what_goes_where_needs_a_new_checkpoint_or_a_word(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1), operation("insert", 2, type="b")]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [postgres_sink(url)])
        assert pipe.run() == 0

        def changed(**others: Any) -> SparkFolder:
            sinks = [postgres_sink(url, namespace="^b$", **others)]
            return SparkFolder(spark, tmp_path, [agent.url], sinks, name=pipe.name)

        refused = changed()
        assert refused.run() == 2
        assert "sinks[0]: namespace changed since the checkpoint" in refused.error
        noted = tmp_path / "checkpoint/objects/oplog-pipe.json"
        noted.rename(f"{noted}.part")  # a driver was killed in a change of it
        (noted.parent / f".{noted.name}.crc").unlink()
        assert refused.run() == 2
        Path(f"{noted}.part").rename(noted)
        assert agent.post([operation("insert", 3), operation("insert", 4, type="b")]) == 200
        assert changed(start="end").run() == 0
        assert [row[0] for row in table(url, "objects")] == ["a/1", "b/2", "b/4"]
        assert changed().run() == 0
        anew = changed()
        anew.checkpoint = tmp_path / "another"
        assert anew.run() == 0
        assert [row[0] for row in table(url, "objects")] == ["b/2", "b/4"]

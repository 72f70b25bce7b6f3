"""Sinks of a pipe on Spark with a query, and sinks that are tables of Spark."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from oplog_pipe.spark import select
from oplog_pipe.spark.tasks.rows import LIVE, Row
from oplog_sync.source import register
from tests.integration.spark.pipe.pipes import SparkFolder, operation, postgres_sink, table
from tests.integration.spark.source.mirrors import MANY, SMALL_LOG, World
from tests.kits.agents.agent import Agent
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


def owners(spark: SparkSession, folder: Path, names: Mapping[str, str]) -> None:
    rows = spark.createDataFrame(list(names.items()), "id string, name string")
    rows.write.mode("overwrite").parquet(str(folder / "owners"))


def rows_of(spark: SparkSession, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.parquet(str(path)).select(*columns).collect()))


def test_the_file_of_the_page_has_messages_a_joined_table_a_history_and_a_mirror(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    sinks = yaml.safe_load(snippets(pages.OPERATE_PIPE_SPARK)[2].code)["sinks"]
    for each in sinks[:2]:
        each["url"] = url
    owners(spark, tmp_path, {"p": "Ada"})
    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], sinks)
        first = [operation("insert", 5, ["p"], "video"), operation("insert", 6, ["q"], "video")]
        assert agent.post([*first, operation("insert", 7, type="b")]) == 200
        assert pipe.run() == 0
        assert [each.written for each in pipe.last.status().sinks] == [3, 3, 2, 3]
        owners(spark, tmp_path, {"p": "Ada", "q": "Bob"})
        more = operation("update", 6, ["q"], "video"), operation("delete", 5, type="video")
        assert agent.post(more) == 200
        assert pipe.run() == 0
    assert [row[0] for row in table(url, "objects")] == ["b/7", "video/6"]
    assert [row[3] for row in table(url, "owned")] == [{"id": "7"}, {"id": "6", "owner": "Bob"}]
    folder = tmp_path / "tables"
    history = rows_of(spark, folder / "history", "version", "op", "type", "id")
    assert [row[1:] for row in history] == [
        ("insert", "video", "5"), ("insert", "video", "6"),
        ("update", "video", "6"), ("delete", "video", "5"),
    ]  # fmt: skip
    assert rows_of(spark, folder / "present", "type", "id") == [("b", "7"), ("video", "6")]
    status = pipe.last.status().sinks[2]
    assert (status.written, status.filtered) == (2, 0)


def test_a_table_with_merge_equals_the_source_after_gaps_with_purged_tombstones(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = {"name": "mirror", "format": "parquet", "path": "mirror", "merge": ["type", "id"]}
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", random.Random(9))
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        for count in (100, 40, MANY):
            world.change(count)
            world.purge()
            assert pipe.run() == 0
            found = rows_of(spark, tmp_path / "mirror", "type", "id", "data")
            assert {
                f"{type}/{id}": json.loads(data)["timestamp"] for type, id, data in found
            } == world.objects
        # A driver was killed between the two changes of folders.
        (tmp_path / "mirror").rename(tmp_path / "_mirror.before-0")
        world.change(10)
        assert pipe.run() == 0
        found = rows_of(spark, tmp_path / "mirror", "type", "id", "data")
        assert len(found) == len(world.objects)


def test_a_history_has_a_batch_once_and_begins_again_with_a_new_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = {"name": "history", "format": "orc", "path": str(tmp_path / "history")}
    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert agent.post([operation("insert", n) for n in range(3)]) == 200
        assert pipe.run() == 0
        # The driver died before Spark noted the end of the batch.
        for each in (tmp_path / "checkpoint/history/commits").iterdir():
            each.unlink()
        assert pipe.run() == 0
        assert spark.read.orc(str(tmp_path / "history")).count() == 3
        pipe.checkpoint = tmp_path / "another"
        assert pipe.run() == 0
        assert spark.read.orc(str(tmp_path / "history")).count() == 6


@pytest.mark.parametrize(
    ("setting", "value", "code", "problem"),
    [
        ("select", "SELECT FROM WHERE", 2, "sinks[0].select: "),
        ("select", "SELECT wrong FROM input", 2, "sinks[0].select: "),
        ("select", "SELECT op, id FROM input", 2, "sinks[0].select: the result has no column type"),
        ("select", "SELECT * EXCEPT (id), string(null) AS id FROM input", 4, "id of a row is null"),
        ("select", "SELECT * EXCEPT (op), 'live' AS op FROM input", 4, "op of a row is not insert"),
        ("select", "SELECT * EXCEPT (place), array(1) AS place FROM input", 2, "sinks[0].select: "),
        (
            "select",
            "SELECT * EXCEPT (source), 'x' AS source FROM input",
            4,
            "source of a row is no",
        ),
        (
            "select",
            "SELECT * EXCEPT (version), 1 AS version FROM input",
            4,
            "version of a row is n",
        ),
        ("tables", {"owners": {"format": "orc", "path": "none"}}, 1, "sinks[0].tables.owners: "),
    ],
)
def test_a_wrong_query_is_named(
    spark: SparkSession, url: str, tmp_path: Path,
    setting: str, value: Any, code: int, problem: str,
) -> None:  # fmt: skip
    given = {"select": "SELECT * FROM input", setting: value}
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [postgres_sink(url, **given)])
        assert pipe.run() == code
    assert problem in pipe.error
    assert "\n" not in pipe.error


MIRROR = {"name": "mirror", "format": "parquet", "path": "mirror", "merge": ["type", "id"]}


def test_a_folder_with_something_else_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [MIRROR])
        assert pipe.run() == 0  # it was empty
        other = SparkFolder(spark, tmp_path, [agent.url], [MIRROR])
        other.checkpoint = tmp_path / "another"
        assert other.run() == 2
        assert f"mirror has a table of '{pipe.name}/mirror'" in other.error
        (tmp_path / "data").mkdir()
        (tmp_path / "data/file").write_text("of a user")
        foreign = SparkFolder(spark, tmp_path, [agent.url], [{**MIRROR, "path": "data"}])
        foreign.checkpoint = tmp_path / "third"
        assert foreign.run() == 2
        assert "sinks[0].path: " in foreign.error
        assert "has files of others" in foreign.error
        assert (tmp_path / "data/file").read_text() == "of a user"
        within = SparkFolder(spark, tmp_path, [agent.url], [{**MIRROR, "path": "fourth"}])
        within.checkpoint = tmp_path / "fourth"
        assert within.run() == 2
        assert "--checkpoint must not be in one another" in within.error


def test_a_new_checkpoint_writes_a_mirror_anew_with_other_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", n) for n in (1, 2)]) == 200
        first = {**MIRROR, "select": "SELECT *, 'a' AS more FROM input"}
        pipe = SparkFolder(spark, tmp_path, [agent.url], [first])
        assert pipe.run() == 0
        assert agent.post([operation("delete", 1)]) == 200
        second = {**MIRROR, "select": "SELECT *, 1 AS more FROM input"}
        again = SparkFolder(spark, tmp_path, [agent.url], [second], name=pipe.name)
        again.checkpoint = tmp_path / "another"
        assert again.run() == 0
        assert agent.post([operation("insert", 3)]) == 200
        assert again.run() == 0
    assert rows_of(spark, tmp_path / "mirror", "id", "more") == [("2", 1), ("3", 1)]


def test_the_copy_of_one_source_leaves_the_rows_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    for each in folders:
        each.mkdir()
    with Agent(folders[0], *SMALL_LOG) as one, Agent(folders[1]) as two:
        sources = [{"name": "a", "agents": [one.url]}, {"name": "b", "agents": [two.url]}]
        pipe = SparkFolder(spark, tmp_path, [], [MIRROR], sources=sources)
        assert one.post([operation("insert", n) for n in (1, 2)]) == 200
        assert two.post([operation("insert", n, type="b") for n in (1, 2)]) == 200
        assert pipe.run() == 0
        assert one.post([operation("update", 2) for _ in range(MANY)]) == 200  # a gap
        assert pipe.run() == 0
    found = rows_of(spark, tmp_path / "mirror", "source", "type", "id")
    assert found == [("a", "a", "1"), ("a", "a", "2"), ("b", "b", "1"), ("b", "b", "2")]


def test_a_second_driver_ends_the_first_one_of_a_mirror(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [MIRROR])
        with pipe.running() as running:
            running.wait(lambda status: status.written == 1)
            session = spark.newSession()
            register(session)
            other = SparkFolder(session, tmp_path, [agent.url], [MIRROR], name=pipe.name)
            other.checkpoint = tmp_path / "another"
            assert other.run() == 0
            assert agent.post([operation("insert", 2)]) == 200
            ended = running.wait(lambda status: status.phase == "stopped")
        assert "another driver writes the rows of" in (ended.error or "")
        assert other.run() == 0
    assert rows_of(spark, tmp_path / "mirror", "id") == [("1",), ("2",)]
    # Each driver has left the file that the next one takes away.
    left = sorted(each.name.partition("-")[0] for each in tmp_path.glob("_mirror*"))
    assert left == ["_mirror.driver", "_mirror.part"]


@pytest.mark.parametrize(
    ("query", "code", "problem"),
    [
        ("* EXCEPT (id), string(null) AS id", 4, "id of a row is null"),
        ("* EXCEPT (op), 'DELETE' AS op", 4, "op of a row is not insert, update or delete"),
        ("* EXCEPT (source), upper(source) AS source", 4, "source of a row is none of the sources"),
        ("* EXCEPT (version), 1 AS version", 4, "version of a row is not one of the batch's"),
        ("* EXCEPT (id), map(1, 1) AS id", 2, "not orderable"),
    ],
)
def test_a_row_that_cannot_be_in_a_mirror_is_refused(
    spark: SparkSession, tmp_path: Path, query: str, code: int, problem: str
) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        sink = {**MIRROR, "select": f"SELECT {query} FROM input"}
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert pipe.run() == code
    assert "sinks[0].select: " in pipe.error
    assert problem in pipe.error


def test_an_error_of_a_query_repeats_no_row(
    spark: SparkSession, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parent = "[SECRET] MessagesGoneError: the secret file:/secret CRC failure"
    query = "SELECT * EXCEPT (version), cast(data || 'secret' AS int) AS version FROM input"
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1, [parent])]) == 200
        sinks = [postgres_sink(url, select=query), {**MIRROR, "select": query}]
        pipe = SparkFolder(spark, tmp_path, [agent.url], sinks)
        assert pipe.run() == 1
    ours = [each.getMessage() for each in caplog.records if each.name == "oplog_pipe"]
    for said in (*ours, *(each.error or "" for each in pipe.last.status().sinks)):
        assert "secret" not in said.lower()
    assert "CAST_INVALID_INPUT" in pipe.error


def test_a_table_with_merge_needs_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    sink = {
        "name": "mirror", "format": "parquet", "path": "mirror", "merge": "id",
        "select": "SELECT op, id, source FROM input",
    }  # fmt: skip
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert pipe.run() == 2
    assert "sinks[0].merge: the rows have no column version" in pipe.error


def test_a_batch_that_is_read_twice_and_differs_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = select._others, []

    def others(rows: DataFrame) -> list[Row]:
        seen.append(plain(rows))
        return seen[-1] if len(seen) != 2 else [*seen[-1], Row(LIVE, "system/oplog", 1)]

    monkeypatch.setattr(select, "_others", others)
    sink = {"name": "history", "format": "parquet", "path": "history"}
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", n) for n in range(3)]) == 200
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert pipe.run() == 0
    assert len(seen) == 4
    assert pipe.last.status().sinks[0].written == 3
    assert len(rows_of(spark, tmp_path / "history", "id")) == 3

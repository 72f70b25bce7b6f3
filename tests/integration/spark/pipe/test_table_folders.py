"""Folders of tables on a real file system, and what a table refuses to have."""

import logging
from pathlib import Path
from shutil import copytree, rmtree
from unittest.mock import Mock

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from oplog_pipe.errors import BrokenBatchError, ConfigError, FencedError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.batch import SinkFigures
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.tables.history import HistoryFolder
from oplog_pipe.spark.tables.mark import Mark
from oplog_pipe.spark.tables.swap import Swap
from oplog_pipe.spark.tables.table import TableBatches
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_sync.failure import silence_queries
from tests.integration.spark.pipe.pipes import SparkFolder, operation
from tests.kits.agents.agent import Agent

HISTORY = {"name": "history", "format": "parquet", "path": "history"}
MIRROR = {"name": "mirror", "format": "parquet", "path": "mirror", "merge": ["type", "id"]}


@pytest.mark.parametrize("is_copying", [True, False])
def test_a_folder_moves_unless_it_is_gone_or_there_is_another_one(
    spark: SparkSession, tmp_path: Path, is_copying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(spark, str(tmp_path))
    # So does Hadoop on a local file system: it copies a folder into the one with its new name.
    monkeypatch.setattr(folders, "_is_local", not is_copying)
    one, two, three = (str(tmp_path / each) for each in ("a-1", "a-2", "a-3.x"))
    folders.write(f"{one}/file", b"one")
    folders.write(f"{two}/file", b"two")
    folders.write(f"{three}/file", b"")
    assert folders.names(str(tmp_path / "a-")) == [one, two]
    assert [folders.is_empty(each) for each in (two, three)] == [False, True]
    assert not folders.move(one, two)
    assert not folders.move(str(tmp_path / "none"), str(tmp_path / "new"))
    assert folders.names(f"{two}/") == [f"{two}/file"]
    assert folders.read(f"{two}/file") == "two"
    assert folders.move(two, str(tmp_path / "new"))
    assert folders.read(str(tmp_path / "new/file")) == "two"
    folders.remove(str(tmp_path / "new"), str(tmp_path / "dead-"))
    assert not list(tmp_path.glob("new*"))
    assert not list(tmp_path.glob("dead-*"))


def work(run: str) -> SinkWork:
    sink = SinkSettings("s", "m:C", CustomOptions("m:C"))
    return SinkWork("p", Path("/"), "sinks[0]", sink, {}, run)


def test_a_late_driver_brings_no_rows_into_a_history(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    folders = Folders(spark, path)
    late, other = (HistoryFolder(folders, path, work(each), 7) for each in ("A", "B"))
    for each in (late, other):
        each.start()
        folders.write(f"{each.part.rows}/rows", b"A" if each is late else b"B")
    other.publish(0, {"id": "string"}, ["end"])
    with pytest.raises(FencedError):
        late.publish(0, {"id": "string"}, ["end"])
    assert other.has(0, ["end"])
    with pytest.raises(ConfigError, match="has other batches than the checkpoint"):
        other.has(0, ["another end"])
    assert [each.read_text() for each in tmp_path.glob("t/oplog_batch=*/rows")] == ["B"]
    assert not list(tmp_path.glob("t/_part-A*"))
    # A new run knows the columns.
    other = HistoryFolder(folders, path, work("C"), 7)
    other.start()
    with pytest.raises(ConfigError, match="column ID is now int, and was string"):
        other.check({"ID": "int"})


def test_a_mirror_is_replaced_by_the_next_one_only(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    folders = Folders(spark, path)
    swap = Swap(folders, path, work("A"))
    swap.start()
    assert swap.present() is None
    marks = [Mark("p/s", 7, number, run="A") for number in (1, 2, 2)]
    for number, mark in enumerate(marks):
        folders.write(f"{swap.part.rows}/rows", str(number).encode())
        if number < 2:
            swap.publish(mark)
            assert swap.present() == mark
    with pytest.raises(BrokenBatchError):
        swap.publish(marks[2])
    assert swap.present() == marks[1]
    assert (tmp_path / "t/rows").read_text() == "1"
    assert not list(tmp_path.glob("_t.before-*"))


@pytest.mark.parametrize("sink", [HISTORY, MIRROR])
def test_a_column_keeps_its_type(spark: SparkSession, tmp_path: Path, sink: dict[str, str]) -> None:
    def more(value: str) -> None:
        rows = spark.sql(f"SELECT '1' AS key, {value} AS more")
        rows.write.mode("overwrite").parquet(str(tmp_path / "more"))

    query = "SELECT input.*, more FROM input LEFT JOIN added ON key = input.id"
    added = {"added": {"format": "parquet", "path": "more"}}
    more("5")
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        pipe = SparkFolder(
            spark, tmp_path, [agent.url], [{**sink, "select": query, "tables": added}]
        )
        assert pipe.run() == 0
        more("'text'")
        assert agent.post([operation("insert", 2)]) == 200
        assert pipe.run() == 2
        assert pipe.error == (
            "sinks[0].select: column more is now string, and was int in the table; cast it, or"
            " begin with a new checkpoint and another path"
        )
        more("6")
        assert pipe.run() == 0
    found = spark.read.parquet(str(tmp_path / sink["path"]))
    assert sorted((row.id, row.more) for row in found.collect()) == [("1", 5), ("2", None)]


def test_a_history_refuses_the_files_of_others_and_its_own_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "history").mkdir()
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        query = "SELECT *, 1 AS Oplog_Batch FROM input"
        pipe = SparkFolder(spark, tmp_path, [agent.url], [{**HISTORY, "select": query}])
        assert pipe.run() == 2
        assert "sinks[0].select: column oplog_batch is the table's own" in pipe.error
        other = SparkFolder(spark, tmp_path, [agent.url], [HISTORY])
        other.checkpoint = tmp_path / "another"
        assert other.run() == 2
        assert f"history has a table of '{pipe.name}/history'" in other.error
        mirror = {**MIRROR, "name": "history", "path": "history"}
        merging = SparkFolder(spark, tmp_path, [agent.url], [mirror], name=pipe.name)
        merging.checkpoint = tmp_path / "third"
        assert merging.run() == 2
        assert "history has a table with other settings of merge" in merging.error
        outer = str(tmp_path / "history")
        (tmp_path / "link").symlink_to(outer)
        for kind in (HISTORY, MIRROR):
            inner = SparkFolder(spark, tmp_path, [agent.url], [{**kind, "path": "link/in"}])
            inner.checkpoint = tmp_path / f"inner {kind['name']}"
            assert inner.run() == 2
            assert f"link/in is in {tmp_path}/link, which has a table of" in inner.error
        (tmp_path / "data").mkdir()
        (tmp_path / "data/file").write_text("of a user")
        foreign = SparkFolder(spark, tmp_path, [agent.url], [{**HISTORY, "path": "data"}])
        foreign.checkpoint = tmp_path / "fourth"
        assert foreign.run() == 2
        assert "data has files of others" in foreign.error


def test_a_column_of_a_user_is_not_the_number_of_a_mirror(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", 1)]) == 200
        sink = {**MIRROR, "select": "SELECT *, 7 AS _number FROM input"}
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        assert pipe.run() == 0
    assert [row._number for row in spark.read.parquet(str(tmp_path / "mirror")).collect()] == [7]


@pytest.mark.parametrize("sink", [HISTORY, MIRROR])
def test_an_older_copy_of_a_checkpoint_writes_nothing_into_a_table(
    spark: SparkSession, tmp_path: Path, sink: dict[str, str]
) -> None:
    def rows() -> list[str]:
        found = spark.read.parquet(str(tmp_path / str(sink["path"]))).collect()
        return sorted(row["id"] for row in found)

    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], [sink])
        for number in range(3):
            assert agent.post([operation("insert", number)]) == 200
            assert pipe.run() == 0, pipe.error
            if number == 0:
                copytree(pipe.checkpoint, tmp_path / "old")
        pipe.checkpoint = tmp_path / "old"
        assert agent.post([operation("insert", 3)]) == 200
        for _ in range(2):
            assert pipe.run() == 2
            assert "has other batches than the checkpoint" in pipe.error
            assert rows() == ["0", "1", "2"]
        pipe.checkpoint = tmp_path / "new"
        rmtree(tmp_path / str(sink["path"]))
        assert pipe.run() == 0, pipe.error
        assert rows() == ["0", "1", "2", "3"]


def test_a_mirror_that_is_gone_or_of_a_later_checkpoint_is_not_gone_on_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        pipe = SparkFolder(spark, tmp_path, [agent.url], [MIRROR])
        for number in range(2):
            assert agent.post([operation("insert", number)]) == 200
            assert pipe.run() == 0, pipe.error
        first = pipe.checkpoint
        pipe.checkpoint = tmp_path / "second"
        assert pipe.run() == 0, pipe.error
        assert agent.post([operation("insert", 2)]) == 200
        pipe.checkpoint = first
        assert pipe.run() == 2
        assert "has other batches than the checkpoint" in pipe.error
        pipe.checkpoint = tmp_path / "second"
        assert pipe.run() == 0, pipe.error
        rmtree(tmp_path / "mirror")
        assert agent.post([operation("insert", 3)]) == 200
        assert pipe.run() == 2
        assert "has other batches than the checkpoint" in pipe.error


def test_a_mirror_without_a_copy_may_get_another_path(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        for number in range(3):
            sink = {**MIRROR, "start": "end", "path": f"mirror{number // 2}"}
            pipe = SparkFolder(spark, tmp_path, [agent.url], [sink], name="p")
            assert pipe.run() == 0, pipe.error
            assert agent.post([operation("insert", number)]) == 200
        assert pipe.run() == 0, pipe.error
        for number, ids in enumerate((["0"], ["1", "2"])):
            rows = spark.read.parquet(str(tmp_path / f"mirror{number}")).collect()
            assert sorted(row["id"] for row in rows) == ids


@pytest.mark.parametrize("merge", [(), ("id",)])
def test_a_driver_that_was_frozen_before_it_took_a_table_over_leaves_it_alone(
    spark: SparkSession, tmp_path: Path, merge: tuple[str, ...]
) -> None:
    checks = iter([None, FencedError("another driver")])

    def check() -> None:
        if error := next(checks):
            raise error

    options = FormatOptions("parquet", str(tmp_path / "t"), merge=merge)
    run = SinkWork("p", tmp_path, "sinks[0]", SinkSettings("s", "parquet", options), {}, "A")
    versions = Mock(give=lambda rows, *_: rows)
    batches = TableBatches(run, SinkFigures(), versions, check, str(tmp_path / "c"), 7)
    with pytest.raises(FencedError):
        batches(spark.range(1), 0)
    assert [*checks] == []
    assert not list(tmp_path.glob("t/[!._]*"))


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_pyspark_logs_no_values_of_rows(spark: SparkSession) -> None:
    logger, records = PySparkLogger.getLogger("SQLQueryContextLogger"), Records()
    level = logger.level
    logger.addHandler(records)
    logger.setLevel(logging.ERROR)  # another test may have silenced it
    try:
        for expected in (1, 1):
            with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
                spark.sql("SELECT cast(id || 'secret' AS int) FROM range(1)").collect()
            assert len(records.texts) == expected
            silence_queries()
    finally:
        logger.removeHandler(records)
        logger.setLevel(level)

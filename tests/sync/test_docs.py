"""What the documentation shows runs as it is shown."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.examples import pipeline
from oplog_sync.settings import _parser
from oplog_sync.source.columns import full_schema
from oplog_sync.source.options import _NAMES
from tests.agents import Agent
from tests.sync.helpers import append, live, log, operation

DOCS = (Path(__file__).parents[2] / "docs/sync.md").read_text()


def test_the_snippets_run_in_their_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    append(tmp_path / "oplog.db", [operation("insert", "video", "1"), operation("insert", "user", "1")])
    names = {"spark": spark}
    for snippet in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
        # A path in an option is the reader's: Java does not follow this process to another folder.
        text = snippet.replace('"oplog.db"', repr(str(tmp_path / "oplog.db")))
        exec(text.replace('"checkpoint"', repr(str(tmp_path / "checkpoint"))), names)
    assert {tuple(row) for row in spark.table("counts").collect()} == {("video", 1), ("user", 1)}
    assert len(log(tmp_path / "oplog.db")) == 3


def test_every_flag_option_and_column_is_in_the_documentation() -> None:
    flags = {flag for action in _parser()._actions for flag in action.option_strings if flag.startswith("--")}
    undocumented = {name for name in flags - {"--help", "--version"} if f"`{name}" not in DOCS}
    names = {*_NAMES, *full_schema().fieldNames()}
    assert undocumented | {name for name in names if f"`{name}`" not in DOCS} == set()


@pytest.mark.parametrize("through", ["store", "agent"])
def test_the_streaming_example_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path, through: str) -> None:
    store = tmp_path / "oplog.db"
    with Agent(tmp_path) as agent:
        source = {"store": str(store), "start": "oldest"} if through == "store" else {"agent": agent.url, "start": "0"}
        assert (
            agent.post([operation("insert", "video", str(n), "2020-01-01T00:00:00Z", "a", "b") for n in range(10)])
            == 200
        )
        pipeline.run(spark, source, tmp_path / "out", once=True)
        assert agent.post([operation("delete", "video", str(n)) for n in range(4)]) == 200
        pipeline.run(spark, source, tmp_path / "out", once=True)
        tables = pipeline.Tables(spark, tmp_path / "out")
        objects = tables.read("objects", pipeline.OBJECTS)
        assert {f"{row.type}/{row.id}" for row in objects.collect()} == live(store).keys()
        hourly = tables.read("hourly", pipeline.HOURLY).groupBy("parent").sum("operations").collect()
        assert {tuple(row) for row in hourly} == {("a", 10), ("b", 10), (None, 4)}
        again = tables.batch
        pipeline.update(tables, objects, again)  # a batch that is repeated
        assert tables.batch == again

"""The snippets of docs/reference/spark-topics.md run as shown."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.topics.columns import topic_schema
from tests.integration.spark.topics.world import TOPIC, polled
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.documents import pages

NAMES = ("oplog.db", "checkpoint", "checkpoint-of-copies")
DOCS = pages.SPARK_TOPICS.read_text()


def test_the_snippets_run_in_their_order(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {f'"{name}"': repr(str(tmp_path / name)) for name in NAMES}
    paths['.option("path", "orders")'] = f'.option("path", {str(tmp_path / "orders")!r})'
    with Agent(tmp_path) as agent:
        topic, copies = Topic(agent, TOPIC).create(), Topic(agent, "shop/copies").create()
        topic.publish({"payload": "a", "key": "7"}, {"payload": "b", "key": "7"})
        names = {"spark": spark, "agent": agent.url}
        for snippet in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
            text = snippet
            for shown, own in paths.items():
                text = text.replace(shown, own)
            exec(text, names)
        assert "|  7|    2|" in capsys.readouterr().out
        written = spark.read.parquet(str(tmp_path / "orders"))
        assert [row.payload for row in written.orderBy("id").collect()] == ["a", "b"]
        (published,) = polled(topic)[2:]
        del published["id"]
        assert published == {
            "payload": '{"sum": "12.30"}',
            "key": "7",
            "headers": [["source", "spark"]],
        }
        assert [each["payload"] for each in polled(copies)] == ["a", "b", published["payload"]]


def test_every_column_is_in_the_documentation() -> None:
    assert [
        name for name in topic_schema(is_binary=False).fieldNames() if f"| `{name}` |" not in DOCS
    ] == []

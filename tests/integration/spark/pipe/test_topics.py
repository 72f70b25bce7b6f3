"""Topics as sources of a pipe on Spark."""

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from oplog_pipe.message import version_of
from oplogd.clock import now_ms
from tests.integration.spark.pipe.pipes import SparkFolder, operation, postgres_sink, table
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.agents.transactions import Txn, records
from tests.kits.pipe.processes import PipeFolder
from tests.kits.servers.postgres import PostgresServer

KEYED = {"id": "{namespace},{id}"}


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


def keyed(key: str, payload: str | None, **others: Any) -> dict[str, Any]:
    return {"key": key, "payload": payload, **others}


def publish(topic: Topic, round: int) -> None:
    """Publish messages of all kinds. The last one of a key counts."""
    topic.publish(
        keyed("a", f"first {round}"),
        keyed("b", f"of {round}", headers=[["n", "1"], ["n", "2"]]),
        keyed("bytes", "/w==", encoding="base64"),
        keyed("gone", "for a while"),
        {"payload": f"without a key {round}"},
        {"payload": None},
        keyed("a", f"second {round}"),
        keyed("gone", None if round else "is here"),
    )
    for is_kept in (True, False):
        txn = Txn.begin(topic.agent)
        txn.write(*records(topic, *(f"{is_kept} {round}.{lsn}" for lsn in range(3))))
        txn.commit(3) if is_kept else txn.abort()


def last_id(topic: Topic) -> str:
    found: str = topic.try_poll(isolation="read_committed").json[-1]["id"]
    return found


def payloads(url: str, name: str = "objects") -> dict[str, str]:
    return dict(table(url, name, "id, data->>'payload'"))


def test_run_and_spark_give_the_same_tables_from_topics_and_the_oplog(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "agent").mkdir()
    with Agent(tmp_path / "agent") as agent:
        orders, others = (Topic(agent, name).create() for name in ("shop/orders", "shop/others"))
        sources = [
            {"name": "orders", "agents": [agent.url], "log": orders.name},
            {"name": "others", "agents": [agent.url], "log": others.name},
            {"name": "objects", "agents": [agent.url]},
        ]
        # One of them by the store itself.
        stored = [{**sources[0], "store": str(tmp_path / "agent/oplog.db")}, *sources[1:]]
        folders = []
        for name in ("run", "spark"):
            folder, database = tmp_path / name, postgres.new_database()
            folder.mkdir()
            sinks = [
                postgres_sink(database, **KEYED),
                postgres_sink(database, "orders", namespace="^shop/orders$"),
            ]
            folders.append((folder, sinks, database))
        (folder, sinks, run_url), (other, spark_sinks, spark_url) = folders
        run = PipeFolder(folder, [], sinks, name="p", sources=sources)
        on_spark = SparkFolder(spark, other, [], spark_sinks, sources=stored)
        for round in range(2):
            publish(orders, round)
            publish(others, round)
            changes = [operation("insert", round), operation("delete", round - 1)]
            assert agent.post(changes) == 200
            newest = [last_id(orders), last_id(others), agent.status()["store"]["newest_id"]]

            def has_read_all(status: Any, newest: list[str] = newest) -> bool:
                positions = (each["position"] for each in status["sources"])
                return all(map(operator.ge, positions, newest)) and all(
                    each["flushed"] == status["log"]["end"] - 1 for each in status["sinks"]
                )

            with run.run() as process:
                run.wait_status(has_read_all)
                assert process.stop() == 0
            assert on_spark.run() == 0, on_spark.error
            of_topic = 9 + 4 * round
            for name, count in {"objects": 2 * of_topic + 1, "orders": of_topic}.items():
                rows = table(spark_url, name)
                assert rows == table(run_url, name)
                assert len(rows) == count
                # A sink does not read a topic that it cannot match.
                offsets = other / "checkpoint" / name / "offsets/0"
                assert len(offsets.read_text().splitlines()) == {"objects": 5, "orders": 4}[name]


def test_messages_that_a_pipe_on_one_machine_has_not_read_come_over_its_rows(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, "shop/orders").create()
        pipe = SparkFolder(
            spark, tmp_path, [], [postgres_sink(url)],
            sources=[{"agents": [agent.url], "log": topic.name}],
        )  # fmt: skip
        topic.publish(keyed("a", "1"), keyed("b", "1"))
        assert pipe.run() == 0
        topic.publish(keyed("a", "2"))
        with psycopg.connect(url) as connection:
            # As if a folder had been begun now.
            connection.execute("UPDATE objects SET version = %s", [version_of(now_ms(), 2)])
        assert pipe.run() == 2
        assert "another folder or checkpoint has written the row" in pipe.error
        pipe.checkpoint = tmp_path / "another"
        assert pipe.run() == 0, pipe.error
        assert payloads(url) == {"shop/orders/a": "2", "shop/orders/b": "1"}
        topic.publish(keyed("b", None))
        assert pipe.run() == 0
        assert payloads(url) == {"shop/orders/a": "2"}


MERGING = """
def merge(message):
    message.namespace = "a"
    parents = message.data.get("parents", [None])
    message.data = {"payload": message.data.get("payload", parents[0])}
    return message
"""


def test_the_last_of_several_sources_counts_if_a_transform_brings_them_to_one_row(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    (tmp_path / "merging_sources.py").write_text(MERGING)
    with Agent(tmp_path) as agent:
        topic = Topic(agent, "shop/orders").create()
        pipe = SparkFolder(
            spark, tmp_path, [], [postgres_sink(url, transforms=["merging_sources:merge"])],
            sources=[
                {"name": "o", "agents": [agent.url]},
                {"name": "t", "agents": [agent.url], "log": topic.name},
            ],
        )  # fmt: skip

        def post(event: str, *parents: str) -> Callable[[], object]:
            return lambda: agent.post([operation(event, 1, [*parents])])

        def publish(payload: str | None) -> Callable[[], object]:
            return lambda: topic.publish(keyed("1", payload))

        steps: list[tuple[Callable[[], object], dict[str, str]]] = [
            (post("insert", "A1"), {"a/1": "A1"}),
            (publish("T2"), {"a/1": "T2"}),
            (post("update", "A3"), {"a/1": "A3"}),
            (publish(None), {}),
            (post("update", "A4"), {"a/1": "A4"}),
        ]
        for change, rows in steps:
            change()
            assert pipe.run() == 0, pipe.error
            assert payloads(url) == rows


def test_messages_that_are_gone_end_the_query_unless_the_source_says_otherwise(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, "shop/orders").create()

        def pipe(**others: Any) -> SparkFolder:
            source = {"agents": [agent.url], "log": topic.name, **others}
            sinks = [postgres_sink(url), table_sink]
            return SparkFolder(spark, tmp_path, [], sinks, sources=[source], name="gone")

        table_sink = {"name": "t", "format": "json", "path": str(tmp_path / "t")}
        topic.publish(keyed("a", "1"))
        assert pipe().run() == 0
        topic.delete()
        topic.create()
        topic.publish(keyed("b", "2"))
        stopped = pipe()
        assert stopped.run() == 5
        for sink in stopped.last.status().sinks:
            assert sink.phase == "stopped"
            assert sink.error is not None
            assert "has left the topic shop/orders; set on_gap: continue" in sink.error
        assert pipe(on_gap="continue").run() == 0
        assert payloads(url) == {"shop/orders/a": "1", "shop/orders/b": "2"}
        lines = [each.read_text() for each in (tmp_path / "t").glob("*/*.json")]
        rows = sorted((json.loads(line) for line in lines), key=lambda row: row["version"])
        assert [(row["type"], row["id"], row["op"]) for row in rows] == [
            ("shop/orders", "a", "insert"),
            ("shop/orders", "b", "insert"),
        ]


def test_a_mirror_has_the_newest_message_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, "shop/orders").create()
        sinks = [
            {"name": "m", "format": "parquet", "path": str(tmp_path / "m"), "merge": ["type", "id"]}
        ]
        sources = [{"agents": [agent.url], "log": topic.name}]
        pipe = SparkFolder(spark, tmp_path, [], sinks, sources=sources)
        for round in range(2):
            topic.publish(*(keyed(str(n), f"{round}.{n}") for n in range(40)))
            topic.publish(*(keyed(str(n), None) for n in range(0, 40, 2)))
            assert pipe.run() == 0, pipe.error
        topic.publish(keyed("0", "again"))
        assert pipe.run() == 0, pipe.error
        rows = spark.read.parquet(str(tmp_path / "m")).collect()
        found = {row["id"]: json.loads(row["data"])["payload"] for row in rows}
        assert found == {str(n): f"1.{n}" for n in range(1, 40, 2)} | {"0": "again"}

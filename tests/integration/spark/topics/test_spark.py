"""Topics as Spark reads and writes them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.source.http import Agents
from oplog_sync.topics.write import write_operations
from oplogd.model.transaction import Isolation
from oplogd.store import decode_stored
from tests.integration.spark.source.streams import StreamSink, stream_of
from tests.integration.spark.topics.world import TOPIC, commit, once, polled, publish_under, report
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Topic
from tests.kits.agents.transactions import Txn, records
from tests.kits.servers.stores import StorePlace
from tests.kits.spark.helpers import log, operation

_ROUNDS = 24
HEADERS = "array<struct<key:string,value:string>>"


def topic_of(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("oplog").options(topic=TOPIC, **options).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.orderBy("id").toArrow().to_pylist()
    return found


class Producer:
    """Publishes in rounds beside a query: plain messages, transactions and pointers.

    Every third transaction and every fifth pointer is aborted. Some stay open over the next rounds.
    """

    def __init__(self, agent: Agent, topic: Topic) -> None:
        self._agent = agent
        self._topic = topic
        self._open: list[tuple[int, Txn]] = []

    def round(self, number: int) -> None:
        topic, agent = self._topic, self._agent
        topic.publish(f"plain {number}")
        txn = Txn.begin(agent)
        txn.write(*records(topic, *(f"txn {number}.{lsn}" for lsn in range(4))))
        self._open.append((number, txn))
        publish_under(topic, 1_000 + number, f"pointer {number}")
        if number % 4 == 3:
            self.decide()

    def decide(self) -> None:
        """End everything that is open, the newest transaction first."""
        while self._open:
            number, txn = self._open.pop()
            txn.abort() if number % 3 == 0 else txn.commit(4)
            report(self._topic, 1_000 + number, "abort" if number % 5 == 0 else "commit")


@contextmanager
def producing(producer: Producer, rounds: range) -> Iterator[None]:
    failed: list[BaseException] = []

    def produce() -> None:
        try:
            for number in rounds:
                producer.round(number)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    yield
    thread.join(DEADLINE)
    assert not failed, failed


@pytest.mark.parametrize(
    ("place", "through"),
    [("sqlite", "store"), ("mongo-plain", "store"), ("sqlite", "agent")],
    indirect=["place"],
)
def test_each_committed_message_is_streamed_once_while_transactions_run_and_the_query_restarts(
    spark: SparkSession, tmp_path: Path, place: StorePlace, through: str
) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        producer = Producer(agent, topic)
        where = {"store": str(place.store)} if through == "store" else {"agent": agent.url}
        options = where | {"topic": TOPIC, "start": "oldest", "maxOperationsPerTrigger": "20"}
        if through == "store":
            options["partitionRows"] = "10"
        stream, sink = stream_of(spark, options), StreamSink("id", "payload")
        checkpoint = tmp_path / "checkpoint"
        with producing(producer, range(_ROUNDS // 2)):
            sink.complete(stream, checkpoint)
        with producing(producer, range(_ROUNDS // 2, _ROUNDS)):
            sink.begin(stream, checkpoint).stop()
        producer.decide()
        sink.complete(stream, checkpoint)
        expected = polled(topic)
    found = sink.table("id").to_pylist()
    assert [row["id"] for row in found] == [each["id"] for each in expected]
    assert [row["payload"] for row in found] == [each["payload"] for each in expected]
    count = {
        "plain": _ROUNDS,
        "txn": 4 * sum(number % 3 != 0 for number in range(_ROUNDS)),
        "pointer": sum(number % 5 != 0 for number in range(_ROUNDS)),
    }
    kinds = [row["payload"].split()[0] for row in found]
    assert {kind: kinds.count(kind) for kind in count} == count


@pytest.mark.parametrize("through", ["store", "agent"])
def test_a_batch_has_the_messages_of_its_isolation(
    spark: SparkSession, tmp_path: Path, through: str
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        where = {"store": str(tmp_path / "oplog.db")}
        if through == "agent":
            where = {"agent": agent.url}
        assert rows(topic_of(spark, **where)) == []
        topic.publish({"payload": "a", "key": "k", "headers": [["h", "1"], ["h", "2"]]})
        txn = commit(agent, topic, "b")
        Txn.begin(agent).write(*records(topic, "open"))
        found = rows(topic_of(spark, **where))
        assert [row["payload"] for row in found] == ["a", "b"]
        assert [row["lsn"] for row in found] == [None, 0]
        assert found[0]["headers"] == [{"key": "h", "value": "1"}, {"key": "h", "value": "2"}]
        assert {row["topic"] for row in found} == {TOPIC}
        if through == "store":
            assert [row["txn"] for row in found] == [None, txn]
        uncommitted = topic_of(spark, isolation="read_uncommitted", binary="true", **where)
        assert [row["payload"] for row in rows(uncommitted)] == [b"a", b"b", b"open"]
        assert topic_of(spark, start=found[0]["id"], **where).count() == 1
        assert topic_of(spark, end=found[0]["id"], **where).count() == 1


def test_rows_are_published_in_requests_that_the_agent_takes_and_read_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path, "--max-queued-events", "300") as agent:
        topic = Topic(agent, TOPIC).create()
        through = {"agent": agent.url, "topic": TOPIC}
        frame = spark.createDataFrame(
            [(f"p{n}", f"k{n % 3}" if n % 2 else None, [("n", str(n))]) for n in range(1_000)],
            f"payload string, key string, headers {HEADERS}",
        )
        frame.coalesce(1).write.format("oplog").options(**through).mode("append").save()
        back = topic_of(spark, agent=agent.url).drop("id", "time", "topic", "txn", "lsn")
        assert back.select("payload", "key", "headers").collect() == frame.collect()
        binary = spark.createDataFrame([(bytearray(b"\xff\x00"),)], "payload binary")
        binary.write.format("oplog").options(**through).mode("append").save()
        (last,) = polled(topic, Isolation.READ_COMMITTED)[-1:]
        assert (last["payload"], last["encoding"]) == ("/wA=", "base64")
        found = topic_of(spark, agent=agent.url, binary="true").orderBy("id").tail(1)
        assert bytes(found[0].payload) == b"\xff\x00"
        with pytest.raises(PySparkException, match=r"column payload: .* set the option binary"):
            topic_of(spark, agent=agent.url).collect()


def test_a_wrong_write_is_refused_by_its_column_or_option(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        frame = spark.createDataFrame([("x" * 2_000, "p")], "key string, payload string")
        for options, columns, sentence in (
            ({"agent": agent.url}, ["key", "payload"], "column key, row 1 of its task: is longer"),
            ({"agent": agent.url}, ["key"], "column payload is missing"),
            ({"store": str(tmp_path / "oplog.db")}, ["payload"], "published through agents"),
            ({"agent": agent.url, "topic": "shop/none"}, ["payload"], "no topic shop/none"),
            ({"agent": agent.url, "topic": "system/oplog"}, ["payload"], "leave topic out"),
        ):
            write = frame.select(*columns).write.format("oplog").mode("append")
            with pytest.raises(PySparkException, match=sentence):
                write.options(**({"topic": TOPIC} | options)).save()
        assert polled(topic) == []


def test_operations_are_sent_through_agents_in_requests_that_they_take(tmp_path: Path) -> None:
    with Agent(tmp_path, "--max-queued-events", "30") as agent:
        agents = Agents([agent.url])
        posted = [operation("insert", "video", str(number)) for number in range(100)]
        assert write_operations(agents, posted, once) == 100
        with pytest.raises(SyncError, match="column event, row 2 of its task: must be insert"):
            write_operations(agents, [posted[0], posted[1] | {"event": "upsert"}], once)
        agents.close()
        assert agent.stop() == 0
    found = [decode_stored(entry.data).id for entry in log(tmp_path / "oplog.db")]
    assert found == [str(number) for number in range(100)]

"""The streaming read of operations, from a store and from an agent."""

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oplog_sync.backend import make_backend
from oplog_sync.errors import AgentError, GapError
from oplog_sync.source import stream
from oplog_sync.source.agent import AgentClient
from oplog_sync.source.columns import full_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.stream import HOLD_SECONDS, LogPart, StatePart, StreamReader
from oplogd.event_id import Mark, format_id
from tests.agents import DEADLINE, Agent
from tests.mongo.relay import Relay
from tests.sync.helpers import StoreLocation, StorePlace, append, log, operation

_TRIMMED = pytest.mark.parametrize(
    "place", ["sqlite", "plain"], indirect=True
)  # FerretDB never trims its log
RESTARTS = 5


def _stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("oplog").options(**options).load()


class Written(NamedTuple):
    event_id: str
    n: int
    event: str
    key: str


class Table:
    """What a query has written so far, as an idempotent sink would: a batch that is repeated replaces itself."""

    def __init__(self) -> None:
        self._batches: dict[int, pa.Table] = {}
        self._changed = threading.Event()

    def start(self, stream: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        changed = self._changed = threading.Event()

        def write(rows: DataFrame, batch: int) -> None:
            written = rows.select(*Written._fields).toArrow()
            # Spark stops a query without waiting for what runs here: it may come back, cut short, beside the next query.
            if self._changed is changed:
                self._batches[batch] = written
                changed.set()

        writer = stream.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(checkpoint)
        )
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def wait(self, query: StreamingQuery) -> None:
        """Until the query has written a batch; whether Spark has noted it as done by then is left open."""
        deadline = time.monotonic() + 4 * DEADLINE
        while not self._changed.wait(1):
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, query.status

    def rows(self) -> list[Written]:
        columns = pa.concat_tables(self._batches.values()).sort_by("n").columns
        return [
            Written(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)
        ]


@pytest.mark.parametrize(("through", "count"), [("store", 100_000), ("agent", 20_000)])
def test_operations_arriving_while_the_query_restarts_are_counted_once_each(
    spark: SparkSession, tmp_path: Path, through: str, count: int
) -> None:
    per_post = count // 100
    with Agent(tmp_path) as agent:
        assert agent.post(operation("insert", "first", "1")) == 204
        store = {
            "store": str(tmp_path / "oplog.db"),
            "start": "oldest",
            "maxOperationsPerTrigger": "30000",
        }
        stream = _stream(spark, store if through == "store" else {"agent": agent.url})
        table, checkpoint = Table(), tmp_path / "checkpoint"
        allowed, posted = threading.Semaphore(0), threading.Semaphore(0)
        failed: list[BaseException] = []

        def produce() -> None:
            try:
                for start in range(0, count, per_post):
                    assert allowed.acquire(timeout=DEADLINE)
                    ids = range(start, start + per_post)
                    assert agent.post([operation("insert", "video", str(n)) for n in ids]) == 200
                    posted.release()
            except BaseException as error:
                failed.append(error)
                posted.release(count)

        producer = threading.Thread(target=produce)
        table.start(
            stream, checkpoint, availableNow=True
        ).awaitTermination()  # the position is in the checkpoint now
        producer.start()
        posts = count // per_post
        a_round = posts // (RESTARTS + 1)
        for _ in range(RESTARTS):
            allowed.release(a_round)
            assert posted.acquire(
                timeout=DEADLINE
            )  # so the query finds something; the others arrive meanwhile
            query = table.start(stream, checkpoint)
            table.wait(query)
            query.stop()
            assert all(posted.acquire(timeout=DEADLINE) for _ in range(a_round - 1))
        allowed.release(posts - RESTARTS * a_round)
        producer.join(DEADLINE)
        assert not failed, failed
        table.start(stream, checkpoint, availableNow=True).awaitTermination()
        entries = log(tmp_path / "oplog.db")
    found = table.rows()
    expected = entries if through == "store" else entries[1:]
    assert len(found) == len(expected) == (count + 1 if through == "store" else count)
    assert [(r.event_id, r.n) for r in found] == [
        (format_id(Mark(e.offset, e.ms)), e.offset) for e in expected
    ]


def test_a_batch_is_the_same_range_each_time_it_is_read(place: StorePlace) -> None:
    store = place.store
    append(store, [operation("insert", "video", str(n)) for n in range(100)])
    reader = StreamReader(
        read_options({"store": str(store), "start": "oldest", "partitionRows": "30"}), full_schema()
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    append(store, [operation("insert", "video", "later")])
    parts = reader.partitions(start, end)
    assert parts == [LogPart((0, 30)), LogPart((30, 60)), LogPart((60, 90)), LogPart((90, 100))]
    for _ in range(2):
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 100
    assert reader.partitions(end, end) == []
    assert reader.latestOffset() == reader.latestOffset(end)  # as Spark 4.1 calls it


def _reader_behind_a_trimmed_log(
    tmp_path: Path, place: StorePlace, on_gap: str
) -> tuple[StreamReader, dict[str, str]]:
    store = place.store
    with place.agent(tmp_path, "--capped-collection-size", "100KB") as agent:
        assert agent.post([operation("insert", "video", str(n)) for n in range(10)]) == 200
        reader = StreamReader(read_options({"store": str(store), "onGap": on_gap}), full_schema())
        start = reader.initialOffset()
        assert agent.post([operation("delete", "video", str(n)) for n in range(5)]) == 200
        for _ in range(3):
            assert (
                agent.post([operation("update", "video", str(n % 50 + 5)) for n in range(1000)])
                == 200
            )
        _wait_for_trim(store, after=10)
    return reader, start


def _wait_for_trim(store: StoreLocation, after: int) -> None:
    deadline = time.monotonic() + DEADLINE
    backend = make_backend(str(store))
    while (oldest := backend.locate(0).oldest) is None or oldest.offset <= after + 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@_TRIMMED
def test_a_position_that_has_left_the_log_raises(tmp_path: Path, place: StorePlace) -> None:
    reader, start = _reader_behind_a_trimmed_log(tmp_path, place, "fail")
    end = reader.latestOffset(start)
    with pytest.raises(
        GapError, match=f"position {start['id']} has left the log, .* onGap to states"
    ):
        reader.partitions(start, end)


@_TRIMMED
def test_a_position_that_has_left_the_log_can_fall_back_to_the_states(
    tmp_path: Path, place: StorePlace
) -> None:
    reader, start = _reader_behind_a_trimmed_log(tmp_path, place, "states")
    end = reader.latestOffset(start)
    parts = reader.partitions(start, end)
    assert all(isinstance(part, StatePart) for part in parts)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert Counter(row["event"] for row in rows) == {"delete": 5, "insert": 50}
    append(place.store, [operation("insert", "video", "new")])
    more = reader.latestOffset(end)
    (part,) = reader.partitions(end, more)
    assert [row["key"] for batch in reader.read(part) for row in batch.to_pylist()] == ["video/new"]


def test_a_position_of_another_log_raises_even_when_told_to_fall_back(place: StorePlace) -> None:
    store = place.store
    append(store, [operation("insert", "video", "1")])
    reader = StreamReader(read_options({"store": str(store), "onGap": "states"}), full_schema())
    head = reader.latestOffset()
    with pytest.raises(GapError, match="belongs to another log"):
        reader.partitions({"id": format_id(Mark(7, 0))}, head)
    with pytest.raises(GapError, match="belongs to another log"):
        reader.partitions({"id": format_id(Mark(1, 0))}, head)


def test_an_agents_stream_can_begin_with_every_object(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "secret") as agent:
        posted = [operation("insert", "video", str(n)) for n in range(50)]
        assert agent.post(posted) == 200
        assert agent.post([operation("delete", "video", str(n)) for n in range(10)]) == 200
        table = Table()
        stream = _stream(spark, {"agent": agent.url, "start": "0", "password": "secret"})
        table.start(stream, tmp_path / "checkpoint", availableNow=True).awaitTermination()
        assert sorted(r.key for r in table.rows()) == sorted(f"video/{n}" for n in range(10, 50))
        assert agent.post(operation("delete", "video", "20")) == 204
        table.start(stream, tmp_path / "checkpoint", availableNow=True).awaitTermination()
        assert [(r.event, r.key) for r in table.rows() if r.event == "delete"] == [
            ("delete", "video/20")
        ]
        wrong = _stream(spark, {"agent": agent.url, "password": "wrong"})
        with pytest.raises(PySparkException, match="it answered 401"):
            table.start(wrong, tmp_path / "other", availableNow=True).awaitTermination()


def test_an_agents_address_may_hold_credentials_and_no_message_shows_them(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "s:ecr@t") as agent:
        address = agent.url.removeprefix("http://")
        assert AgentClient(f"http://any:s%3Aecr%40t@{address}", None).position()
        assert AgentClient(f"http://any:wrong@{address}", "s:ecr@t").position()
        for url, sentence in (
            (f"http://any:hidden@{address}", f"agent {agent.url}: it answered 401 Unauthorized"),
            (f"http://any:hid/den@{address}", "is not the http:// or https:// address of an agent"),
            (f"http://any:hid?den@{address}", "is not the http:// or https:// address of an agent"),
            (f"ftp://any:hidden@{address}", "is not the http:// or https:// address of an agent"),
            (
                "http://any:hidden@localhost:99999",
                "'http://localhost:99999' is not the http:// or https:// address",
            ),
            ("http://any:hidden@localhost:1", "agent http://localhost:1: it does not answer"),
        ):
            with pytest.raises(AgentError) as refused:
                AgentClient(url, None).position()
            assert sentence in str(refused.value)
            assert "hid" not in str(refused.value)
            assert "hidden" not in repr(read_options({"agent": url}))


def test_the_agents_stream_tells_a_gap(tmp_path: Path) -> None:
    with Agent(tmp_path, "--capped-collection-size", "100KB") as agent:
        assert agent.post([operation("insert", "video", str(n)) for n in range(10)]) == 200
        readers = {
            on_gap: StreamReader(read_options({"agent": agent.url, "onGap": on_gap}), full_schema())
            for on_gap in ("fail", "states")
        }
        start = readers["fail"].initialOffset()
        for _ in range(3):
            assert (
                agent.post([operation("update", "video", str(n % 50 + 5)) for n in range(1000)])
                == 200
            )
        end = readers["fail"].latestOffset(start)
        (part,) = readers["fail"].partitions(start, end)
        with pytest.raises(GapError, match="has left the log of the agent"):
            list(readers["fail"].read(part))
        rows = [
            json.loads(row)
            for batch in readers["states"].read(part)
            for row in batch["data"].to_pylist()
        ]
        assert {row["id"] for row in rows} >= {str(n) for n in range(5, 55)}


class Counted(Relay):
    """Counts the connections to a server and passes on all bytes."""

    def __init__(self, url: str) -> None:
        self.connections = 0
        super().__init__(url)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def wait_for(self, connections: int) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: self.connections >= connections, DEADLINE)

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self._lock.notify_all()
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        server.shutdown(socket.SHUT_RDWR)
        back.join()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                target.sendall(received)


def test_an_idle_stream_asks_its_agent_once_a_second(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Counted(agent.url) as relay:
        table = Table()
        query = table.start(
            _stream(spark, {"agent": f"http://127.0.0.1:{relay.port}"}), tmp_path / "checkpoint"
        )
        try:
            relay.wait_for(2)  # its start, and the first look
            assert agent.post(operation("insert", "video", "1")) == 204
            table.wait(query)
            relay.wait_for(relay.connections + 2)  # now it is idle
            connections, started = relay.connections, time.monotonic()
            relay.wait_for(connections + 2)
            assert time.monotonic() - started >= HOLD_SECONDS
        finally:
            query.stop()
        assert [(r.event, r.key) for r in table.rows()] == [("insert", "video/1")]


def test_a_stream_begins_where_it_stood_when_it_was_first_asked(place: StorePlace) -> None:
    append(place.store, [operation("insert", "video", "1")])
    reader = StreamReader(read_options({"store": str(place.store)}), full_schema())
    start = reader.initialOffset()
    append(place.store, [operation("insert", "video", "2")])
    end = reader.latestOffset(start)
    assert reader.initialOffset() == start
    assert end != start


def test_an_unchanged_position_is_held(place: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    append(place.store, [operation("insert", "video", "1")])
    now = 100.0
    monkeypatch.setattr(stream, "monotonic", lambda: now)
    reader = StreamReader(read_options({"store": str(place.store)}), full_schema())
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    append(place.store, [operation("insert", "video", "2")])
    assert reader.latestOffset(start) == start  # held
    now += HOLD_SECONDS
    end = reader.latestOffset(start)
    assert end != start
    append(place.store, [operation("insert", "video", "3")])
    assert reader.latestOffset(end) not in (start, end)  # a position that moved is not held

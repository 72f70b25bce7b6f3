"""Streaming reads from an agent."""

import contextlib
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.errors import AgentError, GapError
from oplog_sync.source.agent import AgentClient
from oplog_sync.source.columns import full_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.stream import HOLD_SECONDS, StreamReader
from tests.kits.agents.agent import DEADLINE, Agent
from tests.mongo.relay import Relay
from tests.sync.helpers import operation
from tests.sync.streams import StreamSink, stream_of


def test_an_agents_stream_can_begin_with_every_object(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "secret") as agent:
        posted = [operation("insert", "video", str(n)) for n in range(50)]
        assert agent.post(posted) == 200
        assert agent.post([operation("delete", "video", str(n)) for n in range(10)]) == 200
        table = StreamSink()
        stream = stream_of(spark, {"agent": agent.url, "start": "0", "password": "secret"})
        table.start(stream, tmp_path / "checkpoint", availableNow=True).awaitTermination()
        assert sorted(r.key for r in table.rows()) == sorted(f"video/{n}" for n in range(10, 50))
        assert agent.post(operation("delete", "video", "20")) == 204
        table.start(stream, tmp_path / "checkpoint", availableNow=True).awaitTermination()
        assert [(r.event, r.key) for r in table.rows() if r.event == "delete"] == [
            ("delete", "video/20")
        ]
        wrong = stream_of(spark, {"agent": agent.url, "password": "wrong"})
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


def test_a_stream_from_an_agent_reports_a_gap(tmp_path: Path) -> None:
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


class CountingRelay(Relay):
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


def test_an_idle_stream_asks_its_agent_once_per_second(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, CountingRelay(agent.url) as relay:
        table = StreamSink()
        query = table.start(
            stream_of(spark, {"agent": f"http://127.0.0.1:{relay.port}"}), tmp_path / "checkpoint"
        )
        try:
            relay.wait_for(2)  # the start, and the first position
            assert agent.post(operation("insert", "video", "1")) == 204
            table.wait(query)
            relay.wait_for(relay.connections + 2)  # now it is idle
            connections, started = relay.connections, time.monotonic()
            relay.wait_for(connections + 2)
            assert time.monotonic() - started >= HOLD_SECONDS
        finally:
            query.stop()
        assert [(r.event, r.key) for r in table.rows()] == [("insert", "video/1")]

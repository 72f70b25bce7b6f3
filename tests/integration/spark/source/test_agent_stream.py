"""Streaming reads from an agent."""

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.source.agent import AgentStream
from oplog_sync.source.columns import full_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.stream import HOLD_SECONDS, StreamReader
from tests.integration.spark.source.streams import StreamSink, stream_of
from tests.kits.agents.agent import Agent
from tests.kits.proxies.proxy import Proxy
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.spark.helpers import operation


def test_an_agents_stream_can_begin_with_every_object(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "secret") as agent:
        posted = [operation("insert", "video", str(n)) for n in range(50)]
        assert agent.post(posted) == 200
        assert agent.post([operation("delete", "video", str(n)) for n in range(10)]) == 200
        table = StreamSink()
        stream = stream_of(spark, {"agent": agent.url, "start": "0", "password": "secret"})
        table.complete(stream, tmp_path / "checkpoint")
        assert sorted(r.key for r in table.rows()) == sorted(f"video/{n}" for n in range(10, 50))
        assert agent.post(operation("delete", "video", "20")) == 204
        table.complete(stream, tmp_path / "checkpoint")
        assert [(r.event, r.key) for r in table.rows() if r.event == "delete"] == [
            ("delete", "video/20")
        ]
        wrong = stream_of(spark, {"agent": agent.url, "password": "wrong"})
        with pytest.raises(PySparkException, match="it answered 401"):
            table.complete(wrong, tmp_path / "other")


def test_the_agent_learns_who_reads() -> None:
    position = answer("200 OK", "id: 545b55c7f095528dd0f3863c\n\n")
    with ScriptedServer([position]) as server:
        assert AgentStream(server.url, None).position() == "545b55c7f095528dd0f3863c"
        (request,) = server.requests
    assert request.target == "/ops?checkpoint=1&name=oplog-sync"


def test_an_agents_address_may_hold_credentials_and_no_message_shows_them(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "s:ecr@t") as agent:
        address = agent.url.removeprefix("http://")
        assert AgentStream(f"http://any:s%3Aecr%40t@{address}", None).position()
        assert AgentStream(f"http://any:wrong@{address}", "s:ecr@t").position()
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
            with pytest.raises(SyncError) as refused:
                AgentStream(url, None).position()
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
        with pytest.raises(SyncError, match="has left the log of the agent"):
            list(readers["fail"].read(part))
        rows = [
            json.loads(row)
            for batch in readers["states"].read(part)
            for row in batch["data"].to_pylist()
        ]
        assert {row["id"] for row in rows} >= {str(n) for n in range(5, 55)}


def test_an_idle_stream_asks_its_agent_once_per_second(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Proxy(agent.port) as proxy:
        table = StreamSink()
        query = table.start(
            stream_of(spark, {"agent": f"http://127.0.0.1:{proxy.port}"}), tmp_path / "checkpoint"
        )
        try:
            proxy.wait_connections(2)  # the start, and the first position
            assert agent.post(operation("insert", "video", "1")) == 204
            table.wait(query)
            proxy.wait_connections(proxy.connections + 2)  # now it is idle
            connections, started = proxy.connections, time.monotonic()
            proxy.wait_connections(connections + 2)
            assert time.monotonic() - started >= HOLD_SECONDS
        finally:
            query.stop()
        assert [(r.event, r.key) for r in table.rows()] == [("insert", "video/1")]

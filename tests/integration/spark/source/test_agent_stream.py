"""Streaming reads from an agent."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.source import stream
from oplog_sync.source.agent.log import AgentLog
from oplog_sync.source.http import Agents
from oplog_sync.source.stream import HOLD_SECONDS
from tests.integration.spark.source.streams import StreamSink, reader_of, stream_of
from tests.kits.agents.agent import Agent
from tests.kits.proxies.proxy import Proxy
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.spark.helpers import operation

_ask = Agents.ask


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
        assert AgentLog(Agents([server.url]), 1).position() == "545b55c7f095528dd0f3863c"
        (request,) = server.requests
    assert request.target == "/ops?checkpoint=1&name=oplog-sync"


def test_a_stream_from_an_agent_reports_a_gap(tmp_path: Path) -> None:
    with Agent(tmp_path, "--capped-collection-size", "100KB") as agent:
        assert agent.post([operation("insert", "video", str(n)) for n in range(10)]) == 200
        readers = {
            on_gap: reader_of({"agent": agent.url, "onGap": on_gap})
            for on_gap in ("fail", "states")
        }
        start = readers["fail"].latestOffset(readers["fail"].initialOffset())
        for _ in range(3):
            assert (
                agent.post([operation("update", "video", str(n % 50 + 5)) for n in range(1000)])
                == 200
            )
        with pytest.raises(SyncError, match="has left the log of the agent"):
            readers["fail"].latestOffset(start)
        end = readers["states"].latestOffset(start)
        (part,) = readers["states"].partitions(start, end)
        with pytest.raises(SyncError, match="has left the log of the agent"):
            list(readers["fail"].read(part))
        for reader in readers.values():
            reader.stop()
        rows = [
            json.loads(row)
            for batch in readers["states"].read(part)
            for row in batch["data"].to_pylist()
        ]
        assert {row["id"] for row in rows} >= {str(n) for n in range(5, 55)}


@pytest.mark.parametrize("is_empty", [True, False])
def test_an_idle_stream_asks_its_agent_once_per_second_on_one_connection(
    is_empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(stream, "monotonic", lambda: now)
    with Agent(tmp_path) as agent, Proxy(agent.port) as proxy:
        if not is_empty:
            assert agent.post(operation("insert", "video", "0")) == 204
        reader = reader_of({"agent": f"http://127.0.0.1:{proxy.port}"})
        at = reader.latestOffset(reader.initialOffset())
        assert proxy.connections == 1  # the stream that showed the position
        asked: list[Any] = []

        def ask(*given: Any) -> Any:
            asked.append(given)
            return _ask(*given)

        monkeypatch.setattr(Agents, "ask", ask)
        for _ in range(5):
            for _ in range(100):
                assert reader.latestOffset(at) == at
                assert reader.reportLatestOffset() == at
            now += HOLD_SECONDS
        assert len(asked) == 5
        assert proxy.connections == 2
        assert agent.post(operation("insert", "video", "1")) == 204
        end = reader.latestOffset(at)
        assert end["offset"] == (1 if is_empty else 2)
        (part,) = reader.partitions(at, end)
        assert [row["key"] for batch in reader.read(part) for row in batch.to_pylist()] == [
            "video/1"
        ]
        reader.stop()

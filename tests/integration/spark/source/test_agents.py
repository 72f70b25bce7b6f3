"""Reads through several agents that come and go."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oplog_sync.errors import OptionError, SyncError, UnreachableError
from oplog_sync.source.agent.log import AgentLog
from oplog_sync.source.http import Agents, Tls
from oplogd.model.event_id import Mark, format_id
from tests.integration.spark.source.streams import reader_of
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.proxies.proxy import Proxy
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.spark.helpers import ARRIVAL, log, operation

_POLL = "/v1/namespaces/system/topics/oplog/poll"


def rows_of(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
    return [
        (row["offset"], row["key"])
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_the_agent_that_answers_is_asked_until_it_fails() -> None:
    busy = answer("503 Service Unavailable", "{}")
    with (
        ScriptedServer([busy, answer("200 OK", "[]"), answer("200 OK", "[]")]) as first,
        ScriptedServer([answer("200 OK", "[]"), busy]) as second,
    ):
        agents = Agents([first.url, second.url])
        for _ in range(3):
            assert agents.ask("POST", _POLL, {"limit": 1}).body == b"[]"
        agents.close()
        assert len(first.requests) == 3
        assert len(second.requests) == 2


def test_a_kept_connection_that_the_agent_has_closed_is_opened_again() -> None:
    with ScriptedServer([answer("200 OK", "[]")] * 2) as server:
        agents = Agents([server.url])
        for _ in range(2):
            assert agents.ask("GET", "/x").status == 200
        agents.close()


def test_each_agents_fault_is_told_and_the_password_is_not() -> None:
    refusal = answer("503 Service Unavailable", '{"detail": "the store is away"}', "Retry-After: 1")
    with ScriptedServer([refusal]) as server:
        agents = Agents([server.url, "http://localhost:1"], "hidden")
        with pytest.raises(UnreachableError) as unreachable:
            agents.ask("GET", "/x")
        said = str(unreachable.value)
        assert said.startswith(
            f"agent {server.url}: it answered 503 Service Unavailable: the store is away; "
            "agent http://localhost:1: it does not answer: "
        )
        agents.close()
        (request,) = server.requests
        assert request.headers["authorization"] == "Basic OmhpZGRlbg=="
    assert "hidden" not in said + repr(agents.__dict__)


def test_a_wrong_password_is_an_error_at_once(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "s:ecr@t") as agent:
        right, wrong = Agents([agent.url], "s:ecr@t"), Agents([agent.url], "hidden")
        assert AgentLog(right, 1).position()
        with pytest.raises(SyncError, match=r"answered 401 Unauthorized.*give its password in"):
            AgentLog(wrong, 1).position()


def test_certificates_are_for_https(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="caFile, certFile: they are for https"):
        Agents(["http://a"], tls=Tls(authorities="x"))
    with pytest.raises(OptionError, match="caFile: the file does not hold certificates in PEM"):
        Agents(["https://a"], tls=Tls(authorities="x"))


def test_a_task_continues_behind_its_last_row_when_connections_break(tmp_path: Path) -> None:
    count = 3_000
    with Agent(tmp_path) as agent, Proxy(agent.port) as first, Proxy(agent.port) as second:
        urls = [f"http://127.0.0.1:{proxy.port}" for proxy in (first, second)]
        reader = reader_of({"agent": ",".join(urls), "start": "oldest"})
        # More than fits into the buffers of the connections.
        parent = "x" * 4_000
        posted = [operation("insert", "video", str(n), ARRIVAL, parent) for n in range(count)]
        assert agent.post(posted) == 200
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        reader.stop()
        (part,) = reader.partitions(start, end)
        before = first.connections
        found: list[str] = []
        for number, keys in enumerate(_small_chunks(reader, part)):
            found += keys
            if number % 5 == 0:
                first.end_connections()
                second.end_connections()
        assert found == [f"video/{n}" for n in range(count)]
        assert first.connections - before >= 2
        assert second.connections >= 1


def _small_chunks(reader: Any, part: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oplog_sync.source.agent.log.CHUNK_ROWS", 100)
        patch.setattr("oplog_sync.source.agent.log._READ_BYTES", 4096)
        for batch in reader.read(part):
            yield batch["key"].to_pylist()


def test_a_query_lives_while_no_agent_answers_and_loses_nothing(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Proxy(agent.port) as first, Proxy(agent.port) as second:
        assert agent.post([operation("insert", "video", str(n)) for n in range(3)]) == 200
        urls = [f"http://127.0.0.1:{proxy.port}" for proxy in (first, second)]
        reader = reader_of({"agent": ",".join(urls), "start": "oldest"})
        start = reader.initialOffset()
        first.disconnect()
        at = reader.latestOffset(start)
        assert at["offset"] == 3
        second.disconnect()
        assert agent.post([operation("insert", "video", "3")]) == 200
        assert reader.latestOffset(at) is at
        assert reader.reportLatestOffset() in (at, None)
        read: list[tuple[int, str]] = []
        reading = threading.Thread(target=lambda: read.extend(rows_of(reader, start, at)))
        reading.start()  # it waits for an agent
        first.mend()
        reading.join(DEADLINE)
        assert read == [(n + 1, f"video/{n}") for n in range(3)]
        reader._held_until = 0
        end = reader.latestOffset(at)
        assert rows_of(reader, at, end) == [(4, "video/3")]
        reader.stop()


@pytest.mark.parametrize("call", ["initialOffset", "prepareForTriggerAvailableNow"])
def test_a_query_without_its_first_position_fails_after_a_while(call: str) -> None:
    reader = reader_of({"agent": "http://localhost:1", "retryFor": "1ms"})
    with pytest.raises(UnreachableError, match=r"does not answer.*asked again for 1 ms"):
        getattr(reader, call)()


def test_a_query_for_the_present_operations_does_not_end_without_them(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Proxy(agent.port) as proxy:
        assert agent.post([operation("insert", "video", "0")]) == 200
        url = f"http://127.0.0.1:{proxy.port}"
        reader = reader_of({"agent": url, "start": "oldest", "retryFor": "1ms"})
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        proxy.disconnect()
        with pytest.raises(UnreachableError, match="does not answer"):
            reader.latestOffset(start)
        proxy.mend()
        end = reader.latestOffset(start)
        assert rows_of(reader, start, end) == [(1, "video/0")]
        assert agent.post([operation("insert", "video", "1")]) == 200
        assert reader.latestOffset(end) is end
        reader.stop()


def test_a_batch_from_an_agent_has_states_or_operations(tmp_path: Path) -> None:
    with Agent(tmp_path, "--heartbeat", "25s") as agent:
        posted = [
            operation("insert", "video", str(n), "2020-01-01T00:00:00Z", "a,b") for n in range(5)
        ]
        assert agent.post([*posted, operation("delete", "video", "2")]) == 200
        assert agent.post([operation("insert", "tag", str(n)) for n in range(5)]) == 200
        for options, expected in (
            ({"start": "oldest"}, list(range(1, 12))),
            ({"start": "oldest", "types": "video"}, list(range(1, 7))),
            ({"start": "oldest", "types": "user"}, []),
            ({"start": "oldest", "parents": "a,b"}, []),
            ({"start": "oldest", "events": "delete"}, [6]),
            ({"start": "oldest", "types": "tag", "events": "insert"}, list(range(7, 12))),
        ):
            reader = reader_of({"agent": agent.url, **options})
            start = reader.initialOffset()
            found = rows_of(reader, start, reader.latestOffset(start))
            assert [number for number, _ in found] == expected, options
            reader.stop()


def test_an_agent_that_stops_in_a_stream_is_not_an_end_of_the_batch() -> None:
    id_ = "545b55c7f095000000000001"
    half = answer("200 OK", f"id: {id_}\n\n", "Content-Type: text/event-stream")
    with ScriptedServer([half, half]) as server:
        reader = reader_of({"agent": server.url, "start": id_, "retryFor": "1ms"})
        start = reader.initialOffset()
        end = start | {"id": "545b55c7f095000000000009"}
        with pytest.raises(SyncError, match="an agent ended its stream"):
            rows_of(reader, start, end)


def test_rows_are_written_through_agents(spark: SparkSession, tmp_path: Path) -> None:
    with Agent(tmp_path, "--ingest-password", "s:ecr@t") as agent:
        urls = f"http://127.0.0.1:{free_port()},{agent.url}"
        options = {"agent": urls, "password": "s:ecr@t", "retryFor": "1m"}
        rows = spark.range(25_000).selectExpr(
            "'insert' AS event",
            "'video' AS type",
            "CAST(id AS string) AS id",
            "array('user/1') AS parents",
            "CAST(NULL AS bigint) AS offset",
        )
        rows.repartition(2).write.format("oplog").options(**options).mode("append").save()
        entries = [json.loads(entry.data) for entry in log(tmp_path / "oplog.db")]
        assert {each["id"] for each in entries} == {str(n) for n in range(25_000)}
        assert len(entries) == 25_000
        guarded = rows.withColumn("expected_offset", F.lit(0))
        with pytest.raises(PySparkException, match="expected_offset: an agent does not compare"):
            guarded.write.format("oplog").options(**options).mode("append").save()
        wrong = rows.withColumn("type", F.lit("a/b"))
        with pytest.raises(PySparkException, match="column type, row 1 of its task: must not"):
            wrong.limit(1).write.format("oplog").options(**options).mode("append").save()


@pytest.mark.parametrize("through", ["store", "agent"])
def test_a_query_for_the_present_operations_ends_at_its_end(tmp_path: Path, through: str) -> None:
    with Agent(tmp_path) as agent:
        assert agent.post([operation("insert", "video", str(n)) for n in range(5)]) == 200
        store = str(tmp_path / "oplog.db")
        ids = [format_id(Mark(entry.offset, entry.ms)) for entry in log(Path(store))]
        place = {"store": store} if through == "store" else {"agent": agent.url}
        reader = reader_of({**place, "start": "oldest", "end": ids[2], "retryFor": "1ms"})
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start)
        assert [number for number, _ in rows_of(reader, start, end)] == [1, 2, 3]
        assert reader.latestOffset(end) is end
        reader.stop()

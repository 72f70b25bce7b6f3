"""The sink for another agent, on a real one."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Op
from oplog_pipe.sinks.oplog import OplogOptions, OplogSink
from tests.integration.pipe.made import message
from tests.kits.agents.agent import Agent
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

PASSWORD = {"Authorization": "Basic OnBhc3M="}
_numbers = itertools.count(1)
TIME = "2014-11-06T11:04:39.041Z"

# An operation of a transaction as an agent with --object-url streams it.
DATA = {
    "timestamp": TIME, "parents": ["p"], "type": "video", "id": "a",
    "ref": "http://x.example/a", "txn": "t", "lsn": 1, "of": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    with Agent(folder, "--ingest-password", "pass", "--max-body-size", "2000") as running:
        yield running


@pytest.fixture
def topic(agent: Agent) -> str:
    name = f"topic-{next(_numbers)}"
    path = f"/v1/namespaces/copies/topics/{name}"
    assert agent.request("PUT", path, {}, PASSWORD).status == 200
    return f"copies/{name}"


def sink_of(agent: Agent, log: str = "system/oplog", password: str = "pass") -> OplogSink:
    return OplogSink(OplogOptions((agent.url,), log, password))


def polled(agent: Agent, log: str) -> list[tuple[str | None, Any]]:
    """Return the keys and payloads of a topic."""
    namespace, _, topic = log.partition("/")
    answer = agent.request("POST", f"/v1/namespaces/{namespace}/topics/{topic}/poll", {})
    return [(each.get("key"), each["payload"]) for each in answer.json]


def test_operations_reach_the_other_oplog_in_their_order_without_members_of_the_first_agent(
    agent: Agent,
) -> None:
    ops: tuple[Op, ...] = ("insert", "update", "delete")
    sink = sink_of(agent)
    sink.open()
    with agent.follow() as stream:
        sink.begin_copy(1, "s")
        sink.write([message(n, "a", DATA, op=op) for n, op in enumerate(ops)])
        sink.end_copy(1, "s")
        sink.close()
        events = stream.take(len(ops))
    assert [event.event for event in events] == list(ops)
    assert [event.operation for event in events] == [
        {"timestamp": TIME, "parents": ["p"], "type": "video", "id": "a"}
    ] * 3


def test_messages_reach_a_topic_with_their_ids_as_keys(agent: Agent, topic: str) -> None:
    sink = sink_of(agent, topic)
    sink.open()
    sink.write([message(1, "a", {"n": 1}), message(2, "b", "text"), message(3, "a", op="delete")])
    sink.close()
    assert polled(agent, topic) == [("a", '{"n":1}'), ("b", "text"), ("a", None)]


@pytest.mark.parametrize("to_topic", [False, True])
def test_a_batch_that_is_too_large_for_the_agent_is_sent_in_parts(
    agent: Agent, topic: str, to_topic: bool
) -> None:
    sink = sink_of(agent, topic if to_topic else "system/oplog")
    ids = [f"{to_topic}-{n}" for n in range(50)]
    sink.write([message(n, id) for n, id in enumerate(ids)])
    sink.close()
    if to_topic:
        assert [key for key, _ in polled(agent, topic)] == ids
    else:
        kept = [key.partition("/")[2] for key in agent.replicate() if key.startswith("video/F")]
        assert sorted(kept) == sorted(ids)


@pytest.mark.parametrize("to_topic", [False, True])
def test_a_message_that_the_agent_refuses_for_good_is_named(
    agent: Agent, topic: str, to_topic: bool
) -> None:
    sink = sink_of(agent, topic if to_topic else "system/oplog")
    bad = "x" * 3000
    with pytest.raises(SinkError) as caught:
        sink.write([message(1, "a"), message(2, "b"), message(3, bad), message(4, "d")])
    sink.close()
    assert (caught.value.transient, caught.value.index) == (False, 2)


def test_the_line_of_an_invalid_operation_is_named(agent: Agent) -> None:
    sink = sink_of(agent)
    bad = {"type": "a/b", "id": "x"}
    with pytest.raises(SinkError, match="type: ") as caught:
        sink.write([message(1, "a"), message(2, "b", bad)])
    sink.close()
    assert (caught.value.transient, caught.value.index) == (False, 1)


def test_data_that_is_no_operation_is_refused(agent: Agent) -> None:
    sink = sink_of(agent)
    with pytest.raises(SinkError, match="data is no operation") as caught:
        sink.write([message(1, "a"), message(2, "b", {"title": "T"})])
    sink.close()
    assert (caught.value.transient, caught.value.index) == (False, 1)


@pytest.mark.parametrize("to_topic", [False, True])
def test_a_wrong_password_is_refused_for_good(agent: Agent, topic: str, to_topic: bool) -> None:
    sink = sink_of(agent, topic if to_topic else "system/oplog", "wrong")
    with pytest.raises(SinkError, match="look at the password of the sink") as caught:
        sink.write([message(1, "a")])
    sink.close()
    assert (caught.value.transient, caught.value.index) == (False, None)


def test_a_topic_that_does_not_exist_is_refused_at_the_start(agent: Agent) -> None:
    sink = sink_of(agent, "copies/missing")
    with pytest.raises(SinkError, match="404") as caught:
        sink.open()
    sink.close()
    assert not caught.value.transient


def test_another_agent_takes_over_and_without_any_the_failure_is_transient(agent: Agent) -> None:
    def busy(asked: Request) -> bytes:
        return answer(503, "{}")

    with ScriptedServer(busy) as server:
        sink = OplogSink(OplogOptions((server.url, agent.url), password="pass"))
        sink.write([message(1, "taken-over")])
        sink.write([message(2, "taken-over")])
        sink.close()
        assert len(server.requests) == 1
        alone = OplogSink(OplogOptions((server.url,), password="pass"))
        with pytest.raises(SinkError, match="503") as caught:
            alone.write([message(1, "a", DATA, op="update")])
        alone.close()
    assert caught.value.transient
    assert json.loads(server.requests[-1].body) == {
        "event": "update", "timestamp": TIME, "parents": ["p"], "type": "video", "id": "a",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("log", "then"),
    [("system/oplog", "`oplog-pipe copy SOURCE` sends the objects"), ("a/b", "cannot send them")],
)
def test_a_target_that_is_another_store_than_before_is_told_once(
    log: str, then: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in "12":
        (tmp_path / each).mkdir()
    sent = {"payload": "p", "type": "video", "id": "a"}
    with Agent(tmp_path / "2") as second:
        with Agent(tmp_path / "1") as first:
            for agent in (first, second):
                assert agent.request("PUT", "/v1/namespaces/a/topics/b", {}).status == 200
            sink = OplogSink(OplogOptions((first.url, second.url), log))
            sink.open()
            sink.write([message(0, data=sent)])
            assert sink.notice is None
        sink.write([message(1, data=sent)])
        sink.write([message(2, data=sent)])
        sink.close()
    assert sink.notice is not None
    assert f"{second.url}/: another store answers than before" in sink.notice
    assert then in sink.notice
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [sink.notice]

"""Whole chains: topics and the oplog into another agent; the oplog, a fetch and a webhook."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pipe.control import Control
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Topic
from tests.kits.pipe.processes import PipeFolder
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

_SHAPE = """\
def shape(message):
    if message.op != "delete" and message.data["title"] == "secret":
        return None
    message.data = {"title": message.data["title"].upper()} if message.op != "delete" else None
    return message
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Agent]:
    folder = tmp_path / "other"
    folder.mkdir()
    with Agent(folder) as other:
        yield other


def test_a_topic_and_the_oplog_reach_another_agent_over_a_kill(
    agent: Agent, other: Agent, tmp_path: Path
) -> None:
    first, second = Topic(agent, "shop/orders").create(), Topic(other, "copy/orders").create()
    pipe = PipeFolder(
        tmp_path,
        [],
        [
            {
                "name": "objects", "type": "oplog", "agents": [other.url],
                "log": "system/oplog", "namespace": "^video$",
            },
            {
                "name": "orders", "type": "oplog", "agents": [other.url],
                "log": "copy/orders", "namespace": "^shop/orders$",
            },
        ],
        sources=[{"agents": [agent.url]}, {"agents": [agent.url], "log": "shop/orders"}],
    )  # fmt: skip
    sent = [{"payload": f"{n}", "key": f"k{n % 3}", "headers": [["n", "1"]]} for n in range(20)]
    first.publish(*sent[:10])
    agent.post([{"event": "insert", "type": "video", "id": f"v{n}"} for n in range(10)])
    with pipe.run() as process:
        pipe.wait_status(lambda status: [sink["flushed"] for sink in status["sinks"]] == [21, 21])
        process.kill()
    first.publish(*sent[10:], {"payload": "4f==", "encoding": "base64"})
    agent.post([{"event": "delete", "type": "video", "id": "v3"}])
    with pipe.run() as process:
        pipe.wait_status(lambda status: [sink["flushed"] for sink in status["sinks"]] == [33, 33])
        assert process.stop() == 0
    answer = other.request("POST", f"{second.path}/poll", {})
    headers = [each.pop("headers") for each in answer.json]
    assert [
        {"payload": each["payload"], "key": each["key"], "headers": found[:-1]}
        for each, found in zip(answer.json[:-1], headers, strict=False)
    ] == sent
    assert {found[-1][0] for found in headers} == {"oplog-origin"}
    assert (answer.json[-1]["payload"], answer.json[-1]["encoding"]) == ("4Q==", "base64")
    assert sorted(other.replicate()) == sorted(f"video/v{n}" for n in range(10) if n != 3)


def test_messages_of_a_topic_that_are_gone_stop_the_pipe_with_a_code_of_their_own(
    agent: Agent, tmp_path: Path
) -> None:
    topic = Topic(agent, "shop/orders").create()
    sink = Control(tmp_path, "c0")
    source = {"agents": [agent.url], "log": "shop/orders"}
    pipe = PipeFolder(tmp_path, [], [sink.settings()], sources=[source])
    topic.publish("one")
    with pipe.run() as process:
        sink.wait_written(0)
        assert process.stop() == 0
    topic.delete()
    topic.create()
    topic.publish("two")
    with pipe.run() as process:
        assert process.wait() == 5
        assert "on_gap: continue" in process.text()
    assert sink.writes() == [[0]]
    pipe = PipeFolder(tmp_path, [], [sink.settings()], sources=[{**source, "on_gap": "continue"}])
    with pipe.run() as process:
        sink.wait_written(1)
        assert process.stop() == 0


def test_objects_are_fetched_transformed_and_posted_in_order_and_the_figures_tell_so(
    tmp_path: Path,
) -> None:
    titles = {f"v{n}": f"title {n}" for n in range(30)}
    titles["v5"] = "secret"
    del titles["v9"]

    def choose(asked: Request) -> bytes:
        if asked.method == "POST":
            return answer(204, b"")
        title = titles.get(asked.target.rpartition("/")[2])
        if title is None:
            return answer(404, b"{}")
        return answer(200, json.dumps({"title": title}).encode())

    (tmp_path / "shape.py").write_text(_SHAPE)
    (tmp_path / "agent").mkdir()
    with (
        ScriptedServer(choose) as server,
        Agent(tmp_path / "agent", "--object-url", f"{server.url}/{{{{id}}}}") as agent,
    ):
        sink = {"name": "hook", "type": "http", "url": f"{server.url}/hook"}
        sink["transforms"] = ["fetch", "shape:shape"]  # type: ignore[assignment]
        pipe = PipeFolder(tmp_path, [agent.url], [sink], listen="127.0.0.1:0")
        operations = [{"event": "insert", "type": "video", "id": f"v{n}"} for n in range(30)]
        with pipe.run() as process:
            pipe.wait_status(lambda status: status["sinks"][0]["flushed"] == 1)
            agent.post([*operations, {"event": "delete", "type": "video", "id": "v1"}])
            pipe.wait_status(lambda status: status["sinks"][0]["flushed"] == 32)
            url = process.wait_log("status at").split()[-1].replace("/status", "/metrics")
            with urllib.request.urlopen(url, timeout=DEADLINE) as response:
                metrics = response.read().decode()
            assert process.stop() == 0
    posted = [
        (each["op"], each["id"], each["data"])
        for asked in server.requests
        if asked.method == "POST"
        for each in json.loads(asked.body)
    ]
    expected = [("insert", f"v{n}", {"title": f"TITLE {n}"}) for n in range(30) if n not in (5, 9)]
    assert posted == [*expected, ("delete", "v1", None)]
    assert 'oplog_pipe_sink_written_total{sink="hook"} 29.0' in metrics
    assert 'oplog_pipe_sink_filtered_total{sink="hook"} 2.0' in metrics

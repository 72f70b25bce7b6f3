"""The sink for a topic of another agent leaves out what comes back to it."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from oplog_pipe.message import Message
from oplog_pipe.sinks.oplog import OplogOptions, OplogSink
from oplog_pipe.sinks.parts.origin import HEADER
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic

_numbers = itertools.count(1)
OTHER = "f" * 40


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as running:
        yield running


@pytest.fixture
def topic(agent: Agent) -> Topic:
    return Topic(agent, f"shop/orders-{next(_numbers)}").create()


@pytest.fixture
def sink(topic: Topic) -> Iterator[OplogSink]:
    made = OplogSink(OplogOptions((topic.agent.url,), topic.name))
    made.mirror("folder/sink")
    made.open()
    yield made
    made.close()


def polled(topic: Topic) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = topic.agent.request("POST", f"{topic.path}/poll", {}).json
    return found


def copied(offset: int, payload: str, *origin: str, key: str = "k") -> Message:
    """Return a message of a topic in another store. ``origin``: its header."""
    data = {"id": OTHER, "payload": payload, "key": key, "headers": [[HEADER, " ".join(origin)]]}
    raw = json.dumps(data).encode()
    return Message(
        "insert", 1, "shop/there", raw, id=key, offset=offset, version=offset, source="there"
    )


def test_only_messages_that_the_target_has_itself_are_left_out(
    topic: Topic, sink: OplogSink
) -> None:
    topic.publish(*({"payload": f"p{n}", "key": "k"} for n in range(3)))
    own = [each["id"] for each in polled(topic)]
    sink.write(
        [
            copied(0, "p2", "other/sink", topic.name, own[2]),
            copied(1, "p0", "other/sink", topic.name, own[0]),
            copied(2, "other content", "other/sink", topic.name, own[1]),
            copied(3, "p1", "other/sink", topic.name, own[1], key="other"),
            copied(4, "p1", "other/sink", "shop/another", own[1]),
            copied(5, "p1", "other/sink", topic.name, "0" * 40),
            copied(6, "sent before", "folder/sink", "shop/another", OTHER),
        ]
    )
    sent = [each["payload"] for each in polled(topic)][3:]
    assert sent == ["other content", "p1", "p1", "p1"]
    assert polled(topic)[-1]["headers"][-1] == [HEADER, f"folder/sink shop/there {OTHER}"]


def test_a_message_that_names_the_sink_itself_is_told_once_and_counted(
    topic: Topic, sink: OplogSink, caplog: pytest.LogCaptureFixture
) -> None:
    assert sink.notice is None
    # A program has copied the headers of a message that it has handled.
    sink.write([copied(0, "ordered"), copied(1, "shipped", "folder/sink", "shop/there", OTHER)])
    assert [each["payload"] for each in polled(topic)] == ["ordered"]
    assert sink.notice is not None
    assert f"1 message of there was not sent, the last one {OTHER}" in sink.notice
    assert "a program has copied its headers from another message" in sink.notice
    again = [copied(n, "shipped", "folder/sink", "shop/there", OTHER) for n in (1, 2, 3)]
    sink.write(again)
    sink.write(again)
    assert "3 messages of there were not sent" in sink.notice
    assert [each.levelname for each in caplog.records if HEADER in each.message] == ["WARNING"]


def test_a_batch_of_messages_that_come_back_is_left_out_over_several_polls(
    topic: Topic, sink: OplogSink
) -> None:
    topic.publish(*({"payload": "x" * 2000, "key": f"{n}"} for n in range(1500)))
    own: list[str] = []
    while page := topic.agent.request(
        "POST", f"{topic.path}/poll", {"startFrom": own[-1], "inclusive": False} if own else {}
    ).json:
        own += [each["id"] for each in page]
    assert len(own) == 1500
    origin = ["other/sink", topic.name]
    sink.write([copied(n, "x" * 2000, *origin, id, key=f"{n}") for n, id in enumerate(own)])
    after = topic.agent.request("POST", f"{topic.path}/poll", {"startFrom": own[-1]}).json
    assert [each["id"] for each in after] == own[-1:]


def test_without_the_right_to_read_a_message_comes_back_once_and_this_is_told(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("guarded")
    with Agent(folder, "--password", "read", "--ingest-password", "write") as agent:
        write = {"Authorization": "Basic OndyaXRl"}
        assert agent.request("PUT", "/v1/namespaces/a/topics/b", {}, write).status == 200
        sink = OplogSink(OplogOptions((agent.url,), "a/b", "write"))
        sink.mirror("folder/sink")
        sink.write([copied(0, "p", "other/sink", "a/b", "0" * 40)])
        sink.write([copied(1, "p", "folder/sink", "x/y", OTHER)])
        assert sink.notice is not None
        assert "the password of the sink may not read a/b" in sink.notice
        sink.close()
        read = {"Authorization": "Basic OnJlYWQ="}
        found = agent.request("POST", "/v1/namespaces/a/topics/b/poll", {}, read).json
        assert [each["payload"] for each in found] == ["p"]

"""Polls of a shard: the parameter, its echo, and the position for the next poll."""

import json

import pytest

from oplogc.topics import ProtocolError
from tests.integration.clients.topics.test_stream import IDS
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

MESSAGES = json.dumps([{"id": IDS[1], "payload": "a"}])


def test_a_poll_asks_for_its_shard_and_tells_the_position(topics_of: TopicsOf) -> None:
    found = answer("200 OK", MESSAGES, "OPLOG-Shard: 3/8", f"oplog-POSITION: {IDS[5]}")
    ended = answer("200 OK", "[]", "Oplog-Shard: 3/8")
    with ScriptedServer([found, ended]) as server, topics_of(server.url) as topics:
        polled = topics.poll("t", IDS[0], inclusive=False, limit=7, shard="3/8")
        assert ([each.text for each in polled.messages], polled.position) == (["a"], IDS[5])
        polled = topics.poll("t", polled.position, inclusive=False, shard="3/8")
        assert (polled.messages, polled.position) == ((), None)
    assert [request.query for request in server.requests] == [{"shard": ["3/8"]}] * 2
    assert [request.json["startFrom"] for request in server.requests] == [IDS[0], IDS[5]]


def test_a_poll_without_a_shard_sends_no_parameter(topics_of: TopicsOf) -> None:
    with (
        ScriptedServer([answer("200 OK", MESSAGES)]) as server,
        topics_of(server.url) as topics,
    ):
        assert topics.poll("t").position is None
    assert server.requests[0].query == {}


@pytest.mark.parametrize(
    ("echo", "sentence"),
    [
        ([], "sent everything: the agent does not know shards"),
        (["Oplog-Shard: 2/8"], "sent shard '2/8'"),
        (["Oplog-Shard:"], "sent shard ''"),
    ],
)
def test_a_poll_without_the_echo_is_refused_and_not_repeated(
    echo: list[str], sentence: str, topics_of: TopicsOf
) -> None:
    with (
        ScriptedServer([answer("200 OK", MESSAGES, *echo)]) as server,
        topics_of(server.url) as topics,
        pytest.raises(ProtocolError, match=sentence),
    ):
        topics.poll("t", shard="3/8")
    assert len(server.requests) == 1


def test_a_repeated_poll_needs_the_echo_too(topics_of: TopicsOf) -> None:
    answers = [answer("503 Busy", "", "Oplog-Shard: 3/8"), answer("200 OK", MESSAGES)]

    def reply(request: Request) -> bytes:
        assert request.query["shard"] == ["3/8"]
        return answers.pop(0)

    with (
        ScriptedServer(reply) as server,
        topics_of(server.url, backoff=(0.01, 0.05)) as topics,
        pytest.raises(ProtocolError, match="does not know shards"),
    ):
        topics.poll("t", shard="3/8")
    assert len(server.requests) == 2


def test_a_bad_shard_is_not_sent(topics_of: TopicsOf) -> None:
    with topics_of("http://127.0.0.1:9") as topics:
        for bad in ("", "8/8", "3/08", 3):
            with pytest.raises(ValueError, match="is not a shard: give I/N"):
                topics.poll("t", shard=bad)  # type: ignore[arg-type]

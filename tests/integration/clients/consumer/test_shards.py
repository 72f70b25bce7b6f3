"""Both consumers with a shard: no event comes from an answer without the shard's echo."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oplogc import Consumer, ProtocolError, RefusedError
from oplogc.topics import TopicConsumer, Topics
from tests.integration.clients.topics.test_stream import block
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.streams import FAST, HEAD, Streams, operation
from tests.kits.servers.scripted import ScriptedServer, answer

Make = Callable[..., Any]
EVENTS = {"oplog": [operation("a"), operation("b", number=1)], "topic": [block(0), block(1)]}
DIVIDED = answer("409 Conflict", '{"detail":"too many numbers of shards"}')


def head(*echoes: str) -> bytes:
    lines = [f"oplog-SHARD: {echo}\r\n" for echo in echoes]
    return HEAD + "".join(lines).encode() + b"Connection: close\r\n\r\n"


def oplog(url: str, **options: Any) -> Consumer:
    return Consumer(url, backoff=FAST, types=["video"], **options)


def topic(url: str, **options: Any) -> TopicConsumer:
    return TopicConsumer(url, "t", backoff=FAST, **options)


both = pytest.mark.parametrize("make", [oplog, topic])


async def take(consumer: Any, count: int) -> list[str]:
    async with asyncio.timeout(DEADLINE):
        return [(await anext(consumer)).event_id for _ in range(count)]


@both
async def test_each_connection_asks_for_the_shard(make: Make) -> None:
    with Streams(*EVENTS[make.__name__], head=head("3/8")) as server:
        async with make(server.url, shard="3/8") as consumer:
            assert len(set(await take(consumer, 2))) == 2
    assert [request.query["shard"] for request in server.requests] == [["3/8"]] * 2
    assert all(request.query["checkpoint"] == ["1"] for request in server.requests)


@both
async def test_without_a_shard_none_is_asked_for(make: Make) -> None:
    with Streams(EVENTS[make.__name__][0]) as server:
        async with make(server.url) as consumer:
            await take(consumer, 1)
    assert "shard" not in server.requests[0].query


@pytest.mark.parametrize(
    ("echoes", "sentence"),
    [
        ([], r"sent everything: the agent does not know shards, .*older .*\. Upgrade the agent"),
        (["2/8"], "asked for shard 3/8 and sent shard '2/8'"),
        (["3/16"], "sent shard '3/16'"),
        ([""], "sent shard ''"),
        (["3/8", "3/8"], "sent shard '3/8, 3/8'"),
    ],
)
@both
async def test_an_answer_of_no_or_another_shard_brings_nothing(
    make: Make, echoes: list[str], sentence: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with Streams(EVENTS[make.__name__][0], head=head(*echoes)) as server:
        async with make(server.url, shard="3/8", state_file=state) as consumer:
            for _ in range(2):
                with pytest.raises(ProtocolError, match=sentence):
                    await take(consumer, 1)
            assert consumer.position == ""
        assert len(server.requests) == 2
    assert not state.exists()


@pytest.mark.parametrize("echoes", [[], ["0/8"]])
@both
async def test_an_answer_after_a_lost_connection_needs_the_echo_too(
    make: Make, echoes: list[str]
) -> None:
    first, second = EVENTS[make.__name__]
    with ScriptedServer([[head("3/8"), first], [head(*echoes), second]]) as server:
        async with make(server.url, shard="3/8") as consumer:
            (begun,) = await take(consumer, 1)
            with pytest.raises(ProtocolError, match="was asked for shard 3/8"):
                await take(consumer, 1)
            assert consumer.position == begun
    assert len(server.requests) == 2


@both
async def test_a_redirect_that_loses_the_shard_brings_nothing(make: Make) -> None:
    event = EVENTS[make.__name__][0]
    moved = answer("307 Moved", "", "Location: /elsewhere", "Connection: close")
    with ScriptedServer([moved, [head(), event]]) as server:
        async with make(server.url, shard="3/8") as consumer:
            with pytest.raises(ProtocolError, match="elsewhere was asked for shard 3/8"):
                await take(consumer, 1)


@both
async def test_an_agent_with_too_many_numbers_of_shards_is_asked_again(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([DIVIDED, DIVIDED, [head("3/8"), EVENTS[make.__name__][0]]]) as server:
        async with make(server.url, shard="3/8") as consumer:
            await take(consumer, 1)
    assert len(server.requests) == 3
    assert caplog.text.count("too many numbers of shards (HTTP 409); trying again in") == 2


@both
async def test_another_conflict_is_final(make: Make) -> None:
    with ScriptedServer([DIVIDED]) as server:
        async with make(server.url) as consumer:
            with pytest.raises(RefusedError, match="too many"):
                await take(consumer, 1)
    assert len(server.requests) == 1


@pytest.mark.parametrize("shard", ["", "8/8", "03/8", "0/257", "3", 3])
def test_a_bad_shard_is_a_bad_argument(shard: Any) -> None:
    with Topics("http://127.0.0.1:9") as topics:
        makes: list[Callable[[], object]] = [
            lambda: oplog("http://127.0.0.1:9", shard=shard),
            lambda: topic("http://127.0.0.1:9", shard=shard),
            lambda: topics.stream("t", shard=shard),
        ]
        for make in makes:
            with pytest.raises(ValueError, match="is not a shard: give I/N such as '3/8'"):
                make()


async def test_the_stream_of_topics_has_the_shard() -> None:
    with Streams(block(0), head=head("3/8")) as server, Topics(server.url) as topics:
        async with topics.stream("t", shard="3/8") as consumer:
            await take(consumer, 1)
    assert server.requests[0].query["shard"] == ["3/8"]

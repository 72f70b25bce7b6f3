"""Following a topic with the Python client: restarts, announced losses, deletions."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oplogc import StateFileError
from oplogc.topics import (
    Message,
    ProtocolError,
    ReceivedMessage,
    RefusedError,
    Reset,
    TopicConsumer,
    TopicEvent,
    TopicNotFound,
    Topics,
)
from oplogd.model.message_id import MessageId
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.clients.streams import FAST, HEAD, Streams, chunked
from tests.kits.contract.wire import wait_until
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

IDS = [str(MessageId(1_415_271_879_041, number)) for number in range(10)]


def block(number: int, text: str = "a") -> bytes:
    return f'id: {IDS[number]}\nevent: message\ndata: {{"payload":"{text}"}}\n\n'.encode()


def shown(event: TopicEvent) -> str | None:
    return "reset" if isinstance(event, Reset) else event.text


async def take(consumer: TopicConsumer, count: int) -> list[str | None]:
    async with asyncio.timeout(DEADLINE):
        return [shown(await anext(consumer)) for _ in range(count)]


async def test_a_stream_brings_the_oldest_then_what_comes(tmp_path: Path) -> None:
    sent = Message(b"\xff", "k", [("n", "v")])
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "a", sent).result()
        async with topics.stream("t", start="0") as consumer:
            assert await take(consumer, 1) == ["a"]
            async with asyncio.timeout(DEADLINE):
                got = await anext(consumer)
            assert isinstance(got, ReceivedMessage)
            assert (got.raw, got.key, got.headers) == (b"\xff", "k", (("n", "v"),))
            assert consumer.position == got.id
            topics.publish("t", "b").result()
            assert await take(consumer, 1) == ["b"]
        for start in (got.id, got.published + timedelta(milliseconds=1)):
            async with topics.stream("t", start=start) as consumer:
                assert await take(consumer, 1) == ["b"]


async def test_without_a_start_the_next_message_is_the_first(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "before").result()
        async with topics.stream("t") as consumer:
            first = asyncio.create_task(take(consumer, 1))
            async with asyncio.timeout(DEADLINE):
                while not consumer.connections:
                    await asyncio.sleep(0.001)
            topics.publish("t", "after").result()
            assert await first == ["after"]


def test_a_stream_is_followed_with_for_and_ended_with_stop(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", *"abc").result()
        texts = []
        with topics.stream("t", start="0") as consumer:
            for event in consumer:
                texts.append(shown(event))
                if len(texts) == 3:
                    consumer.stop()
        assert texts == ["a", "b", "c"]


async def test_each_message_comes_once_over_restarts_cuts_and_lives_of_the_consumer(
    tmp_path: Path,
) -> None:
    """Publish each message once: the publisher's connection is not cut, and each call waits."""
    port, count = free_port(), 3000
    state = tmp_path / "state"
    got: list[str | None] = []
    agent = agent_on(port, tmp_path)
    try:
        with (
            ChaosProxy(port, seed=11, most_bytes=60_000) as proxy,
            Topics(f"http://127.0.0.1:{port}", backoff=FAST) as topics,
        ):
            topics.create("t")

            def publish(first: int) -> None:
                for number in range(first, first + 1000, 10):
                    topics.publish("t", *map(str, range(number, number + 10))).result(DEADLINE)

            for life in range(3):
                consumer = TopicConsumer(proxy.url, "t", start="0", state_file=state, backoff=FAST)
                publishing = threading.Thread(target=publish, args=(1000 * life,))
                publishing.start()
                async with consumer, asyncio.timeout(2 * DEADLINE):
                    while len(got) < 1000 * (life + 1):
                        event = await anext(consumer)
                        got.append(shown(event))
                        consumer.ack(event)
                        if len(got) == 1000 * life + 500:
                            await asyncio.to_thread(publishing.join)
                            await asyncio.to_thread(agent.stop)
                            agent = await asyncio.to_thread(agent_on, port, tmp_path)
                publishing.join()
            assert proxy.cuts >= 3
    finally:
        agent.kill()
    assert got == [str(number) for number in range(count)]


async def test_a_kept_position_resumes_and_an_unacknowledged_message_comes_again(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", *"abcd").result()
        async with topics.stream("t", start="0", state_file=state) as consumer:
            events = [await anext(consumer) for _ in range(3)]
            for event in (events[2], events[0]):
                consumer.ack(event)
        assert state.read_text() == f"{events[0].event_id} read_committed"
        async with topics.stream("t", state_file=state) as consumer:
            assert await take(consumer, 3) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("topic", "content", "is_position"),
    [
        ("t", IDS[0], True), ("t", "0", True), ("t", "545b55c7f095528dd0f3863c", False),
        ("system/oplog", "545b55c7f095528dd0f3863c", True), ("system/oplog", IDS[0], False),
    ],
)  # fmt: skip
def test_a_state_file_of_another_kind_of_log_is_refused(
    tmp_path: Path, topic: str, content: str, is_position: bool
) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    if is_position:
        consumer = TopicConsumer("http://127.0.0.1:9", topic, state_file=path)
        assert consumer.position == content
        consumer.close()
        return
    with pytest.raises(StateFileError, match="no position"):
        TopicConsumer("http://127.0.0.1:9", topic, state_file=path)


async def test_a_deleted_topic_ends_the_stream_and_created_again_brings_reset(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "a").result()
        async with topics.stream("t", start="0", state_file=state) as consumer:
            event = await anext(consumer)
            consumer.ack(event)
            waiting = asyncio.create_task(take(consumer, 1))
            topics.delete("t")
            with pytest.raises(TopicNotFound, match="no topic default/t") as gone:
                await waiting
            assert gone.value.status == 404
        topics.create("t")
        topics.publish("t", "b").result()
        async with topics.stream("t", state_file=state) as consumer:
            assert await take(consumer, 2) == ["reset", "b"]


async def test_an_expired_position_brings_reset_and_0_does_not(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "a").result()
        (first,) = topics.poll("t").messages
        topics.publish("t", "b").result()
        topics.update("t", ttl=1)
        assert await asyncio.to_thread(wait_until, lambda: not topics.poll("t").messages)
        topics.update("t", ttl=600)
        topics.publish("t", "c").result()
        async with topics.stream("t", start=first.id) as consumer:
            assert await take(consumer, 2) == ["reset", "c"]
            assert consumer.position != "0"
        async with topics.stream("t", start="0") as consumer:
            assert await take(consumer, 1) == ["c"]


async def test_the_stream_of_the_oplog_brings_operations_as_a_poll_does(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        agent.post({"event": "insert", "type": "t", "id": "é", "parents": ["p"]})
        (polled,) = topics.poll("system/oplog").messages
        async with topics.stream("system/oplog", start="0") as consumer:
            assert await take(consumer, 2) == ["reset", polled.text]
            agent.post({"event": "delete", "type": "t", "id": "é"})
            (newest,) = topics.poll("system/oplog", polled.id, inclusive=False).messages
            assert await take(consumer, 1) == [newest.text]
            assert consumer.position == newest.id


@pytest.mark.parametrize("bytes_a_piece", [1, 7, 1000])
async def test_a_stream_cut_into_any_pieces_is_read(bytes_a_piece: int) -> None:
    raw = b":\r\n\r\nid: 0\nevent: reset\ndata:\n\n" + block(0, "é") + block(1, "b")
    pieces = [raw[at : at + bytes_a_piece] for at in range(0, len(raw), bytes_a_piece)]
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    with Streams([chunked(piece) for piece in pieces], head=head) as server:
        async with TopicConsumer(server.url, "t", start=IDS[9]) as consumer:
            assert await take(consumer, 3) == ["reset", "é", "b"]


async def test_a_lost_connection_resumes_after_the_last_block_also_after_reset() -> None:
    reset = b"id: 0\nevent: reset\ndata:\n\n"
    checkpoint = f"id: {IDS[5]}\n\n".encode()
    with Streams(reset, block(1) + block(2)[:-3], checkpoint, block(6)) as server:
        async with TopicConsumer(server.url, "t", start=IDS[0], backoff=FAST) as consumer:
            assert await take(consumer, 3) == ["reset", "a", "a"]
        assert server.last_ids() == [IDS[0], "0", IDS[1], IDS[5]]
        assert server.heads[0].startswith(
            "GET /v1/namespaces/default/topics/t/stream?checkpoint=1&isolation=read_committed"
            " HTTP/1.1\r\n"
        )


async def test_a_silent_agent_is_left_and_asked_again() -> None:
    with Streams(block(1), block(2)) as server:
        options = {"start": IDS[0], "backoff": FAST, "heartbeat_timeout": 0.2}
        async with TopicConsumer(server.url, "t", **options) as consumer:  # type: ignore[arg-type]
            assert await take(consumer, 3) == ["a"] * 3  # the last one is sent again
        # An agent is asked again, too, if its first bytes come too late.
        assert [*dict.fromkeys(server.last_ids())] == IDS[:3]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (answer("404 Not Found", '{"detail":"no topic"}'), TopicNotFound),
        (answer("400 Bad", '{"detail":"no position"}'), ValueError),
        (answer("406 No", '{"detail":"no stream"}'), RefusedError),
        (answer("200 OK", "<html>"), ProtocolError),
        (HEAD + b"\r\n" + block(0).replace(b"{", b"["), ProtocolError),
        (HEAD + b"\r\nid: nonsense\nevent: message\ndata: x\n\n", ProtocolError),
    ],
)
async def test_a_refusal_or_nonsense_ends_the_iteration(raw: bytes, kind: type[Exception]) -> None:
    with ScriptedServer([raw]) as server:
        async with TopicConsumer(server.url, "t") as consumer:
            with pytest.raises(kind):
                await take(consumer, 1)


async def test_a_busy_agent_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    busy = answer("503 Busy", '{"detail":"too many consumers"}')
    with ScriptedServer([busy, HEAD + b"\r\n" + block(0)]) as server:
        async with TopicConsumer(server.url, "t", backoff=FAST) as consumer:
            assert await take(consumer, 1) == ["a"]
    assert "too many consumers" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "nowhere"}, {"topic": "a/b/c"}, {"start": "x"}, {"start": "1" * 14},
        {"start": IDS[0][:-1]}, {"topic": "system/oplog", "start": IDS[0]},
        {"start": datetime(2026, 1, 31)}, {"timeout": 0}, {"max_unacked": 0},
    ],
)  # fmt: skip
def test_a_bad_argument_is_refused(arguments: dict[str, object]) -> None:
    wanted = {"url": "http://127.0.0.1:9", "topic": "t", **arguments}
    with pytest.raises(ValueError, match=r"address|topic|neither|time zone|seconds|at least 1"):
        TopicConsumer(**wanted)  # type: ignore[arg-type]


def test_a_start_of_long_ago_is_the_oldest(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "a").result()
        with topics.stream("t", start=datetime.now(UTC) - timedelta(days=1)) as consumer:
            assert shown(next(iter(consumer))) == "a"

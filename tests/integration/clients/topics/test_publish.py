"""Publishing with the Python client: confirmed, tried again, bounded, dropped with a count."""

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from oplogc.topics import (
    AsyncTopics,
    BufferFullError,
    FlushError,
    Message,
    NotAllowed,
    ProtocolError,
    PublishCounters,
    TopicNotFound,
    Topics,
    UnavailableError,
)
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.clients.topics_of import TopicsOf, all_texts
from tests.kits.contract.wire import wait_until
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.ports import free_port
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.servers.server import Server

FAST = (0.01, 0.05)
OK = answer("200 OK", "")
GONE = answer("404 Not Found", '{"detail":"there is no topic default/t"}')
BUSY = answer("503 Busy", '{"detail":"busy"}')


def test_a_future_is_done_when_its_messages_are_there(tmp_path: Path, topics_of: TopicsOf) -> None:
    with Agent(tmp_path) as agent, topics_of(agent.url) as topics:
        topics.create("t")
        for number in range(20):
            assert topics.publish("t", f"{number} a", f"{number} b").result() is None
            assert all_texts(topics, "t")[-2:] == [f"{number} a", f"{number} b"]
        assert topics.counters == PublishCounters(published=40, delivered=40)


def test_calls_of_many_threads_share_requests_and_each_keeps_its_order(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")

        def publish(thread: int) -> None:
            futures = [topics.publish("t", f"{thread} {number}") for number in range(500)]
            for future in futures:
                future.result(DEADLINE)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(publish, range(8)))
        texts = all_texts(topics, "t")
        for thread in range(8):
            mine = [text for text in texts if text and text.startswith(f"{thread} ")]
            assert mine == [f"{thread} {number}" for number in range(500)]
        assert len(texts) == 4000


def test_a_slow_topic_does_not_hold_up_another(topics_of: TopicsOf) -> None:
    quick_is_there = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            if b"/slow/" in head:
                await quick_is_there.wait()
            else:
                quick_is_there.set()
            writer.write(OK)
            await writer.drain()

    with Server(handle) as server, topics_of(server.url) as topics:
        slow = topics.publish("slow", "a")
        topics.publish("quick", "b").result(DEADLINE)
        slow.result(DEADLINE)


def test_a_lost_answer_is_followed_by_the_same_request(topics_of: TopicsOf) -> None:
    with ScriptedServer([None, BUSY, OK]) as server, topics_of(server.url, backoff=FAST) as topics:
        topics.publish("t", "a", Message("b", "k")).result(DEADLINE)
        assert topics.counters == PublishCounters(published=2, delivered=2, retried=2)
    assert server.bodies == [b'{"messages":["a",{"payload":"b","key":"k"}]}'] * 3


def test_messages_that_are_not_confirmed_in_time_say_so(topics_of: TopicsOf) -> None:
    with (
        ScriptedServer([BUSY]) as server,
        topics_of(server.url, backoff=FAST, retry_for=0.2) as topics,
    ):
        future = topics.publish("t", "a")
        with pytest.raises(UnavailableError, match=r"may still be stored: busy \(HTTP 503\)"):
            future.result(DEADLINE)
        assert topics.counters.dropped == 1
        assert topics.counters.retried >= 1
        server.answer_with(OK)
        topics.publish("t", "b").result(DEADLINE)
    assert server.accepted == [b'{"messages":["b"]}']


@pytest.mark.parametrize("count", [1, 2])
def test_messages_that_no_agent_has_read_are_known_not_to_be_stored(
    topics_of: TopicsOf, count: int
) -> None:
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
    with topics_of(urls, backoff=FAST, retry_for=0.2) as topics:
        with pytest.raises(UnavailableError) as failed:
            topics.publish("t", "a").result(DEADLINE)
        assert not failed.value.lost
    assert str(failed.value) in [
        f"1 message for default/t not stored: {url}/v1/namespaces/default/topics/t/publish: "
        "connection refused: is oplogd running there?"
        for url in urls
    ]


def test_an_agent_that_may_have_read_the_messages_counts_if_another_is_away(
    topics_of: TopicsOf,
) -> None:
    with ScriptedServer([None]) as server:  # it reads the request and gives no answer
        urls = [server.url, f"http://127.0.0.1:{free_port()}"]
        with topics_of(urls, backoff=(1000, 1000), retry_for=0.2) as topics:
            with pytest.raises(UnavailableError, match="may still be stored") as failed:
                topics.publish("t", "a").result(DEADLINE)
            assert failed.value.lost


def test_messages_published_while_the_agent_asks_to_wait_say_so_in_time(
    topics_of: TopicsOf,
) -> None:
    busy = answer("503 Busy", '{"detail":"busy"}', "Retry-After: 3000")
    with ScriptedServer([busy]) as server:
        topics = topics_of(server.url, retry_for=0.2)
        topics.publish("t", "a", durable=False)
        assert wait_until(lambda: topics.counters.retried == 1)
        late = topics.publish("t", "b")
        assert isinstance(late.exception(DEADLINE), UnavailableError)
        assert topics.counters.buffered == 1
        with pytest.raises(FlushError):
            topics.close(0)


def test_a_page_or_a_refusal_is_no_confirmation(topics_of: TopicsOf) -> None:
    page = answer("200 OK", "<html>")
    wrong = answer("401 Unauthorized", '{"detail":"a password is needed"}')
    with ScriptedServer([page, wrong, GONE]) as server, topics_of(server.url) as topics:
        with pytest.raises(ProtocolError, match="confirms nothing"):
            topics.publish("t", "a").result(DEADLINE)
        with pytest.raises(NotAllowed, match="a password is needed"):
            topics.publish("t", "b").result(DEADLINE)
        with pytest.raises(TopicNotFound):
            topics.publish("t", "c").result(DEADLINE)
        assert topics.counters == PublishCounters(published=3, rejected=3)


def test_a_bad_message_does_not_harm_the_calls_that_share_its_request(
    tmp_path: Path, topics_of: TopicsOf
) -> None:
    def operation(id_: str) -> str:
        return f'{{"event":"insert","type":"t","id":"{id_}"}}'

    port = free_port()
    with topics_of(f"http://127.0.0.1:{port}", backoff=FAST) as topics:
        futures = [topics.publish("system/oplog", operation(id_)) for id_ in ("a", "", "c")]
        with agent_on(port, tmp_path) as agent:
            errors = [str(future.exception(DEADLINE)) for future in futures]
            assert errors == ["None", "messages[0].id: must not be empty (HTTP 400)", "None"]
            assert sorted(agent.replicate()) == ["t/a", "t/c"]


def test_every_confirmed_message_is_there_after_kills_and_cuts(tmp_path: Path) -> None:
    port = free_port()
    confirmed: list[str] = []
    url = f"http://127.0.0.1:{port}"
    with ChaosProxy(port, seed=5, most_bytes=20_000) as proxy:
        with agent_on(port, tmp_path), Topics(url) as topics:
            topics.create("t")
        with Topics(proxy.url, backoff=FAST, batch_size=50) as topics:
            for life in range(4):
                with agent_on(port, tmp_path) as agent:
                    texts = [f"{life} {number}" for number in range(1000)]
                    futures = [topics.publish("t", text) for text in texts]
                    if life < 3:
                        futures[300].result(DEADLINE)
                        agent.kill()
                        confirmed += [
                            text
                            for text, future in zip(texts, futures, strict=True)
                            if future.done() and future.exception() is None
                        ]
                    else:
                        topics.flush(DEADLINE)
                        assert all(future.exception(0) is None for future in futures)
            counters = topics.counters
        with agent_on(port, tmp_path), Topics(url) as topics:
            stored = all_texts(topics, "t")
    assert len(confirmed) >= 900
    assert set(confirmed) <= set(stored)
    assert (counters.delivered, counters.buffered, counters.dropped) == (4000, 0, 0)
    assert set(stored) == {f"{life} {number}" for life in range(4) for number in range(1000)}
    first_times = list(dict.fromkeys(stored))  # repetitions come later, in the same order
    assert first_times == sorted(first_times, key=lambda text: [int(n) for n in text.split()])  # type: ignore[union-attr]
    assert proxy.cuts >= 1


def test_without_durable_the_future_is_done_at_once_and_messages_are_tried_again(
    topics_of: TopicsOf,
) -> None:
    wrong = answer("401 Unauthorized", '{"detail":"wrong"}')
    with (
        ScriptedServer([BUSY, None, wrong, OK]) as server,
        topics_of(server.url, backoff=FAST, retry_for=0.01) as topics,
    ):
        future = topics.publish("t", "a", durable=False)
        assert future.result(DEADLINE) is None
        assert wait_until(lambda: topics.counters.delivered == 1)
        assert topics.counters.buffered == 0
    assert len(server.bodies) == 4


def test_without_durable_messages_are_dropped_and_counted_when_there_is_no_room(
    topics_of: TopicsOf, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([BUSY]) as server:
        topics = topics_of(server.url, backoff=(60, 60), max_buffered=3)
        for text in "abcde":
            topics.publish("t", text, durable=False).result(DEADLINE)
        counters = topics.counters
        assert (counters.published, counters.buffered, counters.dropped) == (5, 3, 2)
        assert wait_until(lambda: topics.counters.retried == 1)
        with pytest.raises(FlushError, match="3 messages are not delivered: ") as failed:
            topics.close(0.1)
        assert failed.value.pending == 3
        assert topics.counters == PublishCounters(published=5, dropped=5, retried=1)


def test_without_durable_messages_of_a_topic_that_is_gone_are_lost_and_counted(
    topics_of: TopicsOf, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([GONE]) as server, topics_of(server.url) as topics:
        for text in "abc":
            topics.publish("t", text, durable=False)
            topics.flush(DEADLINE)
        assert topics.counters == PublishCounters(published=3, rejected=3)
    assert "are lost: there is no topic default/t" in caplog.text


def test_flush_tells_of_a_wrong_password_at_once(topics_of: TopicsOf) -> None:
    wrong = answer("401 Unauthorized", '{"detail":"a password is needed"}')
    with ScriptedServer([wrong]) as server:
        topics = topics_of(server.url, backoff=(60, 60))
        topics.publish("t", "a", durable=False)
        with pytest.raises(FlushError, match="a password is needed"):
            topics.flush(None)
        server.answer_with(OK)
        with pytest.raises(FlushError):
            topics.close(0)


def test_a_full_buffer_fails_a_future_of_asyncio_and_lets_a_thread_wait() -> None:
    async def go(url: str) -> None:
        topics = AsyncTopics(url, backoff=(60, 60), max_buffered=1)
        first, second = topics.publish("t", "a"), topics.publish("t", "b")
        with pytest.raises(BufferFullError, match="1 messages"):
            await second
        with pytest.raises(FlushError):
            await topics.aclose(0)
        with pytest.raises(UnavailableError, match="closed before"):
            await first

    with ScriptedServer([BUSY]) as server:
        asyncio.run(go(server.url))
    with (
        ScriptedServer([BUSY, OK]) as server,
        Topics(server.url, backoff=(0.2, 0.2), max_buffered=1) as topics,
    ):
        futures = [topics.publish("t", text) for text in "abc"]
        assert [future.result(DEADLINE) for future in futures] == [None] * 3
    with ScriptedServer([BUSY]) as server:
        topics = Topics(server.url, backoff=(60, 60), max_buffered=1, retry_for=0.1)
        topics.publish("t", "a", durable=False)
        with pytest.raises(BufferFullError):
            topics.publish("t", "b").result(DEADLINE)
        with pytest.raises(FlushError):
            topics.close(0)


def test_a_call_can_be_withdrawn_before_it_is_sent(topics_of: TopicsOf) -> None:
    is_withdrawn = threading.Event()
    answers = iter([BUSY, OK, OK])

    def choose(_: Request) -> bytes:
        reply = next(answers)
        if reply is OK:
            is_withdrawn.wait(DEADLINE)
        return reply

    with ScriptedServer(choose) as server, topics_of(server.url, backoff=FAST) as topics:
        first = topics.publish("t", "a")
        server.wait_requests(2)
        second, third = topics.publish("t", "b"), topics.publish("t", "c")
        second.cancel()
        is_withdrawn.set()
        first.result(DEADLINE)
        third.result(DEADLINE)
        counters = topics.counters
    assert server.bodies == [b'{"messages":["a"]}', b'{"messages":["a"]}', b'{"messages":["c"]}']
    assert (counters.delivered, counters.dropped) == (2, 1)


def test_after_close_nothing_is_accepted_and_everything_before_is_there(
    tmp_path: Path, topics_of: TopicsOf
) -> None:
    with Agent(tmp_path) as agent:
        with topics_of(agent.url) as topics:
            topics.create("t")
            futures = [topics.publish("t", str(number)) for number in range(2000)]
        assert all(future.done() and future.exception() is None for future in futures)
        with pytest.raises(ValueError, match="closed"):
            topics.publish("t", "late")
        topics.close()
        with topics_of(agent.url) as topics:
            assert all_texts(topics, "t") == [str(number) for number in range(2000)]


def test_publishing_while_another_thread_closes_never_leaves_a_future_open(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        with Topics(agent.url) as topics:
            topics.create("t")
        for _ in range(10):
            topics = Topics(agent.url)
            futures: list[Future[None]] = []

            def publish(topics: Topics = topics, futures: list[Future[None]] = futures) -> None:
                try:
                    while True:
                        futures.append(topics.publish("t", "a"))
                except ValueError:
                    return

            thread = threading.Thread(target=publish)
            thread.start()
            assert wait_until(lambda futures=futures: len(futures) > 100)  # type: ignore[misc]
            topics.close()
            thread.join()
            assert all(future.exception(DEADLINE) is None for future in futures)


def test_no_password_and_no_token_is_shown(
    topics_of: TopicsOf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer([BUSY, OK]) as server:
        url = server.url.replace("//", "//somebody:geheim@") + "/?token=geheim"
        with topics_of(url, backoff=FAST) as topics:
            topics.publish("t", "a").result(DEADLINE)
            server.answer_with(answer("404 x", '{"detail":"no"}'))
            with pytest.raises(TopicNotFound) as refused:
                topics.get("t")
    text = caplog.text + str(refused.value)
    assert "HTTP Request: POST" in text
    assert "geheim" not in text
    assert "somebody" not in text

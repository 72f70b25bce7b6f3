"""Named consumers of the Python client with a real agent."""

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oplogc import Live, Operation
from oplogc.topics import (
    AsyncNamedConsumer,
    BadRequestError,
    ConsumerStatus,
    ListedConsumer,
    Message,
    NamedConsumer,
    NamedEvent,
    ReceivedMessage,
    RefusedError,
    ShardStatus,
    StaleTermError,
    Topics,
)
from oplogc.topics.calls import lists
from tests.integration.clients.named import dying_reader
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.following import Following
from tests.kits.clients.restart import agent_on
from tests.kits.clients.streams import FAST
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.ports import free_port


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def inserts(*ids: str, type_: str = "video") -> list[dict[str, str]]:
    return [{"event": "insert", "type": type_, "id": each} for each in ids]


def shown(event: NamedEvent) -> str | None:
    match event:
        case Operation():
            return event.id
        case ReceivedMessage():
            return event.text
    return event.event


async def take(consumer: AsyncNamedConsumer, count: int) -> list[str | None]:
    async with asyncio.timeout(DEADLINE):
        return [shown(await anext(consumer)) for _ in range(count)]


def test_the_calls(agent: Agent, topics_of: TopicsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_PAGE", 2)
    with topics_of(agent.url) as topics:
        topics.create("calls/t")
        made = topics.create_consumer(
            "calls-a", "system/oplog", types=["video"], parents=["user/ada"], start="copy", shards=2
        )
        assert made[:5] == ("calls-a", "system/oplog", ("video",), ("user/ada",), "read_committed")
        assert abs((datetime.now(UTC) - made.created).total_seconds()) < DEADLINE
        term = made.shards[0].term  # above those of deleted consumers
        assert made.shards[1][:5] == ShardStatus(1, "0", term, "", None, 0, 0.0, True)[:5]
        again = topics.create_consumer(
            "calls-a", "system/oplog", types=["video"], parents=["user/ada"], shards=2
        )
        assert again[:6] == made[:6]
        with pytest.raises(RefusedError, match="exists with other settings") as refused:
            topics.create_consumer("calls-a", "system/oplog")
        assert (type(refused.value), refused.value.status) == (RefusedError, 409)
        for name in ("calls-b", "calls-c"):
            topics.create_consumer(name, "calls/t", isolation="read_uncommitted")
        listed = [each for each in topics.list_consumers() if each.name.startswith("calls-")]
        assert [each.name for each in listed] == ["calls-a", "calls-b", "calls-c"]
        assert listed[0] == ListedConsumer(*made[:6])
        assert listed[1][1:5] == ("calls/t", (), (), "read_uncommitted")
        moved = topics.seek_consumer("calls-a", datetime.fromtimestamp(5, UTC), shard=1)
        assert [each.position for each in moved.shards] == ["0", "5000"]
        assert [each.position for each in topics.seek_consumer("calls-a", "copy").shards] == [
            "0"
        ] * 2
        for name in ("calls-a", "calls-b", "calls-c"):
            topics.delete_consumer(name)
            with pytest.raises(RefusedError, match=name) as refused:
                topics.get_consumer(name)
            assert (type(refused.value), refused.value.status) == (RefusedError, 404)
            with pytest.raises(RefusedError, match=name):
                topics.delete_consumer(name)
        with pytest.raises(RefusedError, match="calls/none"):
            topics.create_consumer("calls-a", "calls/none")
        topics.delete("calls/t")


def test_an_acknowledgement_by_hand(agent: Agent, topics_of: TopicsOf) -> None:
    agent.post(inserts("h1", "h2"))
    with topics_of(agent.url) as topics:
        topics.create_consumer("hand", "system/oplog", start="copy")
        with NamedConsumer(agent.url, "hand") as consumer:
            events = iter(consumer)
            while not isinstance(event := next(events), Live):
                pass
            topics.acknowledge("hand", event.event_id, term=consumer.term)
            status = topics.get_consumer("hand")
            assert status.shards[0].position == event.event_id
            assert (status.shards[0].term, status.shards[0].lag) == (consumer.term, 0)
            assert status.shards[0].reader.startswith("127.0.0.1:")
            with pytest.raises(StaleTermError, match="has term"):
                topics.acknowledge("hand", event.event_id, term=consumer.term + 1)
            with pytest.raises(BadRequestError, match="id"):
                topics.acknowledge("hand", "f" * 24, term=consumer.term)
            events.close()
        topics.delete_consumer("hand")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda topics: topics.get_consumer("a/b"), "name: give"),
        (lambda topics: topics.delete_consumer("."), "name: must not be"),
        (lambda topics: topics.create_consumer("a", "x y"), "is not a topic"),
        (lambda topics: topics.create_consumer("a", "t", types="video"), "types: give a list"),
        (lambda topics: topics.create_consumer("a", "t", parents=[""]), "parents: give a list"),
        (lambda topics: topics.create_consumer("a", "t", isolation="none"), "not an isolation"),
        (lambda topics: topics.create_consumer("a", "t", shards=0), "shards: give a whole"),
        (lambda topics: topics.create_consumer("a", "t", start=""), "give a position"),
        (lambda topics: topics.seek_consumer("a", "now", shard=-1), "shard: give a whole"),
        (lambda topics: topics.acknowledge("a", "", term=1), "id: give the id"),
        (lambda topics: topics.acknowledge("a", "1", term=0), "0 is not a term"),
    ],
)
def test_bad_arguments_are_not_sent(call: object, sentence: str) -> None:
    assert callable(call)
    with Topics("http://127.0.0.1:9") as topics, pytest.raises(ValueError, match=sentence):
        call(topics)


def reader(agent: Agent, name: str, dies_after: int) -> Following:
    command = [sys.executable, dying_reader.__file__, agent.url, name, "0", str(dies_after)]
    return Following(command)


def test_after_a_kill_the_next_reader_begins_with_the_event_that_was_not_handled(
    agent: Agent,
) -> None:
    with Topics(agent.url) as topics:
        topics.create("kill/t")
        made = topics.create_consumer("killed", "kill/t", start="copy")
        topics.publish("kill/t", *map(str, range(9))).result(DEADLINE)
        seen = []
        for _ in range(3):
            life = reader(agent, "killed", 3)
            seen.append(life.take(3))
            assert life.rest() == (-9, "")
        assert seen == [["0", "1", "2"], ["2", "3", "4"], ["4", "5", "6"]]
        assert topics.get_consumer("killed").shards[0].term == made.shards[0].term + 3


async def test_a_second_reader_takes_the_shard(agent: Agent) -> None:
    with Topics(agent.url) as topics:
        topics.create("taken/t")
        term = topics.create_consumer("taken", "taken/t").shards[0].term + 1
        topics.publish("taken/t", "a", "b", "c").result(DEADLINE)
        async with AsyncNamedConsumer(agent.url, "taken", backoff=FAST) as first:
            assert await take(first, 2) == ["a", "b"]
            waiting = asyncio.create_task(take(first, 9))
            async with AsyncNamedConsumer(agent.url, "taken", ack_seconds=0) as second:
                more = asyncio.create_task(take(second, 9))
                with pytest.raises(
                    StaleTermError,
                    match=rf"^another reader has taken shard 0 of .* taken \(term {term + 1}\)",
                ):
                    await waiting
                topics.publish("taken/t", "d").result(DEADLINE)
                more.cancel()
                await asyncio.wait({more})
            assert (first.term, second.term) == (term, term + 1)


async def test_a_reader_ends_when_the_consumer_is_moved_or_deleted(agent: Agent) -> None:
    with Topics(agent.url) as topics:
        topics.create_consumer("gone", "system/oplog", start="copy")
        for end, kind, sentence in (
            (lambda: topics.seek_consumer("gone", "now"), StaleTermError, "or it was moved"),
            (lambda: topics.delete_consumer("gone"), RefusedError, "gone"),
        ):
            async with AsyncNamedConsumer(agent.url, "gone", backoff=FAST) as consumer:
                waiting = asyncio.create_task(take(consumer, 1_000_000))
                async with asyncio.timeout(DEADLINE):
                    while not consumer.term:
                        await asyncio.sleep(0.001)
                await asyncio.to_thread(end)
                with pytest.raises(kind, match=sentence) as raised:
                    await waiting
            assert raised.value.status == (412 if kind is StaleTermError else 404)


async def test_nothing_comes_twice_or_is_lost_over_a_restart_of_the_agent(tmp_path: Path) -> None:
    port, count = free_port(), 300
    agent = agent_on(port, tmp_path)
    try:
        with Topics(agent.url, backoff=FAST) as topics:
            topics.create("t")
            status = topics.create_consumer("again", "t", shards=2)
            assert isinstance(status, ConsumerStatus)
            texts = [Message(str(number), key=str(number)) for number in range(count)]
            topics.publish("t", *texts[:150]).result(DEADLINE)
            got: list[str | None] = []
            readers = [
                AsyncNamedConsumer(agent.url, "again", shard=shard, backoff=FAST)
                for shard in range(2)
            ]

            async def read(consumer: AsyncNamedConsumer) -> None:
                async with consumer:
                    async for event in consumer:
                        got.append(shown(event))
                        if len(got) == count:
                            for each in readers:
                                each.stop()

            tasks = [asyncio.create_task(read(each)) for each in readers]
            async with asyncio.timeout(2 * DEADLINE):
                while len(got) < 150:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(agent.stop)
                agent = await asyncio.to_thread(agent_on, port, tmp_path)
                publishing = topics.publish("t", *texts[150:])
                await asyncio.wrap_future(publishing)
                await asyncio.gather(*tasks)
            assert sorted(got, key=str) == sorted(map(str, range(count)))
            shards = topics.get_consumer("again").shards
            assert [each.position for each in shards] == [each.position for each in readers]
            assert [each.term for each in shards] == [1, 1]
    finally:
        agent.kill()


def test_a_copy_of_the_objects_and_then_the_operations(agent: Agent) -> None:
    agent.post(inserts("c1", "c2", "c3", type_="copied"))
    with Topics(agent.url) as topics:
        topics.create_consumer("copy", "system/oplog", types=["copied"], start="copy")
        with NamedConsumer(agent.url, "copy", ack_seconds=0) as consumer:
            seen = []
            for event in consumer:
                seen.append(shown(event))
                if event.event == "live":
                    agent.post(inserts("c4", type_="copied"))
                if seen[-1] == "c4":
                    consumer.stop()
            assert seen == ["reset", "c1", "c2", "c3", "live", "c4"]
        agent.post(inserts("c5", type_="copied"))
        with NamedConsumer(agent.url, "copy") as consumer:
            for event in consumer:
                assert shown(event) == "c5"
                break


def test_after_an_exception_the_next_loop_begins_with_the_event_that_was_not_handled(
    agent: Agent, topics_of: TopicsOf
) -> None:
    with topics_of(agent.url) as topics:
        topics.create("again/t")
        topics.create_consumer("again", "again/t", start="copy")
        for future in [topics.publish("again/t", str(number)) for number in range(5)]:
            future.result(DEADLINE)
        seen = []
        with NamedConsumer(agent.url, "again") as consumer:
            for failing in ("1", "3", ""):
                for event in consumer:
                    if shown(event) == failing:
                        break
                    seen.append(shown(event))
                    if len(seen) == 5:
                        consumer.stop()
        assert seen == ["0", "1", "2", "3", "4"]
        topics.delete_consumer("again")
        topics.delete("again/t")

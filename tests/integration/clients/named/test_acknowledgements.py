"""Acknowledgements of a named consumer's reader: what is sent, and when."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from oplogc.topics import (
    AsyncNamedConsumer,
    NamedConsumer,
    NamedEvent,
    NotAllowed,
    RefusedError,
    StaleTermError,
)
from oplogc.topics.named import acknowledger
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.named_streams import ACKNOWLEDGED, HEAD, NamedStreams, stale
from tests.kits.clients.streams import FAST, IDS, operation
from tests.kits.clock.virtual import VirtualClock
from tests.kits.servers.scripted import answer

FOUR = b"".join(operation(str(number), number=number) for number in range(4))
TAKEN = r"^another reader has taken shard 3 of the consumer search \(term 8\)"


def checkpoint(number: int) -> bytes:
    return f"id: {IDS[number]}\n\n".encode()


def threads(server: NamedStreams, **options: Any) -> NamedConsumer:
    return NamedConsumer(server.url, "search", shard=3, backoff=FAST, **options)


def tasks(server: NamedStreams, **options: Any) -> AsyncNamedConsumer:
    return AsyncNamedConsumer(server.url, "search", shard=3, backoff=FAST, **options)


async def take(consumer: AsyncNamedConsumer, count: int) -> list[NamedEvent]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(count)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.001)


class Pauses(VirtualClock):
    """The pauses between acknowledgements."""

    async def asleep(self) -> None:
        """Wait until the acknowledger pauses."""
        await until(lambda: self._sleepers)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    clock = Pauses()
    monkeypatch.setattr(acknowledger, "sleep", clock.sleep)
    return clock


async def test_acknowledgements_are_coalesced(pauses: Pauses) -> None:
    eight = FOUR + b"".join(operation(str(number), number=number) for number in range(4, 8))
    with NamedStreams(eight) as server:
        async with tasks(server) as consumer:
            await take(consumer, 2)
            await pauses.asleep()
            assert server.acknowledged == [IDS[0]]
            await take(consumer, 4)
            pauses.move(0.9)
            await take(consumer, 1)
            pauses.move(0.2)
            await until(lambda: len(server.acknowledged) == 2)
            await pauses.asleep()
            assert server.acknowledged == [IDS[0], IDS[5]]
            await take(consumer, 1)
        assert server.acknowledged == [IDS[0], IDS[5], IDS[6]]
        posts = [each for each in server.requests if each.method == "POST"]
        assert [(each.json["shard"], each.json["term"]) for each in posts] == [(3, 7)] * 3


async def test_nothing_is_sent_while_nothing_new_is_handled(pauses: Pauses) -> None:
    with NamedStreams(FOUR) as server:
        async with tasks(server) as consumer:
            await take(consumer, 2)
            await pauses.asleep()
            pauses.move(5)
            await until(lambda: not pauses._sleepers)
        assert server.acknowledged == [IDS[0]]


def test_the_rest_is_acknowledged_after_stop() -> None:
    with NamedStreams(FOUR) as server, threads(server, ack_seconds=math.inf) as consumer:
        for event in consumer:
            if event.event_id == IDS[1]:
                server.wait_requests(2)
            if event.event_id == IDS[3]:
                consumer.stop()
        assert server.acknowledged == [IDS[0], IDS[3]]


def leave(server: NamedStreams, consumer: NamedConsumer, end: str) -> None:
    """Leave the loop in its third event. Raises LookupError at the end."""
    with consumer:
        events = iter(consumer)
        for event in events:
            if event.event_id == IDS[1]:
                server.wait_requests(2)
            if event.event_id == IDS[2]:
                if end == "raise":
                    raise LookupError
                if end == "close":
                    events.close()
                break
        raise LookupError


async def test_the_rest_is_acknowledged_at_the_end_of_an_async_for() -> None:
    with NamedStreams(FOUR) as server:
        async with tasks(server, ack_seconds=math.inf) as consumer:
            async for event in consumer:
                if event.event_id == IDS[1]:
                    await until(lambda: server.acknowledged)
                if event.event_id == IDS[3]:
                    consumer.stop()
            assert server.acknowledged == [IDS[0], IDS[3]]


@pytest.mark.parametrize("end", ["break", "raise", "close"])
def test_the_event_in_hand_is_not_acknowledged(end: str) -> None:
    with NamedStreams(FOUR) as server:
        consumer = threads(server, ack_seconds=math.inf)
        with pytest.raises(LookupError):
            leave(server, consumer, end)
        assert server.acknowledged == [IDS[0], IDS[1]]
        assert consumer.position == IDS[1]


async def test_the_event_in_hand_is_not_acknowledged_by_a_task() -> None:
    with NamedStreams(FOUR) as server:
        async with tasks(server, ack_seconds=math.inf) as consumer:
            async for event in consumer:
                if event.event_id == IDS[1]:
                    await until(lambda: server.acknowledged)
                if event.event_id == IDS[2]:
                    break
        assert server.acknowledged == [IDS[0], IDS[1]]


async def test_an_event_may_be_acknowledged_before_the_next_is_asked_for() -> None:
    with NamedStreams(FOUR) as server:
        async with tasks(server) as consumer:
            first, second = await take(consumer, 2)
            consumer.ack(first)
            consumer.ack(second)
        assert server.acknowledged[-1] == IDS[1]


def test_an_event_may_be_acknowledged_before_break() -> None:
    with NamedStreams(FOUR) as server, threads(server) as other:
        for event in other:
            other.ack(event)
            break
        assert server.acknowledged == [IDS[0]]


def test_each_event_is_confirmed_before_the_next_one_comes() -> None:
    with NamedStreams(FOUR) as server, threads(server, ack_seconds=0) as consumer:
        for number, event in enumerate(consumer):
            assert event.event_id == IDS[number]
            assert server.acknowledged == IDS[:number]
            if number == 3:
                consumer.stop()
        assert server.acknowledged == IDS[:4]


async def test_each_event_is_confirmed_before_a_task_gets_the_next_one() -> None:
    busy = answer("503 Busy")
    with NamedStreams(FOUR, acks=[busy, ACKNOWLEDGED, busy, busy, ACKNOWLEDGED]) as server:
        async with tasks(server, ack_seconds=0) as consumer:
            await take(consumer, 1)
            await take(consumer, 1)
            assert server.acknowledged == [IDS[0]] * 2
            await take(consumer, 1)
            assert server.acknowledged == [IDS[0]] * 2 + [IDS[1]] * 3


def test_stop_ends_the_wait_for_a_confirmation(caplog: pytest.LogCaptureFixture) -> None:
    with NamedStreams(FOUR, acks=[answer("503 Busy")]) as server:
        consumer = NamedConsumer(server.url, "search", shard=3, ack_seconds=0, timeout=0.2)
        with consumer:
            seen = []
            for event in consumer:
                seen.append(event.event_id)
                consumer.stop()
        assert seen == IDS[:1]
    assert caplog.text.count("it was not confirmed within 0.2 s: events may come again") == 1


async def test_checkpoints_are_acknowledged_behind_what_is_handled(pauses: Pauses) -> None:
    with NamedStreams(checkpoint(0) + operation("a", number=1) + checkpoint(2)) as server:
        async with tasks(server) as consumer:
            await take(consumer, 1)
            await pauses.asleep()
            assert server.acknowledged == [IDS[0]]
            waiting = asyncio.create_task(anext(consumer))  # the operation is handled
            await asyncio.sleep(0)
            pauses.move(1)
            await until(lambda: len(server.acknowledged) == 2)
            waiting.cancel()
            await asyncio.wait({waiting})
        assert server.acknowledged == [IDS[0], IDS[2]]


async def test_ids_of_a_copy_are_acknowledged_as_they_are() -> None:
    data = 'data: {"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"v","id":"x"}'
    copy = f"id: 1\nevent: reset\ndata:\n\nid: 1415271879041\nevent: insert\n{data}\n\n"
    live = f"id: {IDS[5]}\nevent: live\ndata:\n\n"
    with NamedStreams((copy + live).encode()) as server:
        async with tasks(server, ack_seconds=0) as consumer:
            events = await take(consumer, 3)
            assert [each.event for each in events if not hasattr(each, "raw")] == [
                "reset", "insert", "live",
            ]  # fmt: skip
            consumer.ack(events[-1])
        assert server.acknowledged == ["1", "1415271879041", IDS[5]]


async def test_an_acknowledgement_that_fails_is_sent_again_with_the_newest_id(
    pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    failing = [answer("503 Busy", '{"detail":"no store"}'), None, ACKNOWLEDGED]
    with NamedStreams(FOUR, acks=failing) as server:
        async with tasks(server) as consumer:
            await take(consumer, 2)
            await pauses.asleep()
            await take(consumer, 1)
            pauses.move(1)
            await until(lambda: len(server.acknowledged) == 2)
            await pauses.asleep()
            await take(consumer, 1)
            pauses.move(1)
            await until(lambda: len(server.acknowledged) == 3)
        assert server.acknowledged == IDS[:3]
    assert (
        "acknowledging shard 3 of the consumer search: no store (HTTP 503); trying" in caplog.text
    )


REFUSALS = [
    (stale(8), StaleTermError, TAKEN),
    (answer("404 Not Found", '{"detail":"no consumer search"}'), RefusedError, "no consumer"),
    (answer("401 Unauthorized"), NotAllowed, "give password"),
]


@pytest.mark.parametrize(("refused", "kind", "sentence"), REFUSALS)
async def test_a_task_whose_acknowledgement_is_refused_ends(
    refused: bytes, kind: type[RefusedError], sentence: str
) -> None:
    with NamedStreams(FOUR, acks=[refused]) as server:
        async with tasks(server) as consumer:
            await take(consumer, 2)
            with pytest.raises(kind, match=sentence):
                await take(consumer, 10)
            with pytest.raises(kind, match=sentence):
                await take(consumer, 1)
        assert len(server.acknowledged) == 1


@pytest.mark.parametrize(("refused", "kind", "sentence"), REFUSALS)
def test_a_thread_whose_acknowledgement_is_refused_ends(
    refused: bytes, kind: type[RefusedError], sentence: str
) -> None:
    with NamedStreams(FOUR, acks=[refused]) as server, threads(server) as consumer:
        with pytest.raises(kind, match=sentence):
            list(consumer)
        assert len(server.acknowledged) == 1


async def test_a_reconnect_names_the_term_after_the_last_acknowledgement() -> None:
    """A stream begins behind the acknowledged position, so handled events would come again."""
    acks = [ACKNOWLEDGED, answer("503 Busy"), answer("503 Busy"), ACKNOWLEDGED]
    with NamedStreams(FOUR, operation("5", number=5), acks=acks) as server:
        async with tasks(server, ack_seconds=math.inf) as consumer:
            await take(consumer, 2)
            await until(lambda: server.acknowledged)
            await take(consumer, 3)
            order = [each.json.get("id") or each.query for each in server.requests]
        assert order == [
            {"shard": ["3"]}, IDS[0], IDS[3], IDS[3], IDS[3], {"shard": ["3"], "term": ["7"]},
        ]  # fmt: skip
        assert not any("last-event-id" in each.headers for each in server.gets)


@pytest.mark.parametrize(
    ("refused", "kind", "sentence"),
    [*REFUSALS, (answer("403 Forbidden", '{"detail":"not yours"}'), NotAllowed, "not yours")],
)
def test_a_reader_whose_reconnect_is_refused_ends(
    refused: bytes, kind: type[RefusedError], sentence: str
) -> None:
    with NamedStreams(FOUR, refused) as server, threads(server) as consumer:
        seen: list[str] = []
        with pytest.raises(kind, match=sentence):
            seen.extend(event.event_id for event in consumer)
        assert seen == IDS[:4]
        assert server.acknowledged[-1] == IDS[3]


def test_a_stream_without_a_term_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    """An agent that is stopping answers so."""
    without = HEAD.replace(b"OPLOG-Term: 7\r\n", b""), HEAD.replace(b"Term: 7", b"Term: x")
    event = operation("a")
    with (
        NamedStreams(*(each + event for each in without), operation("b", number=1)) as server,
        threads(server) as consumer,
    ):
        events = iter(consumer)
        assert next(events).event_id == IDS[1]
        events.close()
        assert [each.query for each in server.gets] == [{"shard": ["3"]}] * 3
        assert server.acknowledged == []
    assert caplog.text.count("sends no term") == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "a b"}, "name: give 1 to 100"),
        ({"name": ".."}, "name: must not be"),
        ({"shard": 256}, "shard: give a whole number, 0 to 255"),
        ({"shard": "3/8"}, "shard: give a whole number, 0 to 255"),
        ({"ack_seconds": -1}, "ack_seconds: give seconds"),
        ({"ack_seconds": math.nan}, "ack_seconds: give seconds"),
        ({"timeout": 0}, "timeout"),
        ({"token": "t", "password": "p"}, "exclude each other"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, object], sentence: str) -> None:
    given: dict[str, object] = {"name": "search", **options}
    for kind in (NamedConsumer, AsyncNamedConsumer):
        with pytest.raises(ValueError, match=sentence):
            kind("http://127.0.0.1:9", **given)  # type: ignore[arg-type]


async def test_each_kind_refuses_the_use_of_the_other() -> None:
    of_threads, of_tasks = (
        kind("http://127.0.0.1:9", "search") for kind in (NamedConsumer, AsyncNamedConsumer)
    )
    with pytest.raises(TypeError, match="use AsyncNamedConsumer"):
        async with of_threads:
            pass
    with pytest.raises(TypeError, match="use AsyncNamedConsumer"):
        of_threads.__aiter__()
    with pytest.raises(RuntimeError, match="use AsyncNamedConsumer"):
        next(iter(of_threads))
    with pytest.raises(TypeError, match="use NamedConsumer"):
        iter(of_tasks)
    with pytest.raises(TypeError, match="use NamedConsumer"), of_tasks:
        pass


async def test_a_task_gets_the_event_at_which_it_left_a_loop_again() -> None:
    with NamedStreams(FOUR) as server:
        async with tasks(server) as consumer:
            seen = []
            for _ in range(2):
                async for event in consumer:
                    seen.append(event.event_id)
                    if len(seen) in {2, 4}:
                        break
        assert seen == [IDS[0], IDS[1], IDS[1], IDS[2]]

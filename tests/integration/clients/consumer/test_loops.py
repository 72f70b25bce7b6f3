"""A consumer with several event loops, several tasks, or no usable loop."""

import asyncio
import gc
import math
from pathlib import Path

import pytest

from oplogc import Consumer, Event, Operation, OplogError, Reset
from tests.integration.clients.copies import operations, take
from tests.kits.agents.agent import DEADLINE, Agent


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_consumer_goes_on_in_another_event_loop(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(3))
        consumer = Consumer(agent.url, start="0", heartbeat_timeout=DEADLINE)
        seen: list[Event] = []

        async def next_one(timeout: float = DEADLINE) -> None:
            seen.append(await asyncio.wait_for(anext(consumer), timeout))

        seen += asyncio.run(take(consumer, 5))
        with pytest.raises(TimeoutError):
            asyncio.run(next_one(0.05))  # its task is cancelled at the end of the loop
        loop = asyncio.new_event_loop()
        with pytest.raises(TimeoutError):
            loop.run_until_complete(next_one(0.05))
        loop.close()  # and this one's stays
        agent.post(operations(1, first=3))
        asyncio.run(next_one())
        with consumer:
            agent.post(operations(1, first=4))
            seen.append(next(iter(consumer)))
        assert [event.id if isinstance(event, Operation) else event.event for event in seen] == [
            "reset", "0", "1", "2", "live", "3", "4",
        ]  # fmt: skip
        gc.collect()  # the connections of the loops that have ended warn here


async def test_closing_a_consumer_ends_the_iteration_of_another_task(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        consumer = Consumer(agent.url, start="0", state_file=tmp_path / "state")
        assert await take(consumer, 2)

        async def rest() -> list[Event]:
            return [event async for event in consumer]

        waiting = asyncio.create_task(rest())
        await asyncio.sleep(0)  # the task runs until it waits
        await consumer.aclose()
        async with asyncio.timeout(DEADLINE):
            assert await waiting == []
        Consumer(agent.url, state_file=tmp_path / "state").close()  # the lock is free


async def test_a_second_task_that_iterates_is_told(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        async with Consumer(agent.url, start="0") as consumer:
            ends = await asyncio.gather(anext(consumer), anext(consumer), return_exceptions=True)
    assert isinstance(ends[0], Reset)
    assert "iterate from one task at a time" in str(ends[1])


async def test_blocking_use_in_an_event_loop_is_told() -> None:
    consumer = Consumer()
    with pytest.raises(RuntimeError, match="use async for"):
        next(iter(consumer))
    with pytest.raises(RuntimeError, match="use run_async"):
        consumer.run()


def test_an_environment_without_a_way_to_the_agent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("HTTP_PROXY", "socks5://u:geheim@127.0.0.1:1"),
        ("SSL_CERT_FILE", "/nowhere"),
    ):
        monkeypatch.setenv(name, value)
        with (
            Consumer() as consumer,
            pytest.raises(OplogError, match="HTTP cannot be set up") as raised,
        ):
            next(iter(consumer))
        assert "geheim" not in repr(raised.value)
        monkeypatch.delenv(name)


def test_an_endless_save_interval_saves_at_the_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        Agent(tmp_path) as agent,
        Consumer(agent.url, start="0", state_file=state, save_interval=math.inf) as consumer,
    ):
        for event in consumer:
            consumer.ack(event)
            if event.event == "live":
                consumer.stop()
    assert state.read_text() == consumer.position

"""A consumer with a state file: acknowledgements decide which events come again."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oplogc import (
    Consumer,
    Live,
    Reset,
)
from tests.integration.clients.copies import ids, operations, take
from tests.kits.agents.agent import DEADLINE, Agent


async def test_a_position_is_kept_before_the_first_event(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        agent.post(operations(1))
        consumer = Consumer(agent.url, state_file=state)
        agent.post(operations(1, first=1))
        waiting = asyncio.create_task(anext(consumer))
        while not consumer.position:  # the agent tells it when the stream opens
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait({waiting})
        await consumer.aclose()
        agent.post(operations(3, first=2))
        async with Consumer(agent.url, state_file=state) as consumer:
            assert ids(await take(consumer, 3)) == ["2", "3", "4"]


async def test_what_was_not_acknowledged_comes_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(agent.url, start="0", state_file=state) as consumer:
            events = await take(consumer, 12)
            for event in reversed(events[1:]):
                consumer.ack(event)
        assert state.read_text() == "0"  # reset was not acknowledged: it must come again
        async with Consumer(agent.url, state_file=state) as consumer:
            events = await take(consumer, 12)
            assert isinstance(events[0], Reset)
            for event in events[:5]:
                consumer.ack(event)
                consumer.ack(event)
            consumer.ack(events[11])
        assert state.read_text() == events[4].event_id
        async with Consumer(agent.url, state_file=state) as consumer:
            again = await take(consumer, 7)
            while not isinstance(again[-1], Live):
                again += await take(consumer, 1)
            assert set(ids(events[5:])) <= set(ids(again))
            for event in again:
                consumer.ack(event)
        assert state.read_text() == again[-1].event_id
        agent.post(operations(1, first=10))
        async with Consumer(agent.url, state_file=state, start="0") as consumer:
            assert ids(await take(consumer, 1)) == ["10"]


async def test_waiting_for_acknowledgements_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(
            agent.url, start="0", state_file=tmp_path / "state", max_unacked=3
        ) as consumer:
            events = await take(consumer, 3)
            for event in events:
                waiting = asyncio.create_task(anext(consumer))
                await asyncio.wait({waiting}, timeout=0.02)
                consumer.ack(event)
                events.append(await asyncio.wait_for(waiting, DEADLINE))
                if len(events) == 10:
                    break
            assert [record.getMessage() for record in caplog.records] == [
                "3 events are not acknowledged: waiting"
            ]
            for event in events:  # and again in the next episode
                consumer.ack(event)
            await take(consumer, 2)
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.wait({waiting}, timeout=0.02)
            consumer.stop()
            await asyncio.wait({waiting})
            assert isinstance(
                waiting.exception(), StopAsyncIteration | StopIteration | type(None) | RuntimeError
            )


async def test_iteration_waits_when_too_much_is_not_acknowledged(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(
            agent.url, start="0", state_file=tmp_path / "state", max_unacked=3
        ) as consumer:
            events = await take(consumer, 3)
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.wait({waiting}, timeout=0.05)
            assert not waiting.done()
            thread = threading.Thread(target=consumer.ack, args=(events[1],))
            thread.start()
            events.append(await asyncio.wait_for(waiting, DEADLINE))
            thread.join()
            assert ids(events) == ["0", "1", "2"]


def test_ctrl_c_ends_a_blocking_loop_and_saves_the_position(tmp_path: Path) -> None:
    state = tmp_path / "state"
    # Python's own runner leaves a warning if the signal comes while it begins to wait.
    code = f"""
from oplogc import Consumer
class Telling(Consumer):
    async def _wait_until_done(self, *args):
        print("waiting", flush=True)
        await super()._wait_until_done(*args)
try:
    with Telling(sys.argv[1], start="0", state_file={str(state)!r}, save_interval=60) as consumer:
        for event in consumer:
            consumer.ack(event)
            print(event.event, flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    with Agent(tmp_path) as agent:
        agent.post(operations(1))
        command = [sys.executable, "-W", "error", "-c", f"import sys\n{code}", agent.url]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            told: list[str] = []
            while told[-2:] != ["live\n", "waiting\n"]:
                told.append(process.stdout.readline())
                assert told[-1], told
            assert [each for each in told if each != "waiting\n"] == [
                "reset\n",
                "insert\n",
                "live\n",
            ]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE)
        assert (out, err, process.returncode) == ("interrupted\n", "", 0)
        with agent.follow(state.read_text()) as stream:
            agent.post(operations(1, first=1))
            assert stream.take(1)[0].key == "video/1"

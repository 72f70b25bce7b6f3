"""Consumers see everything, although connections are cut and processes killed."""

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path

from oplogc import Consumer, Operation, Producer
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.processes import forked
from tests.kits.proxies.chaos import ChaosProxy

FAST = (0.005, 0.02)


async def test_20_000_operations_with_random_disconnects_come_once_and_in_order(
    tmp_path: Path,
) -> None:
    count = 20_000
    with (
        Agent(tmp_path) as agent,
        ChaosProxy(agent.port, seed=7, most_bytes=150_000) as proxy,
        agent.follow() as whole,
    ):
        produced = threading.Thread(target=_produce, args=(agent.url, count))
        async with Consumer(proxy.url, backoff=FAST, state_file=tmp_path / "state") as consumer:
            got: list[tuple[str, str]] = []
            async with asyncio.timeout(2 * DEADLINE):
                waiting = asyncio.create_task(anext(consumer))
                while not consumer.position:
                    await asyncio.sleep(0.001)
                produced.start()
                event = await waiting
                while True:
                    assert isinstance(event, Operation)
                    got.append((event.event_id, event.key))
                    consumer.ack(event)
                    if len(got) == count:
                        break
                    event = await anext(consumer)
        produced.join()
        wanted = [(event.id, event.key) for event in await asyncio.to_thread(whole.take, count)]
        assert got == wanted
        assert {key for _, key in got} == {f"video/{number}" for number in range(count)}
        assert proxy.cuts >= 10
        assert (tmp_path / "state").read_text() == got[-1][0]


def _produce(url: str, count: int) -> None:
    with Producer(url, batch_size=100) as producer:
        for number in range(count):
            producer.send("insert", "video", str(number))


def test_a_consumer_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Kill a consumer in the copy and in the log. Its state file stays readable."""
    choose = random.Random(3)
    state = tmp_path / "state"
    done: set[str] = set()
    with Agent(tmp_path) as agent:
        _post(agent, "copy")
        lives = in_log = 0
        ended = False
        while not ended:
            was_live = "live" in done
            lives += 1
            ended = _live(agent, state, lives, choose.randrange(400, 1000), done)
            in_log += was_live
            assert lives < 40, "the position does not move"
    assert lives - in_log > 2, "no kill in the copy"
    assert in_log > 2, "no kill in the log"
    wanted = {f"{type_}/{number}" for type_ in ("copy", "log") for number in range(3000)} | {
        "reset",
        "live",
    }
    assert wanted <= done


def _live(agent: Agent, state: Path, seed: int, dies_after: int, done: set[str]) -> bool:
    """Run a consumer until it kills itself after ``dies_after`` events. Add its lines to ``done``.

    Return whether it came to its end before.
    """
    command = [
        sys.executable,
        "-m",
        "tests.integration.clients.crashing_consumer",
        agent.url,
        str(state),
        str(seed),
        str(dies_after),
    ]
    with forked.start(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        for line in process.stdout:
            if line == "at live\n":
                if "at live" not in done:
                    _post(agent, "log")
                agent.post({"event": "insert", "type": "last", "id": "1"})
            done.add(line.strip())
        watchdog.cancel()
    assert process.returncode in (0, -9)
    return process.returncode == 0


def _post(agent: Agent, type_: str) -> None:
    """Post 3,000 objects. The objects of a request share a time, at which a copy can resume."""
    for first in range(0, 3000, 100):
        agent.post(
            [
                {"event": "insert", "type": type_, "id": str(number)}
                for number in range(first, first + 100)
            ]
        )

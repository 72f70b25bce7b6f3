"""Compare the CPU time that the agents of two checkouts take for the same work, in turns.

The other checkout is the state before a change, such as a git worktree. Prints for each kind of
work the microseconds of the agent's CPU time for an operation, message or event, and the ratio to
the other checkout: below 1, this one takes less.

    python -m tests.bench.bench_change OTHER [--turns 5] [--only "publish 1"]
"""

import asyncio
import functools
import os
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import uvloop

from tests.bench import kit, topic_load
from tests.bench.senders import bursts, datagrams
from tests.kits.agents.agent import NewAgent

CONNECTIONS = 10
# Of one kind of work, beside those that warm the agent up.
SINGLE = 4_000
BATCHES, BATCH = 100, 500
DATAGRAMS, RATE = 60_000, 15_000
CONSUMERS, EVENTS = 200, 2_000
DEADLINE = 60.0

Work = Callable[[NewAgent, int], Coroutine[Any, Any, int]]


def requests(make: Callable[[int, int], bytes], count: int, size: int) -> Work:
    """Return work: ``count`` requests for ``size`` operations or messages each."""

    async def work(agent: NewAgent, parts: int) -> int:
        numbers = iter(range(count // parts))

        def prepared() -> Iterator[bytes]:
            for number in numbers:
                yield make(number % 10, size)

        def answered(_: float, __: bytes) -> None: ...

        callers = [
            topic_load.Caller(prepared(), topic_load.http_answer, answered)
            for _ in range(CONNECTIONS)
        ]
        await topic_load.run_callers(agent.port, callers)
        return count // parts * size

    return work


def polls(count: int, size: int) -> Work:
    """Return work: ``count`` polls of ``size`` messages each, which are published first."""

    async def work(agent: NewAgent, parts: int) -> int:
        await requests(topic_load.topic_request, 10, size)(agent, 1)
        return await requests(topic_load.poll_request, count, size)(agent, parts)

    return work


async def udp(agent: NewAgent, parts: int) -> int:
    count = DATAGRAMS // parts
    before = agent.status()["events_ingested"]
    load = datagrams(count, 5_000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((topic_load.HOST, agent.udp_port))
        for begin, end in bursts(count, RATE):
            for raw in load[begin:end]:
                sock.send(raw)
    deadline = time.monotonic() + DEADLINE
    while agent.status()["events_ingested"] - before < count:
        if time.monotonic() > deadline:
            raise SystemExit("datagrams were lost: the machine is too busy for this comparison")
        await asyncio.sleep(0.01)
    return count


async def fan_out(agent: NewAgent, parts: int) -> int:
    count = EVENTS // parts
    wanted, got = CONSUMERS * count, 0
    done = asyncio.Event()

    def read(data: bytes) -> None:
        nonlocal got
        got += data.count(b"event: update")
        if got >= wanted:
            done.set()

    streams = await topic_load.open_streams(agent.port, ["/ops"] * CONSUMERS, read)
    sender = await kit.send_stamped(agent.udp_port, 1_000, count)
    await asyncio.wait_for(done.wait(), DEADLINE)
    await sender.wait()
    for stream in streams:
        stream.transport.close()
    return wanted


WORK: dict[str, Work] = {
    "POST 1": requests(topic_load.oplog_request, SINGLE, 1),
    f"POST {BATCH}": requests(topic_load.oplog_request, BATCHES, BATCH),
    "publish 1": requests(topic_load.topic_request, SINGLE, 1),
    f"publish {BATCH}": requests(topic_load.topic_request, BATCHES, BATCH),
    "poll 1": polls(SINGLE, 1),
    f"poll {BATCH}": polls(10 * BATCHES, BATCH),
    "UDP": udp,
    "fan-out": fan_out,
}


def measure(tree: Path, work: Work) -> float:
    """Return microseconds of the agent's CPU time for each operation, message or event."""
    environ = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'clients/python'}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        NewAgent(Path(folder), environ=environ, cwd=tree) as agent,
    ):
        for topic in range(10):
            assert agent.request("PUT", topic_load.topic_path(topic)).status in (200, 201)
        uvloop.run(work(agent, 8))
        before = kit.cpu_seconds(agent.process.pid)
        count = uvloop.run(work(agent, 1))
        return (kit.cpu_seconds(agent.process.pid) - before) / count * 1e6


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", choices=WORK, action="append", help="may be repeated")
    args = parser.parse_args()
    trees = {"other": args.other.resolve(), "this": kit.ROOT}
    figures = []
    for name in args.only or WORK:
        kinds = {tree: functools.partial(measure, path, WORK[name]) for tree, path in trees.items()}
        found = kit.in_turn(kinds, args.turns, f"{name}, ")
        figures.append(kit.compared(name, "µs of CPU", "this", found, float))
    kit.finish("CPU time of the agent for an operation, message or event", figures, args)


if __name__ == "__main__":
    main()

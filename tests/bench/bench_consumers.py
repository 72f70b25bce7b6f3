"""Compare the cost of an idle consumer with that of an idle stream of a bare uvicorn application.

Consumers connect and wait while nothing is sent. Their cost is the growth of the server's private
memory from half of them to all, and the server's CPU time to begin their streams, divided by their
number: memory of the first ones includes pools and caches that all share. The bare application
sends its headers and waits until the client goes. A connection of uvloop without HTTP is the floor.

    python -m tests.bench.bench_consumers [--consumers 4000]
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from oplogd.server import raise_file_limit
from tests.bench import kit
from tests.bench.bare_streams import KINDS
from tests.kits.agents.agent import NewAgent

_SETTLE_SECONDS = 2.0
_AT_ONCE = 100

# The path of consumer ``number``.
_Path = Callable[[int], str]

CASES: dict[str, _Path] = {
    "/ops": lambda _: "/ops",
    "/ops with one filter for all": lambda _: "/ops?types=video&parents=user/x3kd2",
    "/ops with a filter each": lambda number: f"/ops?types=own{number}",
    "a topic": lambda _: "/v1/namespaces/bench/topics/idle/stream",
}

BARE = {"uvicorn": "bare uvicorn stream", "uvloop": "uvloop connection without HTTP"}


class Cost(NamedTuple):
    """Of one consumer. ``start_us``: CPU time of the server to begin the stream."""

    kib: float
    start_us: float


class IdleReader(asyncio.Protocol):
    """``opened``: set when the head of the stream has come."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.opened = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(  # uvloop's has another base
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench/1.0\r\n"
            "Accept: text/event-stream\r\nCache-Control: no-cache\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            assert b" 200 " in data[:20], data
            self.opened.set_result(None)


async def cost_of(port: int, pid: int, path: _Path, consumers: int) -> Cost:
    """Connect consumers and return the cost of each."""
    loop = asyncio.get_running_loop()
    readers: list[asyncio.BaseTransport] = []

    async def connect(number: int) -> asyncio.BaseTransport:
        transport, reader = await loop.create_connection(
            lambda: IdleReader(path(number)), "127.0.0.1", port
        )
        await reader.opened
        return transport

    async def connected(count: int) -> None:
        while len(readers) < count:
            numbers = range(len(readers), min(len(readers) + _AT_ONCE, count))
            readers.extend(await asyncio.gather(*map(connect, numbers)))

    async def settled() -> float:
        await asyncio.sleep(_SETTLE_SECONDS)
        return kit.private_mib(pid)

    await connected(consumers // 2)
    half, cpu = await settled(), kit.cpu_seconds(pid)
    await connected(consumers)
    cpu = kit.cpu_seconds(pid) - cpu
    grown = await settled() - half
    for transport in readers:
        cast(asyncio.Transport, transport).abort()
    more = consumers - consumers // 2
    return Cost(grown * 1024 / more, cpu * 1e6 / more)


@contextmanager
def agent() -> Iterator[tuple[int, int]]:
    """Run an agent with an empty topic. Yield its port and process id."""
    with (
        tempfile.TemporaryDirectory() as folder,
        NewAgent(Path(folder), "--max-clients", "100000") as running,
    ):
        assert running.request("PUT", "/v1/namespaces/bench/topics/idle").status < 300
        yield running.port, running.process.pid


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--consumers", type=int, default=4_000)
    args: argparse.Namespace = parser.parse_args()
    raise_file_limit()
    memory: dict[str, list[float]] = {}
    starts: dict[str, list[float]] = {}
    for kind in KINDS:
        with kit.serving("bare_streams", kind) as (port, pid):
            cost = uvloop.run(cost_of(port, pid, CASES["/ops"], args.consumers))
        memory[BARE[kind]], starts[BARE[kind]] = [cost.kib], [cost.start_us]
        show(BARE[kind], cost)
    figures = []
    for name, path in CASES.items():
        with agent() as (port, pid):
            cost = uvloop.run(cost_of(port, pid, path, args.consumers))
        show(name, cost)
        title = f"a consumer of {name}"
        figures.append(kit.Figure(title, "KiB", [cost.kib], memory))
        start = f"{title}, its start: server"
        figures.append(kit.Figure(start, "µs of CPU", [cost.start_us], starts))
    kit.finish("Private memory of an idle consumer, and the start of its stream", figures, args)


def show(name: str, cost: Cost) -> None:
    print(f"  {name}: {cost.kib:.1f} KiB, a start {cost.start_us:.0f} µs of CPU", flush=True)


if __name__ == "__main__":
    main()

"""Measure consumers with filters of their own: CPU per operation, delay of the event loop, memory.

There are two cases, each with an agent of its own. ``disjoint``: each consumer lists one type of
its own, so an operation passes one filter. ``matching``: each consumer also lists the type that is
sent, so all filters differ and an operation passes all. Another process requests /live all the
time: the longest answer and the 99th percentile show how long the event loop was blocked.
"""

import asyncio
import http.client
import json
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from oplogd.model.event_id import Mark
from oplogd.server import raise_file_limit
from oplogd.store import Entry, Store
from oplogd.stream.follower import advance
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from tests.bench import kit
from tests.kits.agents.agent import Agent

_SETTLE_SECONDS = 2.0
_BATCH = 2_000


class FilterCost(NamedTuple):
    """CPU time per operation and the longest answer of /live, and the memory of a consumer."""

    cpu_ms: float
    longest_ms: float
    consumer_kib: float


class FilterReader(asyncio.Protocol):
    """Counts the events of one stream."""

    events = 0

    def __init__(self, case: "FilterCase", types: str) -> None:
        self.case = case
        self.types = types
        self.is_open = False
        self.last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.transport.write(
            f"GET /ops?types={self.types} HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            self.is_open = True
            self.case.opened.release()
        count = (self.last + data).count(b"\n\n")
        self.last = data[-1:]
        self.events += count
        self.case.got += count


class FilterCase:
    """One agent with a consumer for each filter."""

    def __init__(self, agent: Agent, filters: int, matching: bool) -> None:
        self.agent = agent
        self.filters = filters
        self.matching = matching
        self.opened = asyncio.Semaphore(0)
        self.got = 0

    async def run(self, operations: int) -> FilterCost:
        """Print the figures. Return those of a batch."""
        pid = self.agent.process.pid
        resident = kit.resident_mib(pid)
        begun = time.monotonic()
        readers = await self.connect()
        connected = kit.resident_mib(pid)
        print(
            f"  {self.filters:,} connected in {time.monotonic() - begun:.1f} s,"
            f" {(connected - resident) / self.filters * 1024:.1f} KiB each",
            flush=True,
        )
        await asyncio.sleep(_SETTLE_SECONDS)
        single = min(operations, 20 if self.matching else operations)
        await self.send("one by one", [[n] for n in range(single)])
        batch = max(1, operations // 2) if self.matching else operations
        cpu, longest = await self.send("one batch", [list(range(batch))])
        print(
            f"  resident {resident:.0f} MiB before, {connected:.0f} connected,"
            f" {kit.resident_mib(pid):.0f} after"
        )
        async with Watch(self.agent) as watch:
            before = kit.cpu_seconds(pid)
            begun = time.monotonic()
            for reader in random.sample(readers, len(readers)):
                reader.transport.abort()
            await asyncio.to_thread(self.agent.wait_status, clients=0)
            took = time.monotonic() - begun
        print(
            f"  all left after {took:.2f} s, {kit.cpu_seconds(pid) - before:.2f} s CPU, {watch}",
            flush=True,
        )
        return FilterCost(cpu * 1000, longest * 1000, (connected - resident) / self.filters * 1024)

    async def connect(self) -> list[FilterReader]:
        loop = asyncio.get_running_loop()
        readers: list[FilterReader] = []
        for first in range(0, self.filters, 100):
            some = [
                loop.create_connection(
                    partial(FilterReader, self, self.types(n)), "127.0.0.1", self.agent.port
                )
                for n in range(first, min(first + 100, self.filters))
            ]
            readers += [reader for _, reader in await asyncio.gather(*some)]
            for _ in some:
                await self.opened.acquire()
        return readers

    def types(self, number: int) -> str:
        return f"own{number},sent" if self.matching else f"own{number}"

    async def send(self, name: str, batches: list[list[int]]) -> tuple[float, float]:
        """Post operations and wait for all events.

        Return the CPU seconds per operation, and those of the longest answer of /live.
        """
        pid = self.agent.process.pid
        operations = sum(map(len, batches))
        wanted = self.got + operations * (self.filters if self.matching else 1)
        async with Watch(self.agent) as watch:
            cpu = kit.cpu_seconds(pid)
            begun = time.monotonic()
            for batch in batches:
                body = [self.operation(number) for number in batch]
                assert await asyncio.to_thread(self.agent.post, body) == 200
            while self.got < wanted:
                assert time.monotonic() - begun < 300, f"{wanted - self.got:,} events are missing"
                await asyncio.sleep(0.001)
            took = time.monotonic() - begun
            cpu = kit.cpu_seconds(pid) - cpu
        print(
            f"  {operations:,} operations, {name}: {took:.2f} s,"
            f" server CPU {cpu / operations * 1e6:,.0f} µs per operation, {watch}",
            flush=True,
        )
        return cpu / operations, watch.longest

    def operation(self, number: int) -> dict[str, object]:
        type_ = "sent" if self.matching else f"own{number % self.filters}"
        return {
            "event": "update",
            "type": type_,
            "id": f"x{number}",
            "parents": [f"user/{number % 997}"],
        }


class Watch:
    """Requests /live from a process of its own until the block ends."""

    def __init__(self, agent: Agent) -> None:
        self._command = kit.command("filters", "watch", agent.port)

    async def __aenter__(self) -> "Watch":
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=kit.ROOT
        )
        assert self._process.stdout is not None
        await self._process.stdout.readline()
        return self

    async def __aexit__(self, *_: object) -> None:
        answer, _errors = await self._process.communicate(b"\n")
        self.longest, self.p99 = json.loads(answer)

    def __str__(self) -> str:
        return (
            f"/live answered in {self.longest * 1000:.0f} ms at most, p99 {self.p99 * 1000:.0f} ms"
        )


def watch(port: int) -> None:
    """Request /live until a line comes in. Print the longest answer and the 99th percentile."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    times: list[float] = []
    while not times or not select.select([sys.stdin], [], [], 0.002)[0]:
        begun = time.perf_counter()
        connection.request("GET", "/live")
        connection.getresponse().read()
        if not times:
            print("ready", flush=True)
        times.append(time.perf_counter() - begun)
    times.sort()
    print(json.dumps([times[-1], times[int(len(times) * 0.99)]]))


class BatchStore:
    """A store that gives the follower long batches."""

    def __init__(self, matching: bool, filters: int) -> None:
        types = ["sent"] if matching else [f"own{number}" for number in range(filters)]
        text = (
            '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["user/%d"],"type":"%s","id":"x%d"}'
        )
        self.entries = [
            Entry(n, 1000 + n, "update", text % (n % 997, types[n % len(types)], n))
            for n in range(1, 2 * _BATCH + 1)
        ]

    async def follow(
        self, after: int, _limit: int, _seconds: float, _at_ms: int | None = None
    ) -> list[Entry]:
        return self.entries[after : after + _BATCH]


class IdleConsumer:
    def wake(self) -> None:
        pass


async def append(filters: int, matching: bool) -> None:
    """Print the cost of the follower's batches in the ring alone, without consumers."""
    ring = Ring(Framer().route, 65_536, 64 << 20, Waker().wake)
    ring.restart(Mark(0, 0))
    store = cast(Store, BatchStore(matching, filters))
    resident = kit.own_resident_mib()
    views = [
        ring.view(Filter(frozenset({f"own{n}", "sent"} if matching else {f"own{n}"})))
        for n in range(filters)
    ]
    for view in views:
        view.waiting[IdleConsumer()] = None
    joined = kit.own_resident_mib()
    gaps: list[float] = []

    async def look() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            gaps.append(time.perf_counter() - last)
            last = time.perf_counter()

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    begun = time.perf_counter()
    for _ in range(2):
        await advance(store, ring, 0)
        await asyncio.sleep(0)
    took = time.perf_counter() - begun
    looking.cancel()
    grown = kit.own_resident_mib() - joined
    random.shuffle(views)
    begun = time.perf_counter()
    for view in views:
        ring.release(view)
    left = time.perf_counter() - begun
    print(
        f"  the ring alone: {took / 2 / _BATCH * 1e6:.1f} µs per operation,"
        f" the loop blocked for {max(gaps) * 1000:.0f} ms at most;"
        f" a view {(joined - resident) / filters * 1024:.1f} KiB,"
        f" {2 * _BATCH:,} operations {grown:.1f} MiB;"
        f" leaving {left / filters * 1e6:.1f} µs",
        flush=True,
    )


def measure(filters: int, operations: int) -> list[kit.Figure]:
    """Run both cases."""
    raise_file_limit()
    found: dict[str, list[FilterCost]] = {}
    for matching in (False, True):
        print(
            f"{filters:,} consumers, {'matching' if matching else 'disjoint'} filters:", flush=True
        )
        subprocess.run(
            kit.command("filters", "append", filters, int(matching)), check=True, cwd=kit.ROOT
        )
        with (
            tempfile.TemporaryDirectory() as folder,
            Agent(Path(folder), "--max-clients", "100000") as agent,
        ):
            cost = uvloop.run(FilterCase(agent, filters, matching).run(operations))
            found["all match" if matching else "one matches"] = [cost]

    def figure(name: str, unit: str, value: Callable[[FilterCost], float]) -> kit.Figure:
        return kit.compared(name, unit, "all match", found, value)

    return [
        figure("operation of a batch that all filters match", "ms of CPU", lambda c: c.cpu_ms),
        figure("longest answer of /live beside it", "ms", lambda c: c.longest_ms),
        figure("memory of a consumer", "KiB", lambda c: c.consumer_kib),
    ]


if __name__ == "__main__":
    part, *numbers = sys.argv[1:]
    if part == "watch":
        watch(int(numbers[0]))
    else:
        uvloop.run(append(int(numbers[0]), bool(int(numbers[1]))))

"""Compare the fan-out of an agent with a bare uvloop server that only writes.

Many consumers follow while operations come by UDP; every consumer must get every operation. The
bare server writes the same bytes to as many sockets: it is the limit of the machine for a Python
process. Prints for both the events per second, the latency from the producer's send to the
consumer's read (all events of one read count as old as the oldest), the lost events and the
server's CPU time, and the ratio of the CPU times.

    python -m tests.bench.bench_fanout [--consumers 1000] [--rate 1000] [--seconds 10]
    python -m tests.bench.bench_fanout --filters 10000 [--operations 200]

With ``--filters`` every consumer has a filter of its own: see ``filters.py``.
"""

import argparse
import asyncio
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from oplogd.server import raise_file_limit
from tests.bench import filters, kit
from tests.kits.agents.agent import Agent

REQUEST = b"GET /ops HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class FanoutResult(NamedTuple):
    """``lost``: events that did not arrive. ``different``: streams with other bytes."""

    events_per_second: float
    p50_ms: float
    p99_ms: float
    lost: int
    different: int
    server_cpu_seconds: float


class FanoutReader(asyncio.Protocol):
    """Counts events and records their age. ``crc`` is the checksum of all bytes."""

    def __init__(self, bench: "FanoutRun", request: bytes) -> None:
        self.bench = bench
        self.request = request
        self.events = 0
        self.crc = 0
        self.open = False
        self.head = b""
        self.last = b""
        self.chunked = False
        self.partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.open:
            self.head += data
            _, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            self.open = True
            self.bench.opened()
            self.chunked = b"\r\ntransfer-encoding: chunked" in self.head
        if self.chunked:
            data = self.unchunk(data)
        count = (self.last + data).count(b"\n\n")
        self.last = data[-1:]
        self.crc = zlib.crc32(data, self.crc)
        if count:
            self.events += count
            if (age := kit.age_ms(data)) is not None:
                self.bench.ages.append((age, count))
            self.bench.got(count)

    def unchunk(self, data: bytes) -> bytes:
        """Return the contents of complete chunks. Keeps an incomplete chunk for the next call."""
        data = self.partial + data
        parts = []
        at = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            end = line_end + 2 + int(data[at:line_end], 16)
            if len(data) < end + 2:
                break
            parts.append(data[line_end + 2 : end])
            at = end + 2
        self.partial = data[at:]
        return b"".join(parts)


class FanoutRun:
    """Counts the events of all readers. ``ages``: milliseconds, and the number of events."""

    def __init__(self, consumers: int, operations: int) -> None:
        self.consumers = consumers
        self.missing = consumers * operations
        self.waiting = consumers
        self.ages: list[tuple[float, int]] = []
        self.all_open = asyncio.Event()
        self.all_got = asyncio.Event()

    def opened(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.all_open.set()

    def got(self, events: int) -> None:
        self.missing -= events
        if self.missing <= 0:
            self.all_got.set()


async def measure(
    http_port: int,
    udp_port: int,
    pid: int,
    args: argparse.Namespace,
    request: Callable[[int], bytes] = lambda number: REQUEST,
) -> FanoutResult:
    """``request``: that of a consumer, by its number."""
    operations = int(args.rate * args.seconds)
    bench = FanoutRun(args.consumers, operations)
    loop = asyncio.get_running_loop()
    readers: list[FanoutReader] = []
    for begin in range(0, args.consumers, 100):
        made = [
            loop.create_connection(
                partial(FanoutReader, bench, request(number)), "127.0.0.1", http_port
            )
            for number in range(begin, min(begin + 100, args.consumers))
        ]
        readers += [reader for _, reader in await asyncio.gather(*made)]
    await asyncio.wait_for(bench.all_open.wait(), 60)
    cpu = kit.cpu_seconds(pid)
    started = time.monotonic()
    sender = await kit.send_stamped(udp_port, args.rate, operations)
    with suppress(TimeoutError):
        await asyncio.wait_for(bench.all_got.wait(), args.seconds * 3 + 10)
    took = time.monotonic() - started
    await sender.wait()
    ages = sorted(bench.ages)
    total = sum(count for _, count in ages)
    return FanoutResult(
        events_per_second=sum(reader.events for reader in readers) / took,
        p50_ms=percentile(ages, total * 0.50),
        p99_ms=percentile(ages, total * 0.99),
        lost=max(0, bench.missing),
        different=len({reader.crc for reader in readers}) - 1,
        server_cpu_seconds=kit.cpu_seconds(pid) - cpu,
    )


def percentile(ages: list[tuple[float, int]], rank: float) -> float:
    """Return the age of the event at a rank. ``ages``: sorted."""
    passed = 0
    for age, count in ages:
        passed += count
        if passed >= rank:
            return age
    return float("nan")


async def bare_server() -> None:
    """Write an event for each datagram to every connection. Prints its HTTP and UDP ports."""
    loop = asyncio.get_running_loop()
    connections: list[asyncio.Transport] = []
    offset = 0

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport = cast(asyncio.Transport, transport)  # uvloop's has another base
            transport.set_write_buffer_limits(high=1 << 30)
            transport.write(b"HTTP/1.0 200 OK\r\n\r\n")
            connections.append(transport)

    def drain() -> None:
        nonlocal offset
        frames = []
        try:
            while True:
                id_ = udp.recv(65536).split(b'"id":"')[1].split(b'"')[0]
                offset += 1
                data = (
                    b'{"timestamp":"2026-01-01T00:00:00.000Z","parents":[],'
                    b'"type":"video","id":"%s"}' % id_
                )
                frames.append(b"id: %024x\nevent: update\ndata: %s\n\n" % (offset, data))
        except BlockingIOError:
            pass
        joined = b"".join(frames)
        for connection in connections:
            connection.write(joined)

    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.setblocking(False)
    loop.add_reader(udp, drain)
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], udp.getsockname()[1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def bare_process() -> Iterator[tuple[int, int, int]]:
    command = kit.command("bench_fanout", "--bare-server")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=kit.ROOT) as process:
        assert process.stdout is not None
        http_port, udp_port = map(int, process.stdout.readline().split())
        try:
            yield http_port, udp_port, process.pid
        finally:
            process.kill()


def show(name: str, result: FanoutResult) -> None:
    print(
        f"  {name:<12} {result.events_per_second:>11,.0f} events/s,"
        f" p50 {result.p50_ms:.0f} ms, p99 {result.p99_ms:.0f} ms,"
        f" lost {result.lost:,}, different streams {result.different},"
        f" server CPU {result.server_cpu_seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=1_000, help="operations per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--filters", type=int, help="number of consumers with a filter of their own"
    )
    parser.add_argument(
        "--operations", type=int, default=200, help="number of operations with --filters"
    )
    parser.add_argument("--bare-server", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    raise_file_limit()
    if args.bare_server:
        uvloop.run(bare_server())
        return
    if args.filters:
        figures = filters.measure(args.filters, args.operations)
        kit.finish(f"{args.filters:,} consumers with a filter each", figures, args)
        return
    with tempfile.TemporaryDirectory() as folder, Agent(Path(folder)) as agent:
        ours = uvloop.run(measure(agent.port, agent.udp_port, agent.process.pid, args))
    show("agent", ours)
    with bare_process() as (http_port, udp_port, pid):
        bare = uvloop.run(measure(http_port, udp_port, pid, args))
    show("bare server", bare)
    found = {"agent": [ours], "bare server that only writes": [bare]}
    figures = [
        kit.compared("events", "events/s", "agent", found, lambda each: each.events_per_second),
        kit.compared("latency p50", "ms", "agent", found, lambda each: each.p50_ms),
        kit.compared("latency p99", "ms", "agent", found, lambda each: each.p99_ms),
        kit.compared("lost events", "events", "agent", found, lambda each: each.lost),
        kit.compared("server", "CPU s", "agent", found, lambda each: each.server_cpu_seconds),
    ]
    heading = f"Fan-out to {args.consumers:,} consumers at {args.rate:,} operations/s"
    kit.finish(heading, figures, args)


if __name__ == "__main__":
    main()

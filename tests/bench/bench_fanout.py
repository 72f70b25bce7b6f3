"""Fan-out: 1,000 consumers follow while 1,000 operations a second come by UDP; every consumer must get every one.

Prints events a second, latency from the producer's send to the consumer's read (p50, p99; all events of one read count as
old as its oldest), what was lost, and the server's CPU. Beside it, in the same run: a bare uvloop server that writes the
same bytes to as many sockets and does nothing else, the machine's own limit for a Python process.

    python tests/bench/bench_fanout.py [--consumers 1000] [--rate 1000] [--seconds 10]
    python tests/bench/bench_fanout.py --filters 10000 [--operations 200]

With ``--filters`` every consumer has a filter of its own, see ``filters.py``.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from oplogd.server import raise_file_limit
from tests.agents import Agent
from tests.bench import filters

HERE = Path(__file__).parent
_REQUEST = b"GET /ops HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class Result(NamedTuple):
    events_per_second: float
    p50_ms: float
    p99_ms: float
    lost: int
    different: int
    server_cpu_seconds: float


class Reader(asyncio.Protocol):
    """Counts events and remembers how old they were; checks that all readers got the same bytes."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.events = 0
        self.crc = 0
        self.open = False
        self.head = b""
        self.last = b""
        self.chunked = False
        self.partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(_REQUEST)

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
            at = data.find(b'"id":"')
            if at >= 0:
                sent = int(data[at + 6 : data.index(b'"', at + 6)])
                self.bench.ages.append((time.monotonic_ns() - sent, count))
            self.bench.got(count)

    def unchunk(self, data: bytes) -> bytes:
        """Whole chunks without their framing; the rest waits for more."""
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


class Bench:
    def __init__(self, consumers: int, operations: int) -> None:
        self.consumers = consumers
        self.missing = consumers * operations
        self.waiting = consumers
        self.ages: list[tuple[int, int]] = []
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


async def measure(http_port: int, udp_port: int, pid: int, args: argparse.Namespace) -> Result:
    operations = int(args.rate * args.seconds)
    bench = Bench(args.consumers, operations)
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    for begin in range(0, args.consumers, 100):
        made = [
            loop.create_connection(lambda: Reader(bench), "127.0.0.1", http_port)
            for _ in range(100)
        ]
        readers += [reader for _, reader in await asyncio.gather(*made[: args.consumers - begin])]
    await asyncio.wait_for(bench.all_open.wait(), 60)
    cpu = cpu_seconds(pid)
    started = time.monotonic()
    sender = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "senders.py"),
        "stamped",
        str(udp_port),
        str(args.rate),
        str(operations),
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(bench.all_got.wait(), args.seconds * 3 + 10)
    took = time.monotonic() - started
    await sender.wait()
    ages = sorted(bench.ages)
    total = sum(count for _, count in ages)
    return Result(
        events_per_second=sum(reader.events for reader in readers) / took,
        p50_ms=percentile(ages, total * 0.50),
        p99_ms=percentile(ages, total * 0.99),
        lost=max(0, bench.missing),
        different=len({reader.crc for reader in readers}) - 1,
        server_cpu_seconds=cpu_seconds(pid) - cpu,
    )


def percentile(ages: list[tuple[int, int]], rank: float) -> float:
    passed = 0
    for age, count in ages:
        passed += count
        if passed >= rank:
            return age / 1e6
    return float("nan")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def bare_server() -> None:
    """UDP in, the same event bytes out to every connection; prints its two ports."""
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
                    b'{"timestamp":"2026-01-01T00:00:00.000Z","parents":[],"type":"video","id":"%s"}'
                    % id_
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
    command = [sys.executable, __file__, "--bare-server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        http_port, udp_port = map(int, process.stdout.readline().split())
        try:
            yield http_port, udp_port, process.pid
        finally:
            process.kill()


def show(name: str, result: Result) -> None:
    print(
        f"  {name:<12} {result.events_per_second:>11,.0f} events/s, p50 {result.p50_ms:.0f} ms, p99 {result.p99_ms:.0f} ms,"
        f" lost {result.lost:,}, streams that differ {result.different}, server CPU {result.server_cpu_seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=1_000, help="operations a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--filters", type=int, help="consumers with a filter each")
    parser.add_argument("--operations", type=int, default=200, help="with --filters: operations")
    parser.add_argument("--bare-server", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    raise_file_limit()
    if args.bare_server:
        uvloop.run(bare_server())
        return
    if args.filters:
        filters.measure(args.filters, args.operations)
        return
    with tempfile.TemporaryDirectory() as folder, Agent(Path(folder)) as agent:
        ours = uvloop.run(measure(agent.port, agent.udp_port, agent.process.pid, args))
    show("agent", ours)
    with bare_process() as (http_port, udp_port, pid):
        bare = uvloop.run(measure(http_port, udp_port, pid, args))
    show("bare server", bare)
    print(
        f"Fan-out to {args.consumers:,} consumers at {args.rate:,} operations/s: {ours.events_per_second:,.0f} events/s,"
        f" p99 {ours.p99_ms:.0f} ms, lost {ours.lost:,}; {ours.server_cpu_seconds / bare.server_cpu_seconds:.1f} times"
        f" the CPU of a bare server that only writes (its p99 {bare.p99_ms:.0f} ms)"
    )


if __name__ == "__main__":
    main()

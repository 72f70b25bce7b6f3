"""Compare an agent's answers to live consumers with and without many replications beside them.

The replications copy a large store with many deleted states. Live consumers, a consumer of a type
that never comes, `/status`, `/ready` and new connections are measured twice: first alone, then
beside the replications. Prints both and the ratios of the live latency. The run ends after a fixed
time; the replications need not be complete.

    python -m tests.bench.bench_replication [--live 1000000] [--deleted 1000000]
                                            [--replications 50] [--seconds 15]
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.store.filled import fill

HEARTBEAT = 1.0
_POLL_SECONDS = 0.05


class ReplicationFigures(NamedTuple):
    """The agent's answers to live consumers.

    ``p50_ms``, ``p99_ms``: from the send to the read of an operation. ``silence``: the longest, in
    heartbeats. ``status_ms``, ``connect_ms``: the longest answer. ``trouble``: DEGRADED answers.
    """

    operations: int
    p50_ms: float
    p99_ms: float
    silence: float
    status_ms: float
    connect_ms: float
    trouble: list[str]


class Probe:
    """A consumer that records the age of each operation, and the longest silence."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.ages: list[float] = []
        self.silence = 0.0
        self.received = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await _request(self._port, self._path())
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()

    def _path(self) -> str:
        return "/ops?types=video"

    async def _read(self) -> None:
        last = time.monotonic()
        rest = b""
        while data := await self._reader.read(1 << 16):
            now = time.monotonic()
            self.silence = max(self.silence, now - last)
            last = now
            self.received += len(data)
            *whole, rest = (rest + data).split(b"\n\n")
            for block in whole:
                if (age := kit.age_ms(block)) is not None:
                    self.ages.append(age)


class Idle(Probe):
    def _path(self) -> str:
        return "/ops?types=never"


class BusyIdle(Probe):
    """Replicates with a filter that no object passes."""

    def _path(self) -> str:
        return "/ops?types=never&last_event_id=0"


async def measure(
    agent: Agent, consumers: int, rate: int, seconds: float, *, replicates: bool = False
) -> ReplicationFigures:
    """Send ``rate`` operations per second and measure. ``replicates``: add a BusyIdle consumer."""
    count = int(rate * seconds)
    async with AsyncExitStack() as stack:
        connects: list[float] = []
        probes = [Probe(agent.port) for _ in range(consumers)]
        for probe in probes:
            began = time.monotonic()
            await stack.enter_async_context(probe)
            connects.append((time.monotonic() - began) * 1000)
        silent: list[Probe] = [await stack.enter_async_context(Idle(agent.port))]
        if replicates:
            silent.append(await stack.enter_async_context(BusyIdle(agent.port)))
        sender = await kit.send_stamped(agent.udp_port, rate, count)
        status: list[float] = []
        trouble: list[str] = []
        while sender.returncode is None:
            status.append(await _timed(_get(agent.port, "/status", trouble)))
            status.append(await _timed(_get(agent.port, "/ready", trouble)))
            connects.append(await _timed(_connect(agent.port)))
            await asyncio.sleep(_POLL_SECONDS)
        async with asyncio.timeout(60):
            while any(len(probe.ages) < count for probe in probes):
                await asyncio.sleep(_POLL_SECONDS)
        ages = sorted(age for probe in probes for age in probe.ages)
        silence = max(probe.silence for probe in silent) / HEARTBEAT
    return ReplicationFigures(
        len(ages),
        ages[len(ages) // 2],
        ages[len(ages) * 99 // 100],
        silence,
        max(status),
        max(connects),
        trouble,
    )


async def _timed(call: Awaitable[None]) -> float:
    began = time.monotonic()
    await call
    return (time.monotonic() - began) * 1000


async def _request(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request and read the head of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    accept = "text/event-stream" if path.startswith("/ops") else "*/*"
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")), head
    return reader, writer


async def _get(port: int, path: str, trouble: list[str]) -> None:
    reader, writer = await _request(port, path)
    body = await reader.read()
    if b"DEGRADED" in body or b"did not answer" in body:
        trouble.append(body.decode())
    writer.close()


async def _connect(port: int) -> None:
    _, writer = await _request(port, "/ops")
    writer.close()


@contextmanager
def replications(port: int, count: int) -> Iterator[Callable[[], tuple[int, int]]]:
    """Start consumers that copy everything, in a process of their own.

    Yields a function that ends them and returns the MB read and the number of consumers that got
    `live`.
    """
    command = kit.command("bench_replication", "--copy-from", port, "--replications", count)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=kit.ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"

        def end() -> tuple[int, int]:
            read, live = process.communicate("")[0].split()
            return int(read), int(live)

        try:
            yield end
        finally:
            if process.poll() is None:
                process.stdin.close()


async def copy(port: int, count: int) -> None:
    """Copy until standard input ends. Runs in the other process."""
    read = live = 0

    async def follow() -> None:
        nonlocal read, live
        is_live = False
        reader, _ = await _request(port, "/ops?last_event_id=0")
        while data := await reader.read(1 << 18):
            read += len(data)
            if not is_live and b"event: live" in data:
                is_live = True
                live += 1

    tasks = [asyncio.create_task(follow()) for _ in range(count)]
    print("copying", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    print(read // 1_000_000, live)


def show(name: str, found: ReplicationFigures) -> None:
    print(
        f"{name:22} p50 {found.p50_ms:7.1f} ms, p99 {found.p99_ms:7.1f} ms,"
        f" longest silence {found.silence:4.1f} heartbeats,"
        f" /status and /ready at most {found.status_ms:7.1f} ms,"
        f" a connect {found.connect_ms:7.1f} ms, {len(found.trouble)} DEGRADED"
    )


async def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        await fill(folder / "oplog.db", given.live, given.deleted)
        print(
            f"{given.live} live and {given.deleted} deleted states, "
            f"made in {time.monotonic() - began:.1f} s"
        )
        with Agent(folder, "--heartbeat", str(HEARTBEAT)) as agent:
            alone = await measure(agent, given.consumers, given.rate, given.seconds)
            show("alone", alone)
            with replications(agent.port, given.replications) as end:
                beside = await measure(
                    agent, given.consumers, given.rate, given.seconds, replicates=True
                )
                megabytes, live = end()
            show(f"{given.replications} replications", beside)
    print(f"  replicated {megabytes / given.seconds:.0f} MB/s, {live} ended")
    found = {"beside": [beside], "without replications": [alone]}
    figures = [
        kit.compared("live p50", "ms", "beside", found, lambda each: each.p50_ms),
        kit.compared("live p99", "ms", "beside", found, lambda each: each.p99_ms),
        kit.compared("longest silence", "heartbeats", "beside", found, lambda each: each.silence),
        kit.compared(
            "longest answer of /status", "ms", "beside", found, lambda each: each.status_ms
        ),
        kit.compared("longest connect", "ms", "beside", found, lambda each: each.connect_ms),
    ]
    kit.finish(f"{given.replications} replications", figures, given)


if __name__ == "__main__":
    parser = kit.parser(__doc__)
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--deleted", type=int, default=1_000_000)
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--consumers", type=int, default=20, help="consumers of live operations")
    parser.add_argument("--rate", type=int, default=200, help="operations per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--copy-from", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    asyncio.run(
        copy(arguments.copy_from, arguments.replications)
        if arguments.copy_from
        else main(arguments)
    )

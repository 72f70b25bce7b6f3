"""Compare streams of one large commit with streams of as many plain messages.

As many committed streams follow a topic while messages are published to it in requests of 1,000,
and then while one transaction of as many records commits. Prints for both the time from the last
request to the last event of the slowest stream, the agent's CPU time from there on, and the ratio
of the CPU times. The agent renders plain messages once, so the ratio says what a commit adds.

    python -m tests.bench.bench_commits [--streams 100] [--records 20000]
"""

import argparse
import asyncio
import time
from typing import NamedTuple, TypeAlias, cast

import uvloop

from tests.bench import kit
from tests.bench.bench_topics import agent_with
from tests.bench.topic_load import PAYLOAD_BYTES, topic_path
from tests.kits.agents.agent import Agent

# Messages or records of a request.
_BATCH = 1_000

# A path and a body.
Request: TypeAlias = tuple[str, object]


class Streams:
    """Counts the events of all streams of one run."""

    def __init__(self, count: int) -> None:
        self.missing = 0
        self.waiting = count
        self.is_open = asyncio.Event()
        self.has_all = asyncio.Event()

    def expect(self, events: int) -> None:
        self.missing = events
        self.has_all.clear()

    def got(self, events: int) -> None:
        self.missing -= events
        if self.missing == 0:
            self.has_all.set()


class Stream(asyncio.Protocol):
    def __init__(self, streams: Streams, path: str) -> None:
        self._streams = streams
        self._path = path
        self._is_open = False
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"GET {self._path} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"
        cast(asyncio.Transport, transport).write(request.encode())

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
            self._streams.waiting -= 1
            if not self._streams.waiting:
                self._streams.is_open.set()
        # Each event is one message, so its data stand on one line.
        count = (self._last + data).count(b"\ndata: ")
        self._last = data[-6:]
        if count:
            self._streams.got(count)


class Result(NamedTuple):
    seconds: float
    cpu_seconds: float


async def measure(agent: Agent, args: argparse.Namespace) -> tuple[Result, Result]:
    streams = Streams(args.streams)
    path = f"{topic_path(0)}/stream?isolation=read_committed"
    loop = asyncio.get_running_loop()
    for _ in range(args.streams):
        await loop.create_connection(lambda: Stream(streams, path), "127.0.0.1", agent.port)
    await asyncio.wait_for(streams.is_open.wait(), 60)
    rest = args.records % _BATCH
    sizes = [_BATCH] * (args.records // _BATCH) + ([rest] if rest else [])
    text = "x" * PAYLOAD_BYTES
    plain: list[Request] = [
        (f"{topic_path(0)}/publish", {"messages": [text] * count}) for count in sizes
    ]
    first = await follow(agent, streams, args, plain)
    begun = await asyncio.to_thread(agent.request, "POST", "/v1/txns", {})
    txn = f"/v1/txns/{begun.json['txn']}"
    name = "/".join(topic_path(0).split("/")[3::2])
    lsn = 0
    for count in sizes:
        records = [{"topic": name, "lsn": lsn + k, "payload": text} for k in range(count)]
        answer = await asyncio.to_thread(
            agent.request, "POST", f"{txn}/records", {"records": records}
        )
        assert answer.status == 200, answer
        lsn += count
    commit: list[Request] = [(f"{txn}/commit", {"records": args.records})]
    return first, await follow(agent, streams, args, commit)


async def follow(
    agent: Agent,
    streams: Streams,
    args: argparse.Namespace,
    requests: list[Request],
) -> Result:
    """Make requests, and wait until each stream has its events."""
    streams.expect(args.streams * args.records)
    cpu, began = kit.cpu_seconds(agent.process.pid), time.monotonic()
    for path, body in requests:
        answer = await asyncio.to_thread(agent.request, "POST", path, body)
        assert answer.status == 200, answer
    await asyncio.wait_for(streams.has_all.wait(), 600)
    return Result(time.monotonic() - began, kit.cpu_seconds(agent.process.pid) - cpu)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--records", type=int, default=20_000)
    args = parser.parse_args()
    with agent_with(1) as agent:
        plain, commit = uvloop.run(measure(agent, args))
    heading = (
        f"{args.streams} committed streams, {args.records:,} messages of {PAYLOAD_BYTES} bytes"
    )
    found = {"a commit": [commit], "plain messages": [plain]}
    figures = [
        kit.compared(
            "one commit: agent", "CPU s", "a commit", found, lambda each: each.cpu_seconds
        ),
        kit.compared(
            "one commit: until the last stream has all",
            "s",
            "a commit",
            found,
            lambda each: each.seconds,
        ),
    ]
    kit.finish(heading, figures, args)


if __name__ == "__main__":
    main()

"""Compare readers of one shard each with readers of everything, and measure the routing.

The same operations come by UDP, at the same rate, to 256 readers of a shard each, to 256 readers of
everything, and to one reader of everything: alone, beside 256 readers of a shard each, and beside
readers of 1 and of 16 numbers of shards. Then the same messages come to readers of a topic. Prints
the agent's CPU time per operation, the bytes of all readers and the lost events. Last, the rings
alone: the CPU time of an entry without readers of shards, and with 1 and 16 numbers of shards.

All kinds take turns, each with an empty store. The readers run in the process of the benchmark.

    python -m tests.bench.bench_shards [--rate 1000] [--seconds 5] [--repeat 3] [--quick]
"""

import argparse
import asyncio
import functools
import http.client
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvloop

from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind
from oplogd.model.shard import MAX_SHARDS, MAX_TOTALS, Shard
from oplogd.server import raise_file_limit
from oplogd.store import Entry
from oplogd.store.topics import TopicEntry
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from tests.bench import kit
from tests.bench.bench_topics import agent_with
from tests.bench.senders import datagrams
from tests.bench.topic_load import topic_path
from tests.kits.agents.agent import Agent

OBJECTS = 10_000
# Of a topic.
SHARDS = 8
_BATCH = 100
_RING_ENTRIES = 60_000

# The shard of each reader. None: everything.
Readers = tuple[Shard | None, ...]

ONE: Readers = (None,)
EACH: Readers = tuple(Shard(number, MAX_SHARDS) for number in range(MAX_SHARDS))
OF_TOPIC: Readers = tuple(Shard(number, SHARDS) for number in range(SHARDS))
TOTALS: Readers = tuple(Shard(0, MAX_SHARDS - number) for number in range(MAX_TOTALS))

SHARDED = f"{MAX_SHARDS} readers of a shard each"
WHOLE = f"{MAX_SHARDS} readers of everything"
ALONE = "one reader of everything"
BESIDE = f"{ALONE}, and {SHARDED}"
BESIDE_ONE = f"{ALONE}, and one reader of a shard"
BESIDE_TOTALS = f"{ALONE}, and a reader for each of {MAX_TOTALS} numbers of shards"
KINDS: dict[str, Readers] = {
    ALONE: ONE,
    BESIDE_ONE: (*ONE, EACH[0]),
    BESIDE_TOTALS: (*ONE, *TOTALS),
    BESIDE: (*ONE, *EACH),
    SHARDED: EACH,
    WHOLE: ONE * MAX_SHARDS,
}
TOPIC_ALONE = "one stream of everything"
TOPIC_BESIDE = f"{TOPIC_ALONE}, and {SHARDS} of a shard each"
TOPIC_SHARDED = f"{SHARDS} streams of a shard each"
TOPIC_WHOLE = f"{SHARDS} streams of everything"
OF_TOPICS: dict[str, Readers] = {
    TOPIC_ALONE: ONE,
    TOPIC_BESIDE: (*ONE, *OF_TOPIC),
    TOPIC_SHARDED: OF_TOPIC,
    TOPIC_WHOLE: ONE * SHARDS,
}
NO_SHARDS, ONE_TOTAL, ALL_TOTALS = "no shards", "8 shards", f"{MAX_TOTALS} numbers of shards"
RINGS: dict[str, Readers] = {NO_SHARDS: (), ONE_TOTAL: OF_TOPIC, ALL_TOTALS: TOTALS}


class Cost(NamedTuple):
    """``cpu_us``: of the agent, per entry. ``received``: bytes of all readers."""

    cpu_us: float
    received: float
    lost: float

    def __str__(self) -> str:
        return (
            f"{self.cpu_us:,.0f} µs of CPU per entry, {self.received / 2**20:,.1f} MiB received,"
            f" lost {self.lost:,.0f}"
        )


class Reader(asyncio.Protocol):
    """Counts the events of one stream."""

    def __init__(self, run: "Run", path: str, shard: Shard | None) -> None:
        self._run = run
        self._request = (
            f"GET {path}{f'?shard={shard}' if shard else ''} HTTP/1.1\r\n"
            "Host: localhost\r\nAccept: text/event-stream\r\n\r\n"
        ).encode()
        self._head = b""
        self._is_open = False
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)  # uvloop's has another base

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            self._is_open = True
            self._run.opened.release()
        count = (self._last + data).count(b"\n\n")
        self._last = data[-1:]
        self._run.take(count, len(data))


class Run:
    """The streams of all readers. ``missing``: events that have not arrived yet."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.received = 0
        self.opened = asyncio.Semaphore(0)
        self.has_all = asyncio.Event()

    def take(self, events: int, size: int) -> None:
        self.missing -= events
        self.received += size
        if self.missing <= 0:
            self.has_all.set()


def wanted(readers: Readers, values: Iterable[str]) -> int:
    """Return the number of events for all readers. ``values``: decide about the shards."""
    hashes = [zlib.crc32(value.encode()) for value in values]
    return sum(
        shard is None or hash_ % shard.total == shard.number
        for shard in readers
        for hash_ in hashes
    )


async def follow(
    port: int,
    pid: int,
    path: str,
    readers: Readers,
    values: Sequence[str],
    send: Callable[[], Any],
    seconds: float,
) -> Cost:
    """``send`` sends the entries from a thread or a process, and returns when all are sent."""
    run = Run(wanted(readers, values))
    loop = asyncio.get_running_loop()
    for shard in readers:
        await loop.create_connection(functools.partial(Reader, run, path, shard), "127.0.0.1", port)
    for _ in readers:
        await run.opened.acquire()
    run.received = 0
    cpu = kit.cpu_seconds(pid)
    await send()
    with suppress(TimeoutError):
        await asyncio.wait_for(run.has_all.wait(), seconds * 3 + 10)
    cpu = kit.cpu_seconds(pid) - cpu
    return Cost(1e6 * cpu / len(values), run.received, abs(run.missing))


def operations(readers: Readers, args: argparse.Namespace) -> Cost:
    load = map(json.loads, datagrams(int(args.rate * args.seconds), OBJECTS))
    values = [f"{each['type']}/{each['id']}" for each in load]
    with tempfile.TemporaryDirectory() as folder, Agent(Path(folder)) as agent:

        async def send() -> None:
            command = kit.command(
                "senders", "paced", agent.udp_port, args.rate, int(args.seconds), OBJECTS
            )
            process = await asyncio.create_subprocess_exec(
                *command, cwd=kit.ROOT, stdout=asyncio.subprocess.DEVNULL
            )
            assert await process.wait() == 0

        return uvloop.run(
            follow(agent.port, agent.process.pid, "/ops", readers, values, send, args.seconds)
        )


def messages(readers: Readers, args: argparse.Namespace) -> Cost:
    """Publish messages with keys, some in a request."""
    keys = [f"user/{number % 997}" for number in range(int(args.rate * args.seconds))]

    def publish(port: int) -> None:
        headers = {"Content-Type": "application/json"}
        started = time.monotonic()
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            for first in range(0, len(keys), _BATCH):
                time.sleep(max(0.0, started + first / args.rate - time.monotonic()))
                body = [{"payload": "x" * 100, "key": key} for key in keys[first : first + _BATCH]]
                path = f"{topic_path(0)}/publish"
                connection.request("POST", path, json.dumps({"messages": body}), headers)
                with connection.getresponse() as response:
                    assert response.status == 200, response.read()
                    response.read()

    with agent_with(1) as agent:
        path = f"{topic_path(0)}/stream"
        send = functools.partial(asyncio.to_thread, publish, agent.port)
        return uvloop.run(
            follow(agent.port, agent.process.pid, path, readers, keys, send, args.seconds)
        )


def routed(ring: Ring, readers: Readers, entries: Sequence[Any]) -> float:
    """Return the CPU time in µs of an entry in a ring with a view of each reader."""
    ring.restart(Mark(0, 0))
    for shard in (None, *readers):
        ring.view(Filter(shard=shard))
    began = time.process_time()
    for first in range(0, len(entries), _BATCH):
        ring.append(entries[first : first + _BATCH])
    return 1e6 * (time.process_time() - began) / len(entries)


def operations_routed(readers: Readers) -> float:
    entries = [
        Entry(
            n, 1_000 + n, "update",
            '{"timestamp":"2014-11-06T11:04:39.041Z",'
            f'"parents":["user/{n % 997}"],"type":"video","id":"x{n % OBJECTS}"}}',
        )
        for n in range(1, _RING_ENTRIES + 1)
    ]  # fmt: skip
    return routed(Ring(Framer().route, 65_536, 64 << 20, lambda _: None), readers, entries)


def messages_routed(readers: Readers) -> float:
    payload = "x" * 100
    entries = [
        TopicEntry(
            n, 1_000 + n, EntryKind.MESSAGE.value,
            f'{{"payload":"{payload}","key":"user/{n % 997}"}}', 0, 0,
        )
        for n in range(1, _RING_ENTRIES + 1)
    ]  # fmt: skip
    ring = TopicRing(SharedParts(lambda _: None, lambda: 1_000), None)
    return routed(ring, readers, entries)


def costs(title: str, ours: str, others: Sequence[str], found: dict[str, Any]) -> kit.Figure:
    kinds = {name: found[name] for name in (ours, *others)}
    return kit.compared(title, "µs of CPU", ours, kinds, lambda each: each.cpu_us)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="entries per second")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--repeat", type=int, default=3, help="turns of all kinds")
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.repeat = 1.0, 1
    raise_file_limit()

    def measured(
        kinds: dict[str, Readers], measure: Callable[..., Any], title: str, *more: Any
    ) -> dict[str, Any]:
        each = {name: functools.partial(measure, readers, *more) for name, readers in kinds.items()}
        return kit.in_turn(each, args.repeat, f"{title}, ")

    oplog = measured(KINDS, operations, "operations", args)
    topic = measured(OF_TOPICS, messages, "messages", args)
    rings = {
        "operation": measured(RINGS, operations_routed, "ring of the oplog"),
        "message": measured(RINGS, messages_routed, "ring of a topic"),
    }
    both = {name: oplog[name] for name in (SHARDED, WHOLE)}
    figures = [
        costs(f"operation to {SHARDED}: agent", SHARDED, [WHOLE, ALONE], oplog),
        kit.compared(
            f"bytes to {SHARDED}", "MiB", SHARDED, both, lambda each: each.received / 2**20
        ),
        costs(f"operation to {BESIDE}: agent", BESIDE, [ALONE], oplog),
        costs(f"operation to {BESIDE_ONE}: agent", BESIDE_ONE, [ALONE], oplog),
        costs(f"operation to {BESIDE_TOTALS}: agent", BESIDE_TOTALS, [ALONE], oplog),
        costs(f"message to {TOPIC_SHARDED}: agent", TOPIC_SHARDED, [TOPIC_WHOLE], topic),
        costs(f"message to {TOPIC_BESIDE}: agent", TOPIC_BESIDE, [TOPIC_ALONE], topic),
    ]
    for name, found in rings.items():
        for kind in (ONE_TOTAL, ALL_TOTALS):
            pair = {each: found[each] for each in (kind, NO_SHARDS)}
            figures.append(
                kit.compared(f"{name} in a ring with {kind}", "µs of CPU", kind, pair, float)
            )
    lost = [sum(each.lost for kind in (*oplog.values(), *topic.values()) for each in kind)]
    figures.append(kit.Figure("lost events of all of these readers", "events", lost, {}))
    kit.finish(f"{args.rate:,} entries per second", figures, args)


if __name__ == "__main__":
    main()

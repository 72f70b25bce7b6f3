"""Compare intake over HTTP with a bare uvicorn server, NATS JetStream and another build.

Each connection stays open and sends its next request when the last one is answered. ``singles``
posts one operation, ``batches`` 500. ``publish`` publishes one message to a topic, ``poll`` reads
the oldest one. The agent answers writes after the commit. The bare server reads the body and
answers 204: it is the limit of a server in Python. JetStream gets the same content as one message
and acknowledges it: with SyncAlways when it is on disk, else when the system has it. It also gets
a batch as 500 messages in one send and acknowledges each. A poll is a direct get there. All take
turns, each with an empty store. The load is a program in Go on the same machine.

    python -m tests.bench.bench_http [--before CHECKOUT] [--quick] [--only singles ...]
"""

import argparse
import base64
import functools
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench import kit, nats_server
from tests.bench.bare_uvicorn import bare_uvicorn
from tests.bench.bench_topics import Times, create
from tests.bench.go_programs import go_build
from tests.bench.topic_load import (
    HOST,
    PAYLOAD_BYTES,
    WARM_UP_SECONDS,
    oplog_request,
    poll_request,
    topic_path,
    topic_request,
)
from tests.kits.agents.agent import DEADLINE, NewAgent
from tests.kits.servers.room import UnavailableError

BATCH = 500
AGENT, BEFORE, BARE = "agent", "the build before", "bare uvicorn"
JETSTREAM, SYNCED = "NATS JetStream", "NATS JetStream with SyncAlways"
SPLIT = "NATS JetStream with a message per operation"


class Target(NamedTuple):
    """A server with the requests of a part.

    ``run`` yields the port and the process id. ``request``: that of a connection, by its number.
    """

    run: Callable[[], AbstractContextManager[tuple[int, int]]]
    protocol: str
    request: Callable[[int], bytes]
    answers: int = 1


class Part(NamedTuple):
    """The requests of a part. ``nats_split``: the same content as ``BATCH`` messages."""

    http: Callable[[int], bytes]
    nats: Callable[[int], bytes]
    writes: bool = True
    nats_split: Callable[[int], bytes] | None = None


def oplog_payload(number: int, operations: int) -> bytes:
    return oplog_request(number, operations).partition(b"\r\n\r\n")[2]


PARTS = {
    "singles": Part(
        lambda number: oplog_request(number, 1),
        lambda number: nats_server.publish(number, oplog_payload(number, 1)),
    ),
    "publish": Part(
        lambda _: topic_request(0, 1),
        lambda number: nats_server.publish(number, b"x" * PAYLOAD_BYTES),
    ),
    "poll": Part(lambda _: poll_request(0, 1), nats_server.get_oldest, writes=False),
    "batches": Part(
        lambda number: oplog_request(number, BATCH),
        lambda number: nats_server.publish(number, oplog_payload(number, BATCH)),
        nats_split=lambda number: BATCH * nats_server.publish(number, oplog_payload(number, 1)),
    ),
}


class Rate(NamedTuple):
    """``cpu_us``: CPU time of the server per request. ``busy``: its CPU seconds per second."""

    requests: float
    calls: Times
    cpu_us: float
    busy: float

    def __str__(self) -> str:
        return (
            f"{self.requests:>9,.0f} requests/s, a call {self.calls},"
            f" {self.cpu_us:,.0f} µs of CPU per request, {self.busy:.0%} of a core"
        )


def measure(load: Path, target: Target, port: int, pid: int, args: argparse.Namespace) -> Rate:
    is_nats = target.protocol == "nats"
    plan = {
        "address": f"{HOST}:{port}",
        "protocol": target.protocol,
        "answers": target.answers,
        "warmUpSeconds": WARM_UP_SECONDS,
        "seconds": args.seconds,
        "connections": [
            {
                "opening": text(nats_server.opening(number) if is_nats else b""),
                "request": text(target.request(number)),
            }
            for number in range(args.connections)
        ],
    }
    cpu, began = kit.cpu_seconds(pid), time.monotonic()
    done = subprocess.run(
        [str(load)], input=json.dumps(plan), stdout=subprocess.PIPE, text=True, check=True,
        timeout=args.seconds + DEADLINE,
    )  # fmt: skip
    cpu, took = kit.cpu_seconds(pid) - cpu, time.monotonic() - began
    told = json.loads(done.stdout)
    calls = Times(told["latencies"])
    return Rate(len(calls) / told["seconds"], calls, 1e6 * cpu / told["requests"], cpu / took)


def text(content: bytes) -> str:
    """Return bytes as Go reads them from JSON."""
    return base64.b64encode(content).decode()


@contextmanager
def agent(checkout: Path) -> Iterator[tuple[int, int]]:
    """Run the agent of a checkout with a topic of one message. Yield its port and process id."""
    environ = {"PYTHONPATH": str(checkout)}
    with (
        tempfile.TemporaryDirectory() as folder,
        NewAgent(Path(folder), cwd=checkout, environ=environ) as started,
    ):
        create(started, 1)
        message = {"messages": ["x" * PAYLOAD_BYTES]}
        answer = started.request("POST", f"{topic_path(0)}/publish", message)
        assert answer.status == 200, answer.body
        yield started.port, started.pid


def targets(part: Part, nats: Path | None, args: argparse.Namespace) -> dict[str, Target]:
    found = {AGENT: Target(functools.partial(agent, kit.ROOT), "http", part.http)}
    if args.before:
        found[BEFORE] = Target(functools.partial(agent, args.before), "http", part.http)
    found[BARE] = Target(bare_uvicorn, "http", part.http)
    if nats:
        run = functools.partial(nats_server.nats_server, nats)
        found[JETSTREAM] = Target(run, "nats", part.nats)
        if part.writes:
            found[SYNCED] = Target(functools.partial(run, "-sync-always"), "nats", part.nats)
        if part.nats_split:
            found[SPLIT] = Target(run, "nats", part.nats_split, answers=BATCH)
    return found


def compare(name: str, load: Path, nats: Path | None, args: argparse.Namespace) -> str:
    compared = targets(PARTS[name], nats, args)
    rates: dict[str, list[Rate]] = {server: [] for server in compared}
    for _ in range(args.repeat):  # in turn, so that a change of the machine meets all
        for server, target in compared.items():
            with target.run() as (port, pid):
                rates[server].append(measure(load, target, port, pid, args))
            print(f"  {name}, {server}: {rates[server][-1]}", flush=True)
    return summary(name, rates)


def summary(name: str, rates: Mapping[str, Sequence[Rate]]) -> str:
    """Return the medians of the ratios of each turn, with the least and the greatest."""
    ratios = []
    for server, found in rates.items():
        if server != AGENT:
            turns = [
                ours.requests / theirs.requests
                for ours, theirs in zip(rates[AGENT], found, strict=True)
            ]
            ratios.append(f"{spread(turns, '.3g')} of {server}")
    cpu = {server: [rate.cpu_us for rate in found] for server, found in rates.items()}
    others = [
        f"{server}: {statistics.median(found):,.0f}"
        for server, found in cpu.items()
        if server != AGENT
    ]
    return (
        f"{name}: {spread([rate.requests for rate in rates[AGENT]], ',.0f')} requests/s,"
        f" {', '.join(ratios)}; {spread(cpu[AGENT], ',.0f')} µs of CPU ({', '.join(others)})"
    )


def spread(values: Sequence[float], form: str) -> str:
    median = format(statistics.median(values), form)
    if len(values) == 1:
        return median
    return f"{median} ({format(min(values), form)} to {format(max(values), form)})"


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3, help="turns of all servers")
    parser.add_argument("--before", type=Path, help="checkout of another build to compare with")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.repeat = 1.0, 1
    if args.before:
        args.before = args.before.resolve()
    try:
        load = go_build("load")
    except UnavailableError as error:
        raise SystemExit(f"No figures without the load: {error}") from None
    nats = None
    try:
        nats = go_build("nats")
    except UnavailableError as error:
        print(f"No comparison with NATS JetStream: {error}")
    lines = [compare(name, load, nats, args) for name in args.only]
    print(
        f"{args.connections} connections, SQLite, {BATCH} operations in a batch:", *lines, sep="\n"
    )


if __name__ == "__main__":
    main()

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
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench import kit, nats_server
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

    title: str
    http: Callable[[int], bytes]
    nats: Callable[[int], bytes]
    writes: bool = True
    nats_split: Callable[[int], bytes] | None = None


def oplog_payload(number: int, operations: int) -> bytes:
    return oplog_request(number, operations).partition(b"\r\n\r\n")[2]


PARTS = {
    "singles": Part(
        "posts of one operation",
        lambda number: oplog_request(number, 1),
        lambda number: nats_server.publish(number, oplog_payload(number, 1)),
    ),
    "publish": Part(
        "publishes of one message",
        lambda _: topic_request(0, 1),
        lambda number: nats_server.publish(number, b"x" * PAYLOAD_BYTES),
    ),
    "poll": Part(
        "polls of the oldest message",
        lambda _: poll_request(0, 1),
        nats_server.get_oldest,
        writes=False,
    ),
    "batches": Part(
        f"posts of {BATCH} operations",
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
def agent(checkout: Path, *flags: str) -> Iterator[tuple[int, int]]:
    """Run the agent of a checkout with a topic of one message. Yield its port and process id."""
    environ = {"PYTHONPATH": str(checkout)}
    with (
        tempfile.TemporaryDirectory() as folder,
        NewAgent(Path(folder), *flags, cwd=checkout, environ=environ) as started,
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
    found[BARE] = Target(functools.partial(kit.serving, "bare_uvicorn"), "http", part.http)
    if nats:
        run = functools.partial(nats_server.nats_server, nats)
        whole = ", a batch as one message" if part.nats_split else ""
        found[f"{JETSTREAM}{whole}"] = Target(run, "nats", part.nats)
        if part.writes:
            found[f"{SYNCED}{whole}"] = Target(
                functools.partial(run, "-sync-always"), "nats", part.nats
            )
        if part.nats_split:
            found[SPLIT] = Target(run, "nats", part.nats_split, answers=BATCH)
    return found


def compare(name: str, load: Path, nats: Path | None, args: argparse.Namespace) -> list[kit.Figure]:
    def rate(target: Target) -> Rate:
        with target.run() as (port, pid):
            return measure(load, target, port, pid, args)

    kinds = {
        server: functools.partial(rate, target)
        for server, target in targets(PARTS[name], nats, args).items()
    }
    rates = kit.in_turn(kinds, args.repeat, f"{name}, ")
    title = PARTS[name].title
    return [
        kit.compared(title, "requests/s", AGENT, rates, lambda each: each.requests),
        kit.compared(f"{title}: server", "µs of CPU", AGENT, rates, lambda each: each.cpu_us),
    ]


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
    figures = [figure for name in args.only for figure in compare(name, load, nats, args)]
    kit.finish(f"{args.connections} connections, SQLite, each waits for its answer", figures, args)


if __name__ == "__main__":
    main()

"""Compare an agent of several workers with one of a single process.

``singles`` posts one operation over 64 connections, ``batches`` 500, ``publish`` publishes one
message: see ``bench_http``. ``fanout`` sends operations by UDP to many consumers, faster than one
process passes them on. Both agents take turns. The load runs on the same
machine, so cores that it needs are missing.

    python -m tests.bench.bench_workers [--workers 2] [--quick] [--only singles ...]
"""

import argparse
import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

from oplogd.server import raise_file_limit
from tests.bench import bench_http, kit
from tests.bench.go_programs import go_build
from tests.kits.agents.agent import NewAgent
from tests.kits.servers.room import UnavailableError

FANOUT = "fanout"
STREAM = b"GET /ops HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
REQUESTS = ("singles", "batches", "publish")


def name_of(workers: int) -> str:
    return "one process" if workers == 1 else f"{workers} workers"


def posted(name: str, load: Path, workers: int, args: argparse.Namespace) -> bench_http.Rate:
    target = bench_http.Target(
        partial(bench_http.agent, kit.ROOT, "--workers", str(workers)),
        "http",
        bench_http.PARTS[name].http,
    )
    with target.run() as (port, pid):
        return bench_http.measure(load, target, port, pid, args)


class Fanout(NamedTuple):
    """``lost``: events that did not arrive."""

    events: float
    cpu_us: float
    lost: int

    def __str__(self) -> str:
        return (
            f"{self.events:>11,.0f} events/s, {self.cpu_us:.3f} µs of CPU per event,"
            f" lost {self.lost:,}"
        )


def fanned_out(load: Path, workers: int, args: argparse.Namespace) -> Fanout:
    operations = int(args.rate * args.seconds)
    plan = {
        "address": "",
        "request": bench_http.text(STREAM),
        "connections": args.consumers,
        "events": operations,
        "seconds": 3 * args.seconds + 10,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        NewAgent(Path(folder), "--workers", str(workers)) as agent,
        subprocess.Popen(
            [load, "streams"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader,
    ):
        assert reader.stdin is not None
        assert reader.stdout is not None
        with reader.stdin:
            json.dump({**plan, "address": f"127.0.0.1:{agent.port}"}, reader.stdin)
        assert reader.stdout.readline() == "open\n"
        cpu = kit.cpu_seconds(agent.pid)
        subprocess.run(
            kit.command("senders", "stamped", agent.udp_port, args.rate, operations),
            cwd=kit.ROOT,
            check=True,
        )
        told = json.loads(reader.stdout.readline())
        cpu = kit.cpu_seconds(agent.pid) - cpu
    missing = args.consumers * operations - told["events"]
    return Fanout(told["events"] / told["seconds"], 1e6 * cpu / told["events"], missing)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=5_000, help="operations per second")
    parser.add_argument("--repeat", type=int, default=5, help="turns of both agents")
    parser.add_argument("--only", nargs="+", choices=(*REQUESTS, FANOUT), default=None)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.repeat, args.consumers = 1.0, 1, 100
    raise_file_limit()
    try:
        load = go_build("load")
    except UnavailableError as error:
        raise SystemExit(f"No figures without the load: {error}") from None
    only = args.only or (*REQUESTS, FANOUT)
    ours, one = name_of(args.workers), name_of(1)
    counts = {ours: args.workers, one: 1}
    figures: list[kit.Figure] = []
    for part in (each for each in REQUESTS if each in only):
        rates = kit.in_turn(
            {name: partial(posted, part, load, count, args) for name, count in counts.items()},
            args.repeat,
            f"{part}, ",
        )
        title = bench_http.PARTS[part].title
        figures += [
            kit.compared(title, "requests/s", ours, rates, lambda each: each.requests),
            kit.compared(f"{title}: agent", "µs of CPU", ours, rates, lambda each: each.cpu_us),
            kit.compared(
                f"{title}: p99", "ms", ours, rates, lambda each: each.calls.percentile(0.99)
            ),
        ]
    if FANOUT in only:
        results = kit.in_turn(
            {name: partial(fanned_out, load, count, args) for name, count in counts.items()},
            args.repeat,
            f"{FANOUT}, ",
        )
        title = f"events to {args.consumers:,} consumers"
        figures += [
            kit.compared(title, "events/s", ours, results, lambda each: each.events),
            kit.compared(f"{title}: agent", "µs of CPU", ours, results, lambda each: each.cpu_us),
            kit.compared(f"{title}: lost", "events", ours, results, lambda each: each.lost),
        ]
    kit.finish(f"{ours} beside {one}, SQLite", figures, args)


if __name__ == "__main__":
    main()

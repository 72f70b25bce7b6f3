"""Compare topics with Redis streams, and the oplog with another build of the agent.

Publishes per second over connections that stay open, 1 and 100 messages per call, to 1 and 100
topics; each answer comes after the commit. Redis has every XADD on disk before its answer, too
(appendfsync always); 100 messages per call are a pipeline of 100 commands there. Then 100 pollers
and 100 streams of one topic: latency from the publisher's send to the consumer's read. Then the
memory of an agent with many topics, idle and with a stream each. The load comes from processes of
its own, so on two cores server and load share the machine.

    python -m tests.bench.bench_topics [--before CHECKOUT] [--quick] [--only publish ...]
"""

import argparse
import http.client
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from oplogd.server import raise_file_limit
from tests.bench import kit
from tests.bench.redis_server import is_installed, redis_server
from tests.bench.topic_load import PAYLOAD_BYTES, WARM_UP_SECONDS, topic_path
from tests.kits.agents.agent import Agent

PARTS = ("publish", "oplog", "read", "memory")
SHAPES = [(1, 1), (1, 100), (100, 1), (100, 100)]


class Rate(NamedTuple):
    """``busy``: CPU seconds of the server per second."""

    messages: float
    calls: "Times"
    busy: float

    def __str__(self) -> str:
        return f"{self.messages:>9,.0f} messages/s, a call {self.calls}, server CPU {self.busy:.0%}"


def start(*arguments: object) -> "subprocess.Popen[str]":
    """Start a process of load."""
    return subprocess.Popen(
        kit.command("topic_load", *arguments),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=kit.ROOT,
    )  # fmt: skip


def result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait for the last line of a process and return it."""
    out, _ = process.communicate()
    assert process.returncode == 0, "the load failed"
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


class Times:
    """Durations in ms that processes of load counted."""

    def __init__(self, *counted: dict[str, int]) -> None:
        self._counts = Counter[float]()
        for each in counted:
            self._counts.update({float(ms): count for ms, count in each.items()})

    def __len__(self) -> int:
        return self._counts.total()

    def __str__(self) -> str:
        return f"p50 {self.percentile(0.5):.1f} ms, p99 {self.percentile(0.99):.1f} ms"

    def percentile(self, share: float) -> float:
        passed = 0
        for ms, count in sorted(self._counts.items()):
            passed += count
            if passed >= share * len(self):
                return ms
        return float("nan")


def measure(
    kind: str, port: int, pid: int, topics: int, messages: int, args: argparse.Namespace
) -> Rate:
    cpu = kit.cpu_seconds(pid)
    share = args.connections // args.processes
    load = [
        start("publish", kind, port, share, topics, messages, args.seconds)
        for _ in range(args.processes)
    ]
    told = [result(process) for process in load]
    calls = Times(*(one["latencies"] for one in told))
    return Rate(
        len(calls) * messages / args.seconds,
        calls,
        (kit.cpu_seconds(pid) - cpu) / (args.seconds + WARM_UP_SECONDS),
    )


@contextmanager
def agent_with(topics: int, *flags: str) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as folder, Agent(Path(folder), *flags) as agent:
        create(agent, topics)
        yield agent


def create(agent: Agent, topics: int) -> None:
    call_each(agent, "PUT", [topic_path(topic) for topic in range(topics)], None)


def touch(agent: Agent, topics: int) -> None:
    """Publish to each topic."""
    paths = [f"{topic_path(topic)}/publish" for topic in range(topics)]
    call_each(agent, "POST", paths, b'{"messages":["a"]}')


def call_each(agent: Agent, method: str, paths: Sequence[str], body: bytes | None) -> None:
    headers = {"Content-Type": "application/json"}
    with closing(http.client.HTTPConnection("127.0.0.1", agent.port)) as connection:
        for path in paths:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                assert response.status == 200, response.read()
                response.read()


@contextmanager
def redis() -> Iterator[tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as found:
        yield found


def publish(args: argparse.Namespace) -> list[kit.Figure]:
    if not is_installed():
        print("No comparison: redis-server is missing (Debian: apt install redis-server).")
    figures = []
    for messages, topics in SHAPES:
        name = f"{messages} per call, {topics} topics"
        with agent_with(topics) as agent:
            ours = measure("topics", agent.port, agent.process.pid, topics, messages, args)
        print(f"  {name}: agent {ours}", flush=True)
        found = {"agent": [ours]}
        if is_installed():
            with redis() as (port, pid):
                theirs = measure("redis", port, pid, topics, messages, args)
            print(f"  {name}: Redis {theirs}", flush=True)
            found["Redis Streams"] = [theirs]
        name = f"publishes: {name}"
        figures.append(kit.compared(name, "messages/s", "agent", found, lambda rate: rate.messages))
    return figures


def oplog(args: argparse.Namespace) -> list[kit.Figure]:
    if not args.before:
        print("No comparison of the oplog: --before names the checkout of another build.")
        return []

    def rate(checkout: Path, messages: int) -> Rate:
        environ = {"PYTHONPATH": str(checkout)}
        with (
            tempfile.TemporaryDirectory() as folder,
            Agent(Path(folder), cwd=checkout, environ=environ) as agent,
        ):
            return measure("oplog", agent.port, agent.process.pid, 100, messages, args)

    figures = []
    for messages in (1, 100):
        kinds = {
            "agent": partial(rate, kit.ROOT, messages),
            "the build before": partial(rate, args.before, messages),
        }
        name = f"posts to the oplog: {messages} per call"
        found = kit.in_turn(kinds, args.repeat, f"{name}, ")
        figures.append(kit.compared(name, "messages/s", "agent", found, lambda r: r.messages))
    return figures


def read(args: argparse.Namespace) -> list[kit.Figure]:
    figures = []
    count = int(args.rate * args.seconds)
    for what in ("poll", "follow"):
        with agent_with(1) as agent:
            readers = start(what, agent.port, args.consumers, count)
            assert readers.stdout is not None
            readers.stdout.readline()
            cpu, began = kit.cpu_seconds(agent.process.pid), time.monotonic()
            result(start("stamped", agent.port, args.rate, count))
            found = result(readers)
            took = time.monotonic() - began
            busy = (kit.cpu_seconds(agent.process.pid) - cpu) / took
        ages = Times(found["ages"])
        assert len(ages) == count * args.consumers
        name = "streams"
        if what == "poll":
            answers = Times(found["latencies"])
            name = f"{len(answers) / took:,.0f} polls/s, each at once after the last ({answers})"
        print(
            f"  {args.consumers} consumers at {args.rate:,} messages/s, {name}:"
            f" {len(ages) / took:,.0f} events/s, {ages}, server CPU {busy:.0%}",
            flush=True,
        )
        kind = "pollers" if what == "poll" else "streams"
        name = f"{args.consumers} {kind} at {args.rate:,} messages/s"
        figures += [
            kit.Figure(f"{name}: p50", "ms", [ages.percentile(0.5)]),
            kit.Figure(f"{name}: p99", "ms", [ages.percentile(0.99)]),
        ]
    return figures


def memory(args: argparse.Namespace) -> list[kit.Figure]:
    """Compare an agent on a store with many topics with one on a store with a single topic."""
    raise_file_limit()
    flags = ("--max-clients", str(args.topics + 1))
    mib: dict[str, float] = {}
    for topics in (1, args.topics):
        with tempfile.TemporaryDirectory() as folder:
            with Agent(Path(folder), *flags) as agent:
                create(agent, topics)
                touch(agent, topics)
                mib[f"created {topics}"] = settled(agent)
            with Agent(Path(folder), *flags) as agent:
                touch(agent, 1)
                mib[f"idle {topics}"] = settled(agent)
                mib[f"listened {topics}"] = listened(agent, topics, args.topics)
    for name, value in mib.items():
        print(f"  {name} topics: {value:.1f} MiB", flush=True)

    def figure(name: str, state: str) -> kit.Figure:
        more = mib[f"{state} {args.topics}"] - mib[f"{state} 1"]
        return kit.Figure(f"{args.topics:,} topics beside 1: {name}", "MiB more", [more])

    return [
        figure("idle after a restart", "idle"),
        figure("in the agent that created and used all", "created"),
        figure(f"a stream of each beside {args.topics:,} streams of one", "listened"),
    ]


def listened(agent: Agent, topics: int, streams: int) -> float:
    with start("listen", agent.port, topics, streams) as listeners:
        assert listeners.stdout is not None
        listeners.stdout.readline()
        touch(agent, topics)
        mib = settled(agent)
        result(listeners)
    return mib


def settled(agent: Agent) -> float:
    """Return the resident memory in MiB after the agent answered all requests so far."""
    agent.status()
    return kit.resident_mib(agent.process.pid)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="processes that publish")
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--rate", type=int, default=200, help="messages per second to consumers")
    parser.add_argument("--topics", type=int, default=10_000, help="topics in memory")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of the oplog")
    parser.add_argument(
        "--before", type=Path, help="checkout of the build to compare the oplog with"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.consumers, args.topics, args.repeat = 1.0, 10, 200, 1
    if args.before:
        args.before = args.before.resolve()
    parts: dict[str, Callable[[argparse.Namespace], list[kit.Figure]]] = {
        "publish": publish, "oplog": oplog, "read": read, "memory": memory,
    }  # fmt: skip
    figures = [figure for name in args.only for figure in parts[name](args)]
    kit.finish(f"Messages of {PAYLOAD_BYTES} bytes, SQLite", figures, args)


if __name__ == "__main__":
    main()

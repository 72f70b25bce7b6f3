"""Compare messages under pointers of foreign transactions with plain ones, each in the same run.

First the rate of publishes of 1 and of 100 messages. Then the time to store many messages and
publish them together, beside plain publishes of the same requests. Then the CPU time of the server
for each plain message while a pointer holds many committed streams of its topic, beside the same
streams that are not held, and beside a single held one. The load comes from processes of its own,
so on two cores server and load share the machine.

    python -m tests.bench.bench_pointers [--quick] [--only publish ...]
"""

import argparse
import http.client
import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from oplogd.server import raise_file_limit
from tests.bench import kit
from tests.bench.bench_topics import Rate, agent_with, measure, result, start
from tests.bench.topic_load import PAYLOAD_BYTES, topic_path
from tests.kits.agents.agent import Agent

PARTS = ("publish", "store", "held")
POINTER = 7
COMMITTED = "?isolation=read_committed"


def publish(args: argparse.Namespace) -> str:
    ratios = []
    for messages in (1, 100):
        rates: dict[str, list[Rate]] = {"topics": [], "pointers": []}
        for _ in range(args.repeat):  # in turn, so that a change of the machine meets both
            for kind, found in rates.items():
                with agent_with(1) as agent:
                    found.append(measure(kind, agent.port, agent.process.pid, 1, messages, args))
                print(f"  {messages} per request, {kind}: {found[-1]}", flush=True)
        plain, under = (statistics.median(r.messages for r in each) for each in rates.values())
        ratios.append(f"{under / plain:.2f} of plain ({messages} per request)")
    return f"Publishes under a pointer, {args.connections} connections: {', '.join(ratios)}"


class Line:
    """A connection to an agent that stays open."""

    def __init__(self, agent: Agent) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", agent.port)

    def post(self, action: str, body: Mapping[str, object]) -> None:
        headers = {"Content-Type": "application/json"}
        path = f"{topic_path(0)}/{action}"
        self._connection.request("POST", path, json.dumps(body).encode(), headers)
        with self._connection.getresponse() as response:
            assert response.status == 200, response.read()
            response.read()

    def close(self) -> None:
        self._connection.close()


def store(args: argparse.Namespace) -> str:
    under = {"transactionWritePointer": POINTER}
    messages = {"messages": ["x" * PAYLOAD_BYTES] * args.batch}
    took: dict[str, list[float]] = {"plain": [], "stored": []}
    publishes: list[float] = []
    for _ in range(args.repeat):
        for kind, found in took.items():
            with agent_with(1) as agent, closing(Line(agent)) as line:
                line.post("publish", messages)  # the first request of an agent takes longer
                began = time.perf_counter()
                for _ in range(args.messages // args.batch):
                    if kind == "plain":
                        line.post("publish", messages)
                    else:
                        line.post("store", {**under, **messages})
                if kind == "stored":
                    stored = time.perf_counter()
                    line.post("publish", under)
                    publishes.append(time.perf_counter() - stored)
                found.append(time.perf_counter() - began)
            print(f"  {args.messages:,} messages, {kind}: {found[-1]:.3f} s", flush=True)
    plain, stored_ = (statistics.median(each) for each in took.values())
    return (
        f"Storing and publishing {args.messages:,} messages, {args.batch:,} per request:"
        f" {stored_ / plain:.2f} of the time of plain publishes; the publish itself took"
        f" {1000 * statistics.median(publishes):.1f} ms"
    )


def held(args: argparse.Namespace) -> str:
    raise_file_limit()
    costs: dict[str, list[float]] = {"one held": [], "held": [], "not held": []}
    for _ in range(args.repeat):
        for state, found in costs.items():
            found.append(cost(args, state))
            print(f"  {state}: {found[-1]:.2f} ms of CPU for each message", flush=True)
    one, held_, free = (statistics.median(each) for each in costs.values())
    return (
        f"CPU time for a message beside {args.consumers:,} held committed streams:"
        f" {held_ / free:.3f} of that beside as many that are not held,"
        f" {held_ / one:.2f} of that beside one"
    )


def cost(args: argparse.Namespace, state: str) -> float:
    """Return ms of CPU of the server for each plain message."""
    count = int(args.rate * args.seconds)
    streams = 1 if state == "one held" else args.consumers
    with (
        agent_with(1, "--max-clients", str(args.consumers + 1)) as agent,
        start("listen", agent.port, 1, streams, COMMITTED) as listeners,
        closing(Line(agent)) as line,
    ):
        assert listeners.stdout is not None
        listeners.stdout.readline()
        line.post("publish", {"messages": ["a"]})
        if state != "not held":
            line.post("publish", {"transactionWritePointer": POINTER, "messages": ["b"]})
            agent.wait_status(held_consumers=streams)
        cpu = kit.cpu_seconds(agent.process.pid)
        result(start("stamped", agent.port, args.rate, count))
        took = kit.cpu_seconds(agent.process.pid) - cpu
        if state != "not held":
            agent.wait_status(held_consumers=streams)
        result(listeners)
    return 1000 * took / count


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--processes", type=int, default=1, help="processes that publish")
    parser.add_argument("--messages", type=int, default=20_000, help="messages to store")
    parser.add_argument("--batch", type=int, default=1_000, help="messages in a request of those")
    parser.add_argument("--consumers", type=int, default=1_000, help="streams that are held")
    parser.add_argument("--rate", type=int, default=20, help="messages per second beside streams")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each kind")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.messages, args.consumers, args.repeat = 1.0, 2_000, 50, 1
    parts: dict[str, Callable[[argparse.Namespace], str]] = {
        "publish": publish, "store": store, "held": held,
    }  # fmt: skip
    lines = [parts[name](args) for name in args.only]
    print(f"Messages of {PAYLOAD_BYTES} bytes, SQLite:", *lines, sep="\n")


if __name__ == "__main__":
    main()

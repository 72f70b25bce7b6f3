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
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from oplogd.server import raise_file_limit
from tests.bench import kit
from tests.bench.bench_topics import Rate, agent_with, measure, result, start
from tests.bench.topic_load import PAYLOAD_BYTES, topic_path
from tests.kits.agents.agent import Agent

PARTS = ("publish", "store", "held")
POINTER = 7
PLAIN, UNDER = "plain publishes", "under a pointer"
HELD, FREE, ONE_HELD = "held", "as many that are not held", "one held stream"
COMMITTED = "?isolation=read_committed"


def publish(args: argparse.Namespace) -> list[kit.Figure]:
    def rate(kind: str, messages: int) -> Rate:
        with agent_with(1) as agent:
            return measure(kind, agent.port, agent.process.pid, 1, messages, args)

    figures = []
    for messages in (1, 100):
        kinds = {
            PLAIN: partial(rate, "topics", messages),
            UNDER: partial(rate, "pointers", messages),
        }
        found = kit.in_turn(kinds, args.repeat, f"{messages} per request, ")
        name = f"publishes of {messages} under a pointer"
        figures.append(kit.compared(name, "messages/s", UNDER, found, lambda each: each.messages))
    return figures


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


def store(args: argparse.Namespace) -> list[kit.Figure]:
    under = {"transactionWritePointer": POINTER}
    messages = {"messages": ["x" * PAYLOAD_BYTES] * args.batch}
    publishes: list[float] = []

    def seconds(kind: str) -> float:
        with agent_with(1) as agent, closing(Line(agent)) as line:
            line.post("publish", messages)  # the first request of an agent takes longer
            began = time.perf_counter()
            for _ in range(args.messages // args.batch):
                if kind == PLAIN:
                    line.post("publish", messages)
                else:
                    line.post("store", {**under, **messages})
            if kind == UNDER:
                stored = time.perf_counter()
                line.post("publish", under)
                publishes.append(1000 * (time.perf_counter() - stored))
            return time.perf_counter() - began

    kinds = {kind: partial(seconds, kind) for kind in (PLAIN, UNDER)}
    found = kit.in_turn(kinds, args.repeat, f"seconds for {args.messages:,} messages, ")
    name = f"storing {args.messages:,} messages, {args.batch:,} per request, and publishing them"
    return [
        kit.compared(name, "s", UNDER, found, float),
        kit.Figure("the publish of these alone", "ms", publishes),
    ]


def held(args: argparse.Namespace) -> list[kit.Figure]:
    raise_file_limit()
    kinds = {state: partial(cost, args, state) for state in (HELD, FREE, ONE_HELD)}
    found = kit.in_turn(kinds, args.repeat, "ms of CPU for a message, ")
    name = f"a message beside {args.consumers:,} held committed streams"
    return [kit.compared(name, "ms of CPU", HELD, found, float)]


def cost(args: argparse.Namespace, state: str) -> float:
    """Return ms of CPU of the server for each plain message."""
    count = int(args.rate * args.seconds)
    streams = 1 if state == ONE_HELD else args.consumers
    with (
        agent_with(1, "--max-clients", str(args.consumers + 1)) as agent,
        start("listen", agent.port, 1, streams, COMMITTED) as listeners,
        closing(Line(agent)) as line,
    ):
        assert listeners.stdout is not None
        listeners.stdout.readline()
        line.post("publish", {"messages": ["a"]})
        if state != FREE:
            line.post("publish", {"transactionWritePointer": POINTER, "messages": ["b"]})
            agent.wait_status(held_consumers=streams)
        cpu = kit.cpu_seconds(agent.process.pid)
        result(start("stamped", agent.port, args.rate, count))
        took = kit.cpu_seconds(agent.process.pid) - cpu
        if state != FREE:
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
    parts: dict[str, Callable[[argparse.Namespace], list[kit.Figure]]] = {
        "publish": publish, "store": store, "held": held,
    }  # fmt: skip
    figures = [figure for name in args.only for figure in parts[name](args)]
    kit.finish(f"Messages of {PAYLOAD_BYTES} bytes, SQLite", figures, args)


if __name__ == "__main__":
    main()

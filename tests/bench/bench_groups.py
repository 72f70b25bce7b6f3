"""Measure the price of positions that the agent keeps for named consumers.

Acknowledgements over connections that stay open, one consumer each, beside posts of one operation,
and beside a bare server in Python with the same requests. All take turns, each with an empty store.
Then an agent with 10,000 named consumers at rest, whose metrics are read every second, beside one
without any. The load is a program in Go on the same machine.

    python -m tests.bench.bench_groups [--quick]
"""

import argparse
import functools
import http.client
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import bench_http, kit
from tests.bench.go_programs import go_build
from tests.bench.topic_load import HOST, http_request, oplog_request
from tests.kits.agents.agent import NewAgent
from tests.kits.servers.room import UnavailableError

ACKNOWLEDGEMENTS, POSTS, BARE = "acknowledgements", "posts of one operation", "bare uvicorn"
NAMED, NONE = "with named consumers", "without"

# Within a replication each acknowledgement is a write, also of the same id.
_ID = "1700000000000"


def name(number: int) -> str:
    return f"consumer-{number}"


def acknowledgement(number: int) -> bytes:
    body = {"shard": 0, "term": 1, "id": _ID}
    return http_request(f"/v1/consumers/{name(number)}/position", json.dumps(body).encode())


@contextmanager
def agent(consumers: int, *, is_read: bool) -> Iterator[tuple[int, int]]:
    """Run an agent with named consumers. ``is_read``: each has had a reader, with term 1."""
    with tempfile.TemporaryDirectory() as folder, NewAgent(Path(folder)) as started:
        connection = http.client.HTTPConnection(HOST, started.port, timeout=10)
        started.post([{"event": "insert", "type": "video", "id": "x"}])
        body = json.dumps({"log": "system/oplog", "start": "now"})
        for number in range(consumers):
            path = f"/v1/consumers/{name(number)}"
            connection.request("PUT", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()
            answer.read()
            if is_read:
                reader = http.client.HTTPConnection(HOST, started.port, timeout=10)
                reader.request("GET", f"{path}/stream", headers={"Accept": "text/event-stream"})
                assert reader.getresponse().getheader("Oplog-Term") == "1"
                reader.close()
        connection.close()
        yield started.port, started.pid


def rate(kind: str, load: Path, args: argparse.Namespace) -> bench_http.Rate:
    if kind == POSTS:
        run = functools.partial(agent, 0, is_read=False)
        target = bench_http.Target(run, "http", lambda number: oplog_request(number, 1))
    elif kind == BARE:
        target = bench_http.Target(
            functools.partial(kit.serving, "bare_uvicorn"), "http", acknowledgement
        )
    else:
        run = functools.partial(agent, args.connections, is_read=True)
        target = bench_http.Target(run, "http", acknowledgement)
    with target.run() as (port, pid):
        return bench_http.measure(load, target, port, pid, args)


def at_rest(consumers: int, args: argparse.Namespace) -> float:
    """Return the CPU seconds per second of an agent whose metrics are read every second."""
    with agent(consumers, is_read=False) as (port, pid):
        cpu, began = kit.cpu_seconds(pid), time.monotonic()
        for second in range(int(args.seconds)):
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            connection = http.client.HTTPConnection(HOST, port, timeout=10)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 200
            connection.close()
        return (kit.cpu_seconds(pid) - cpu) / (time.monotonic() - began)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--consumers", type=int, default=10_000, help="named consumers at rest")
    parser.add_argument("--repeat", type=int, default=3, help="turns of all kinds")
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.repeat, args.consumers = 1.0, 1, 100
    try:
        load = go_build("load")
    except UnavailableError as error:
        raise SystemExit(f"No figures without the load: {error}") from None
    kinds = (ACKNOWLEDGEMENTS, POSTS, BARE)
    rates = kit.in_turn(
        {kind: functools.partial(rate, kind, load, args) for kind in kinds}, args.repeat
    )
    rest = kit.in_turn(
        {
            NAMED: functools.partial(at_rest, args.consumers, args),
            NONE: functools.partial(at_rest, 0, args),
        },
        args.repeat,
        "at rest, ",
    )
    figures = [
        kit.compared("requests", "requests/s", ACKNOWLEDGEMENTS, rates, lambda each: each.requests),
        kit.compared(
            "a request: server", "µs of CPU", ACKNOWLEDGEMENTS, rates, lambda each: each.cpu_us
        ),
        kit.compared(
            f"{args.consumers:,} named consumers at rest", "% of a core", NAMED, rest,
            lambda each: 100 * each,
        ),
    ]  # fmt: skip
    kit.finish(f"{args.connections} connections, SQLite", figures, args)


if __name__ == "__main__":
    main()

"""Compare transactions with MULTI and EXEC of Redis, and plain publishing with itself meanwhile.

Transactions per second of 1, 3, 10 and 1,000 records over 1 and 10 topics: in one request, and in
three of which each is durable before its answer (begin, records, commit). Redis has every EXEC on
disk before its answer, too (appendfsync always); it gets the transaction in one send. Then the rate
of plain publishes, alone and beside transactions in one request and in three. The load comes from
processes of its own, so on two cores server and load share the machine.

    python -m tests.bench.bench_transactions [--quick] [--records 3]
"""

import argparse
import itertools
import subprocess

from tests.bench import kit
from tests.bench.bench_topics import Times, agent_with, measure, redis, result
from tests.bench.redis_server import is_installed
from tests.bench.topic_load import PAYLOAD_BYTES

RECORDS = (1, 3, 10, 1_000)
TOPICS = (1, 10)
# Kinds of load, and requests of a transaction.
KINDS = {"whole": "one request", "agent": "three requests"}
# Records and topics of the transactions beside plain publishing.
BESIDE = (10, 10)


def start(
    kind: str, port: int, topics: int, records: int, args: argparse.Namespace, seconds: float
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        kit.command("transaction_load", kind, port, args.connections, topics, records, seconds),
        stdout=subprocess.PIPE, text=True, cwd=kit.ROOT,
    )  # fmt: skip


def rate(
    kind: str, port: int, topics: int, records: int, args: argparse.Namespace
) -> tuple[float, Times]:
    took = Times(result(start(kind, port, topics, records, args, args.seconds))["latencies"])
    return len(took) / args.seconds, took


def transactions(args: argparse.Namespace) -> list[kit.Figure]:
    if not is_installed():
        print("No comparison: redis-server is missing (Debian: apt install redis-server).")
    figures = []
    for records, topics in itertools.product(args.records, TOPICS):
        name = f"{records:,} records in {topics} topics"
        found = {}
        for kind, requests in KINDS.items():
            with agent_with(topics) as agent:
                found[kind], took = rate(kind, agent.port, topics, records, args)
            print(f"  {name}, {requests}: {found[kind]:,.0f} transactions/s ({took})", flush=True)
        beside = {KINDS["agent"]: [found["agent"]]}
        if is_installed():
            with redis() as (port, _):
                theirs, took = rate("redis", port, topics, records, args)
            print(f"  {name}: Redis {theirs:,.0f} transactions/s ({took})", flush=True)
            beside["Redis"] = [theirs]
        unit = "transactions/s"
        figures.append(kit.Figure(f"{name}, {KINDS['whole']}", unit, [found["whole"]], beside))
    return figures


def publishing(kind: str, args: argparse.Namespace) -> kit.Figure:
    records, topics = BESIDE
    with agent_with(topics) as agent:
        alone = measure("topics", agent.port, agent.process.pid, topics, 1, args)
        beside = start(kind, agent.port, topics, records, args, args.seconds + 1)
        during = measure("topics", agent.port, agent.process.pid, topics, 1, args)
        count = len(Times(result(beside)["latencies"])) / (args.seconds + 1)
    print(f"  publishing alone: {alone}", flush=True)
    print(f"  beside {count:,.0f} transactions/s in {KINDS[kind]}: {during}", flush=True)
    name = f"publishing one message a call beside transactions of {records} records in"
    beside_alone = {"it alone": [alone.messages]}
    return kit.Figure(f"{name} {KINDS[kind]}", "messages/s", [during.messages], beside_alone)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--processes", type=int, default=1, help="processes that publish")
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--quick", action="store_true", help="short, to try it")
    args = parser.parse_args()
    if args.quick:
        args.seconds = 1.0
    figures = [*transactions(args), *(publishing(kind, args) for kind in KINDS)]
    kit.finish(
        f"{args.connections} connections, records of {PAYLOAD_BYTES} bytes, SQLite", figures, args
    )


if __name__ == "__main__":
    main()

"""Compare the relay with a plain loop and with the limit of PostgreSQL, then measure its latency.

The rows are inserted before. Then, in turns and with fsync on:

- limit: the same rows are inserted, and deleted in batches of 100, by one connection.
- loop: a process selects, publishes and deletes 100 rows at a time, without any order per key
  beside a second process. See ``plain_loop``.
- relay: ``oplog-relay run`` with the limits of ``--limits``.

Loop and relay are measured from the first row to the last one that a consumer, in a process of its
own, reads from the agent, which is on SQLite. Latency: rows are inserted at an even rate, each in a
transaction of its own; from the end of the COMMIT to the consumer. PostgreSQL, agent, relay, load
and consumer share the machine.

    python -m tests.bench.bench_relay [--rows 30000] [--turns 3] [--quick] [--only rate latency]
"""

import argparse
import asyncio
import functools
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from oplog_relay.db.schema import ddl
from tests.bench import kit
from tests.bench.plain_loop import BATCH, BEGINS
from tests.bench.topic_load import PAYLOAD_BYTES, Follower, open_streams, topic_path
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.relay.processes import RelayProcess, write_settings
from tests.kits.servers.postgres import PostgresServer

TOPIC = "bench/t0"
PARTS = ("rate", "latency")
OURS, LOOP, LIMIT = "relay", "a plain loop", "PostgreSQL alone"
_NUMBER = re.compile(rb'"payload":"(\d{19}) ')
_INSERT = "INSERT INTO outbox (topic, key, value, header_keys, header_values)"
_CONNECTIONS = 8


class Run(NamedTuple):
    """Rows per second, and the CPU time per row of the process that moves them, in µs."""

    rate: float
    cpu_us: float
    agent_us: float = 0.0

    def __str__(self) -> str:
        agent = f", agent {self.agent_us:.0f} µs" if self.agent_us else ""
        return f"{self.rate:,.0f} rows/s (CPU {self.cpu_us:.0f} µs per row{agent})"


class Bench:
    """PostgreSQL with an outbox, an agent with a topic, and the settings of a relay."""

    def __init__(
        self, server: PostgresServer, agent: Agent, folder: Path, keys: int, **limits: object
    ) -> None:
        self.agent = agent
        self.database = server.new_database()
        self.settings = write_settings(
            folder / "relay.yaml", "bench", [agent.url], self.database, **limits
        )
        self.keys = keys
        self._db = psycopg.connect(self.database, autocommit=True)
        self._db.execute(ddl("postgres").encode())
        Topic(agent, TOPIC).create()

    def fill(self, rows: int) -> float:
        """Insert rows in one transaction, and return the seconds."""
        statement = (
            f"{_INSERT} SELECT %s, 'key ' || n %% %s, lpad(%s, 19, '0') || ' ' || repeat('x', %s),"
            " ARRAY['number'], ARRAY[n::text] FROM generate_series(1, %s) AS n"
        )
        began = time.monotonic()
        stamp = str(time.monotonic_ns())
        self._db.execute(statement.encode(), [TOPIC, self.keys, stamp, PAYLOAD_BYTES - 20, rows])
        return time.monotonic() - began

    def limit(self, rows: int) -> Run:
        seconds = self.fill(rows)
        began, cpu = time.monotonic(), time.process_time()
        left = rows
        while left:
            left -= self._db.execute(
                "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT %s)",
                [BATCH],
            ).rowcount
        seconds += time.monotonic() - began
        return Run(rows / seconds, (time.process_time() - cpu) / rows * 1e6)

    def loop(self, rows: int) -> Run:
        arguments = [self.database, self.agent.url, topic_path(0), rows]
        with self._consumer(rows) as wait, subprocess.Popen(
            kit.command("plain_loop", *arguments), cwd=kit.ROOT, stderr=subprocess.PIPE, text=True
        ) as process:  # fmt: skip
            assert process.stderr is not None
            assert process.stderr.readline().strip() == BEGINS  # the start of Python is over
            return self._measured(rows, process.pid, wait)

    def relay(self, rows: int) -> Run:
        with self._consumer(rows) as wait, RelayProcess(self.settings) as process:
            process.wait_leads()
            run = self._measured(rows, process.pid, wait)
            assert process.stop() == 0
            return run

    def _measured(self, rows: int, pid: int, wait: Callable[[], float]) -> Run:
        cpu, of_agent = kit.cpu_seconds(pid), kit.cpu_seconds(self.agent.process.pid)
        seconds = wait()
        return Run(
            rows / seconds,
            (kit.cpu_seconds(pid) - cpu) / rows * 1e6,
            (kit.cpu_seconds(self.agent.process.pid) - of_agent) / rows * 1e6,
        )

    @contextmanager
    def _consumer(self, rows: int) -> Iterator[Callable[[], float]]:
        """Fill the outbox, follow the topic in a process, yield a wait for its last row.

        The wait returns the seconds from the first row to the last.
        """
        self.fill(rows)
        arguments = kit.command("topic_load", "follow", self.agent.port, 1, rows)
        with subprocess.Popen(
            arguments, cwd=kit.ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it is connected

            def wait() -> float:
                assert process.stdout is not None
                ages: dict[str, int] = json.loads(process.stdout.readline())["ages"]
                assert sum(ages.values()) == rows
                # All rows have the same stamp, so their ages tell when each was read.
                return (max(map(float, ages)) - min(map(float, ages))) / 1000

            yield wait

    async def latency(self, rate: int, seconds: float) -> list[float]:
        """Return ms from the end of each COMMIT to the consumer."""
        count = int(rate * seconds)
        committed: dict[int, int] = {}
        arrived: dict[int, int] = {}
        done = asyncio.Event()

        def read(data: bytes) -> None:
            now = time.monotonic_ns()
            for number in _NUMBER.findall(data):
                arrived.setdefault(int(number), now)
            if len(arrived) == count:
                done.set()

        async def write(first: int) -> None:
            db = await psycopg.AsyncConnection.connect(self.database, autocommit=True)
            async with db:
                for number in range(first, count, _CONNECTIONS):
                    await asyncio.sleep(max(0, began + number / rate - time.monotonic()))
                    value = f"{number:019} {'x' * (PAYLOAD_BYTES - 20)}"
                    await db.execute(
                        f"{_INSERT} VALUES (%s, %s, %s, '{{}}', '{{}}')".encode(),
                        [TOPIC, f"key {number % self.keys}", value],
                    )
                    committed[number] = time.monotonic_ns()

        followers: list[Follower] = await open_streams(
            self.agent.port, [f"{topic_path(0)}/stream"], read
        )
        began = time.monotonic()
        await asyncio.gather(*(write(first) for first in range(_CONNECTIONS)))
        await done.wait()
        for follower in followers:
            follower.transport.close()
        return [(arrived[number] - committed[number]) / 1e6 for number in range(count)]


def rates(bench: Bench, args: argparse.Namespace) -> list[kit.Figure]:
    kinds = {LIMIT: bench.limit, LOOP: bench.loop, OURS: bench.relay}
    found = kit.in_turn(
        {name: functools.partial(measure, args.rows) for name, measure in kinds.items()}, args.turns
    )
    name = f"{args.rows:,} rows of {args.keys:,} keys"
    return [
        kit.compared(name, "rows/s", OURS, found, lambda run: run.rate),
        kit.compared(f"{name}: process", "µs of CPU", OURS, found, lambda run: run.cpu_us),
    ]


def latencies(bench: Bench, args: argparse.Namespace) -> list[kit.Figure]:
    with RelayProcess(bench.settings) as process:
        process.wait_leads()
        cpu, began = kit.cpu_seconds(process.pid), time.monotonic()
        found = asyncio.run(bench.latency(args.rate, args.seconds))
        busy = (kit.cpu_seconds(process.pid) - cpu) / (time.monotonic() - began)
        assert process.stop() == 0
    cuts = statistics.quantiles(found, n=100)
    name = f"{args.rate} rows/s, commit to consumer"
    return [
        kit.Figure(f"{name}: p50", "ms", [cuts[49]]),
        kit.Figure(f"{name}: p99", "ms", [cuts[98]]),
        kit.Figure(f"{name}: longest", "ms", [max(found)]),
        kit.Figure(f"{name}: relay", "% of a core", [100 * busy]),
    ]


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rate", type=int, default=500, help="rows per second for the latency")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of the latency")
    parser.add_argument(
        "--limits", type=json.loads, default={}, help='of the relay, such as {"shards": 4}'
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.turns, args.seconds = 2_000, 1, 2.0
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer(fsync=True) as server,
        Agent(Path(folder)) as agent,
    ):
        bench = Bench(server, agent, Path(folder), args.keys, **args.limits)
        figures: list[kit.Figure] = []
        if "rate" in args.only:
            figures += rates(bench, args)
        if "latency" in args.only:
            figures += latencies(bench, args)
    kit.finish("From the outbox to a consumer, PostgreSQL with fsync", figures, args)


if __name__ == "__main__":
    main()

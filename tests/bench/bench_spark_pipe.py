"""Measure a copy of many objects by a pipe on Spark, beside the same pipe on one machine.

A store with this many states, its agent, PostgreSQL and Spark share the machine. Prints objects per
second from the start of the queries to the end of the copy: into PostgreSQL for each number of
cores that Spark has, with the CPU seconds of server and agent, and into a table of Parquet. Then
the same table by `oplog-pipe run`, and the ratio to it. Spark reads through the
agent, or the store.

    python -m tests.bench.bench_spark_pipe [--objects 1000000] [--cores 1 2] [--through store]
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.pipe.processes import PipeFolder
from tests.kits.processes.logged import LoggedProcess
from tests.kits.servers.postgres import PostgresServer
from tests.kits.spark.large import make_store

BATCH = {"messages": 20_000, "bytes": "32 MB"}
RUN = "oplog-pipe run"
_TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, folder: Path, agent: Agent, server: PostgresServer, objects: int) -> None:
        self._folder = folder
        self._agent = agent
        self._server = server
        self._objects = objects
        self._number = 0
        self.store: str | None = None

    def spark(self, cores: int, sink: Mapping[str, Any]) -> float:
        pipe = self._pipe(sink)
        flags = ["--checkpoint", str(pipe.folder / "checkpoint"), "--master", f"local[{cores}]"]
        command = ["-m", "oplog_pipe", "spark", "-f", str(pipe.settings), "--available-now", *flags]
        before = self._cpu()
        with LoggedProcess(command) as process:
            assert process.process.wait() == 0
            process.wait()
            lines = process.log
        began = next(line for line in lines if "oplog-pipe" in line and "INFO" in line)
        # Without owners the end of a copy says nothing.
        ended = next(line for line in reversed(lines) if "is complete" in line or "stopped" in line)
        seconds = (_time(ended) - _time(began)).total_seconds()
        postgres, agent = (after - each for after, each in zip(self._cpu(), before, strict=True))
        rate = self._objects / seconds
        print(
            f"  {sink.get('type', sink.get('format'))}, {cores} cores for Spark: {rate:,.0f}"
            f" objects/s; CPU seconds: PostgreSQL {postgres:.0f}, agent {agent:.0f} of"
            f" {seconds:.0f}",
            flush=True,
        )
        return rate

    def one_machine(self, sink: Mapping[str, Any], url: str) -> float:
        pipe = self._pipe(sink)
        began = time.monotonic()
        with psycopg.connect(url, autocommit=True) as db, pipe.run() as process:
            process.wait_log("oplog-pipe")
            began = time.monotonic()
            while not (
                db.execute("SELECT to_regclass('objects')").fetchall() != [(None,)]
                and db.execute(
                    "SELECT reltuples FROM pg_class WHERE relname = 'objects'"
                ).fetchall()
                and process.count("is complete")
            ):
                time.sleep(0.5)
            seconds = time.monotonic() - began
            assert process.stop() == 0
        rate = self._objects / seconds
        print(f"  postgres, oplog-pipe run: {rate:,.0f} objects/s", flush=True)
        return rate

    def postgres(self) -> tuple[dict[str, Any], str]:
        url = self._server.new_database()
        place = {"table": "objects", "id": "{namespace}/{id}"}
        return {"name": "s", "type": "postgres", "url": url, **place, "batch": BATCH}, url

    def check(self, url: str) -> None:
        with psycopg.connect(url) as db:
            assert db.execute("SELECT count(*) FROM objects").fetchall() == [(self._objects,)]

    def _pipe(self, sink: Mapping[str, Any]) -> PipeFolder:
        self._number += 1
        folder = self._folder / f"pipe{self._number}"
        folder.mkdir()
        source = {"agents": [self._agent.url], "store": self.store}
        return PipeFolder(folder, [], [sink], name=f"p{self._number}", sources=[source])

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of PostgreSQL, with its ended processes, and of the agent."""
        pid = (self._server.folder / "data/postmaster.pid").read_text().split()[0]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS, kit.cpu_seconds(self._agent.pid)


def _time(line: str) -> datetime:
    return datetime.fromisoformat(line.split()[0])


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--through", choices=["agent", "store"], default="agent")
    given = parser.parse_args()
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    with tempfile.TemporaryDirectory() as name, PostgresServer(fsync=True) as server:
        folder = Path(name)
        make_store(folder / "oplog.db", given.objects)
        with Agent(folder) as agent:
            bench = Bench(folder, agent, server, given.objects)
            bench.store = str(folder / "oplog.db") if given.through == "store" else None
            rates = []
            for cores in given.cores:
                sink, url = bench.postgres()
                rates.append(bench.spark(cores, sink))
                bench.check(url)
            table = {"name": "s", "format": "parquet", "path": str(folder / "table")}
            parquet = bench.spark(max(given.cores), table)
            sink, url = bench.postgres()
            plain = bench.one_machine(sink, url)
            bench.check(url)
    figures = [
        kit.Figure(f"into PostgreSQL, {cores} cores for Spark", "objects/s", [rate], {RUN: [plain]})
        for rate, cores in zip(rates, given.cores, strict=True)
    ]
    figures.append(kit.Figure("into Parquet", "objects/s", [parquet]))
    kit.finish(f"{given.objects:,} objects", figures, given)


if __name__ == "__main__":
    main()

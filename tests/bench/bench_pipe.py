"""Compare the pipe with `oplog-tail` and with PostgreSQL's COPY, then measure its memory.

Rates: an agent on SQLite replicates its objects. In turns:

- tail: `oplog-tail --start 0 --json > file`, which keeps no position and syncs nothing.
- file: `oplog-pipe run` with a sink of type `file`: commit log, fsync, acknowledged offsets.
- copy: one COPY of the same rows into a table with the same columns and primary key.
- postgres: `oplog-pipe run` with a sink of type `postgres`.

Each is measured from its first line or row to its last; copy from begin to end. Memory: the pipe
reads a commit log of --gigabytes to its end, with a sink that forgets everything. Everything shares
the machine.

    python -m tests.bench.bench_pipe [--objects 200000] [--turns 3] [--gigabytes 10]
                                     [--only rate memory] [--quick]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psycopg

from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog
from oplog_pipe.model.record import EntryRecord, encode_record
from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.pipe.processes import PipeFolder
from tests.kits.servers.postgres import PostgresServer

PARTS = ("rate", "memory")
TAIL, FILE, COPY, POSTGRES = "oplog-tail", "file sink", "one COPY", "PostgreSQL sink"
_DATA_BYTES = 10_000
_BATCH = 1000
_FORGET = """\
class Forget:
    def open(self): pass
    def write(self, messages): pass
    def begin_copy(self, generation, source): pass
    def end_copy(self, generation, source): pass
    def close(self): pass
"""


class Run(NamedTuple):
    """Messages per second, and the CPU time per message of the measured process, in µs."""

    rate: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f} messages/s (CPU {self.cpu_us:.1f} µs each)"


class Bench:
    def __init__(self, agent: Agent, server: PostgresServer, folder: Path, objects: int) -> None:
        self._agent, self._server, self._folder, self._objects = agent, server, folder, objects
        for first in range(0, objects, 10_000):
            lines = (
                json.dumps(
                    {"event": "insert", "type": "video", "id": f"x{number:08}",
                     "parents": [f"p{number % 1000}"]}
                )
                for number in range(first, min(first + 10_000, objects))
            )  # fmt: skip
            headers = {"Content-Type": "application/x-ndjson"}
            assert agent.post("\n".join(lines).encode(), headers) == 200
        self._number = 0

    def tail(self) -> Run:
        path = self._folder / "tail.jsonl"
        with path.open("wb") as file, subprocess.Popen(
            [sys.executable, "-m", "oplogc.tail", "--from", "0", "--json", self._agent.url],
            stdout=file,
            stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            run = self._measured(process.pid, lambda: _lines(path, self._objects + 2), path)
            process.kill()
        return run

    def file(self) -> Run:
        folder = self._new_folder()
        pipe = PipeFolder(
            folder, [self._agent.url], [{"name": "copy", "type": "file", "path": "out.jsonl"}]
        )
        path = folder / "out.jsonl"
        with pipe.run() as process:
            run = self._measured(process.pid, lambda: _lines(path, self._objects), path)
            assert process.stop() == 0
        return run

    def copy(self) -> Run:
        rows = [
            (f"x{number:08}", number, "system/oplog", "2026-01-31T12:00:00Z",
             json.dumps({"timestamp": "2026-01-31T12:00:00.000Z", "parents": [f"p{number % 1000}"],
                         "type": "video", "id": f"x{number:08}"}))
            for number in range(self._objects)
        ]  # fmt: skip
        with psycopg.connect(self._server.new_database()) as db:
            db.execute(
                "CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
                " timestamp timestamptz, data jsonb)"
            )
            began, cpu = time.monotonic(), time.process_time()
            with db.cursor().copy("COPY video FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            db.commit()
            seconds = time.monotonic() - began
        used = time.process_time() - cpu
        return Run(self._objects / seconds, used / self._objects * 1e6)

    def postgres(self) -> Run:
        url = self._server.new_database()
        pipe = PipeFolder(
            self._new_folder(), [self._agent.url], [{"name": "pg", "type": "postgres", "url": url}]
        )
        last = f"SELECT FROM video WHERE id = 'x{self._objects - 1:08}'".encode()
        with psycopg.connect(url, autocommit=True) as db, pipe.run() as process:

            def rows() -> bool:
                (row,) = db.execute("SELECT to_regclass('video') IS NOT NULL").fetchall()
                # To count the rows each time would cost as much as a lane of the sink.
                if not row[0] or not db.execute(last).fetchall():
                    return False
                return db.execute("SELECT count(*) FROM video").fetchall() == [(self._objects,)]

            run = self._measured(process.pid, rows, None)
            assert process.stop() == 0
        return run

    def _measured(self, pid: int, is_complete: Callable[[], bool], path: Path | None) -> Run:
        """Measure from the first byte of the file, or from now, until everything is there."""
        while path is not None and not (path.exists() and path.stat().st_size):
            time.sleep(0.001)
        began, cpu = time.monotonic(), kit.cpu_seconds(pid)
        while not is_complete():
            time.sleep(0.02)
        seconds = time.monotonic() - began
        return Run(self._objects / seconds, (kit.cpu_seconds(pid) - cpu) / self._objects * 1e6)

    def _new_folder(self) -> Path:
        self._number += 1
        folder = self._folder / f"pipe{self._number}"
        folder.mkdir()
        return folder


def rates(objects: int, turns: int) -> list[kit.Figure]:
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer(fsync=True) as server,
        Agent(Path(folder)) as agent,
    ):
        bench = Bench(agent, server, Path(folder), objects)
        kinds = {
            TAIL: bench.tail, FILE: bench.file, COPY: bench.copy, POSTGRES: bench.postgres,
        }  # fmt: skip
        found = kit.in_turn(kinds, turns)

    def figure(name: str, ours: str, other: str) -> list[kit.Figure]:
        two = {each: found[each] for each in (ours, other)}
        return [
            kit.compared(name, "messages/s", ours, two, lambda run: run.rate),
            kit.compared(
                f"{name}: pipe", "µs of CPU", ours, {ours: found[ours]}, lambda run: run.cpu_us
            ),
        ]

    return [
        *figure("into a file", FILE, TAIL),
        *figure("into PostgreSQL with fsync", POSTGRES, COPY),
    ]


def memory(gigabytes: float) -> list[kit.Figure]:
    """Fill a commit log, then let a pipe read all of it."""
    with tempfile.TemporaryDirectory() as name, Agent(Path(name)) as agent:
        folder = Path(name) / "pipe"
        folder.mkdir()
        sink = {"name": "forget", "type": "forget:Forget"}
        pipe = PipeFolder(folder, [agent.url], [sink])
        (folder / "forget.py").write_text(_FORGET)
        log = CommitLog.open(pipe.log)
        data = b'{"x":"' + b"x" * _DATA_BYTES + b'"}'
        count = int(gigabytes * 1e9 / _DATA_BYTES)
        for first in range(0, count, _BATCH):
            log.append(
                [
                    NewEntry(
                        0, Mode.SYNC, "video",
                        encode_record(EntryRecord("filled", "1", "insert", f"x{number}"))[:-1]
                        + b',"data":' + data + b"}",
                    )
                    for number in range(first, first + _BATCH)
                ]
            )  # fmt: skip
        end = log.end
        log.close()
        offsets = OffsetLog.open(pipe.log, "forget")
        offsets.write({"": -1})  # a sink that is known and has read nothing
        offsets.close()
        began, peak = time.monotonic(), 0.0
        with pipe.run() as process:
            while pipe.status()["sinks"][0]["flushed"] < end - 1:
                peak = max(peak, kit.resident_mib(process.pid))
            seconds = time.monotonic() - began
            after = kit.resident_mib(process.pid)
            assert process.stop() == 0
    name = f"{gigabytes:g} GB in the commit log"
    return [
        kit.Figure(f"{name}: largest memory while a sink reads it", "MiB", [peak]),
        kit.Figure(f"{name}: memory afterwards", "MiB", [after]),
        kit.Figure(f"{name}: the read", "s", [seconds]),
    ]


def _lines(path: Path, count: int) -> bool:
    """Return whether a file has so many lines."""
    ended = subprocess.run(["wc", "-l", path], capture_output=True, text=True, check=True)
    return int(ended.stdout.split()[0]) >= count


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args: argparse.Namespace = parser.parse_args()
    if args.quick:
        args.objects, args.turns, args.gigabytes = 5_000, 1, 0.1
    figures: list[kit.Figure] = []
    if "rate" in args.only:
        figures += rates(args.objects, args.turns)
    if "memory" in args.only:
        figures += memory(args.gigabytes)
    kit.finish(f"{args.objects:,} objects from an agent on SQLite", figures, args)


if __name__ == "__main__":
    main()

"""Compare oplog-sync with a dictionary diff in one Python process, on the same files.

A store of live objects is compared with a dump of as many: 1 % are changed, 1 % new, 1 % missing.
The corrections are emitted. The dictionary diff reads the same dump and store, applies the same
rules and emits nothing. Prints wall time, CPU time and peak memory of each process tree, Java
included (shared pages count once), and their ratios.

    python -m tests.bench.bench_sync [--objects 1000000] [--large] [--memory 2g]
                                     [--least-heap] [--mongo-url URL] [--dry-run]
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import MongoClient

from oplogd.model.operation import decode
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import LOG, META, STATES
from tests.bench import kit
from tests.kits.spark.large import NEW, OLD, data, make_store

PARTS = 8


class RunCost(NamedTuple):
    """Wall time, CPU time and peak memory of a process tree."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


class FailedRun(Exception):
    """A command has failed."""


def make_dump(dump: Path, objects: int) -> None:
    dump.mkdir()
    for part in range(PARTS):
        with (dump / f"part-{part}.jsonl").open("w") as file:
            for n in range(part, objects, PARTS):
                if n % 100 != 1:
                    file.write(data(n, NEW if n % 100 == 2 else OLD) + "\n")
                if n % 100 == 3:
                    file.write(data(objects + n, NEW) + "\n")


def make_states(url: str, objects: int) -> None:
    """Make the same store in MongoDB. All states have the offset of the only entry in the log."""

    async def begin() -> None:
        store = MongoStore(url, collection="plain")
        await store.open()
        await store.append(
            [decode((json.dumps(json.loads(data(0, OLD)) | {"event": "insert"})).encode(), OLD)]
        )
        await store.close()

    asyncio.run(begin())
    at = datetime.fromisoformat(OLD)
    with MongoClient[dict[str, Any]](url) as client:
        states = client.get_default_database()[STATES]
        if states.count_documents({}) == 0:  # the store was closed before it folded the log
            states.insert_one(state(0, at))
        for first in range(1, objects, 5000):
            batch = [state(n, at) for n in range(first, min(first + 5000, objects))]
            states.insert_many(batch, ordered=False)


def state(n: int, at: datetime) -> dict[str, Any]:
    fields = {"ts": at, "p": [f"user/{n % 9973}"], "t": "video", "id": f"x{n * 7919:010x}"}
    return {"_id": f"video/{fields['id']}", "event": "insert", "ts": at, "data": fields, "n": 1}


def drop(url: str) -> None:
    with MongoClient[dict[str, Any]](url) as client:
        for name in (LOG, STATES, META):
            client.get_default_database()[name].drop()


SQLITE_STATES = """
import sqlite3
def states(store):
    rows = sqlite3.connect(store).execute("SELECT key, deleted, data FROM states")
    for key, deleted, data in rows:
        yield key, deleted, json.loads(data)["timestamp"]
"""
MONGO_STATES = """
from pymongo import MongoClient
def states(url):
    for found in MongoClient(url).get_default_database()["oplog_states"].find().batch_size(10000):
        timestamp = found["data"]["ts"].isoformat(timespec="milliseconds") + "Z"
        yield found["_id"], found["event"] == "delete", timestamp
"""
DICTIONARY_DIFF = """
import json, pathlib, sys
rows, newest, found = {}, "", [0, 0, 0]
for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
    for line in path.open():
        row = json.loads(line)
        rows[row["type"].lower() + "/" + row["id"]] = row["timestamp"], row["parents"]
        newest = max(newest, row["timestamp"])
for key, deleted, known in states(sys.argv[1]):
    row = rows.pop(key, None)
    if row is None:
        found[2] += not deleted and known < newest
    elif row[0] > known:
        found[0 if deleted else 1] += 1
found[0] += len(rows)
print(*found)
"""


def measured(command: list[str], environ: dict[str, str]) -> tuple[RunCost, str]:
    """Run a command. Return the cost of its process tree, sampled every 0.3 s, and its output."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    peak = 0
    ticks: dict[int, int] = {}
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.3):
            found = dict(family(process.pid))
            ticks.update(found)
            peak = max(peak, sum(pss(pid) for pid in found))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, errors = process.communicate()
    seconds = time.monotonic() - started
    done.set()
    watcher.join()
    if process.returncode:
        raise FailedRun(f"{command[:3]} ended with {process.returncode}: {errors}")
    cpu_seconds = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
    return RunCost(seconds, cpu_seconds, peak / 1024), output


def family(root: int) -> Iterator[tuple[int, int]]:
    """Yield a process and its descendants, each with the ticks of its own CPU time."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for process in os.listdir("/proc"):
        if not process.isdecimal():
            continue
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(process)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = int(fields[11]) + int(fields[12])
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid, ticks.get(pid, 0)
        waiting += children.get(pid, [])


def pss(pid: int) -> int:
    """Return the memory of a process in KiB. A shared page is divided among its users."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def compare(
    objects: int, memory: str, url: str | None, flags: list[str]
) -> tuple[RunCost, list[kit.Figure]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump = folder / "dump"
        make_dump(dump, objects)
        if url is None:
            store, flag, states = str(folder / "oplog.db"), "--store", SQLITE_STATES
            make_store(Path(store), objects)
        else:
            store, flag, states = url, "--mongo-url", MONGO_STATES
            drop(url)
            make_states(url, objects)
        script = states + DICTIONARY_DIFF
        plain, found = measured([sys.executable, "-c", script, store, str(dump)], dict(os.environ))
        expected = [objects // 100] * 3
        assert [int(number) for number in found.split()] == expected, found
        environ = os.environ | {
            "SPARK_DRIVER_MEMORY": memory,
            "SPARK_LOCAL_DIRS": name,
        }
        command = [
            sys.executable,
            "-m",
            "oplog_sync",
            flag,
            store,
            "--master",
            "local[2]",
            *flags,
            str(dump),
        ]
        job, table = measured(command, environ)
        assert [int(n.replace(",", "")) for n in table.splitlines()[1].split()[1:4]] == expected, (
            table
        )
        if url is not None:
            drop(url)
    print(f"{objects:>12,} objects        seconds      CPU   peak MiB")
    for title, cost in (("one Python dictionary", plain), ("oplog-sync", job)):
        print(
            f"  {title:<24} {cost.seconds:>8.1f} {cost.cpu_seconds:>8.1f} {cost.peak_mib:>10,.0f}"
        )
    costs = {"oplog-sync": [job], "one Python dictionary": [plain]}
    name = f"{objects:,} objects"
    return job, [
        kit.compared(f"{name}: time", "s", "oplog-sync", costs, lambda cost: cost.seconds),
        kit.compared(
            f"{name}: CPU time", "CPU s", "oplog-sync", costs, lambda cost: cost.cpu_seconds
        ),
        kit.compared(f"{name}: memory", "MiB", "oplog-sync", costs, lambda cost: cost.peak_mib),
    ]


def least_heap(objects: int, memory: str, url: str | None, flags: list[str]) -> int:
    """Return the smallest of the halves of a heap that works, in MiB."""
    size = int(memory[:-1]) * (1024 if memory.endswith("g") else 1)
    while True:
        try:
            compare(objects, f"{size // 2}m", url, flags)
        except FailedRun:
            return size
        size //= 2


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument(
        "--large",
        action="store_true",
        help="also run with ten times the objects; 10 million need 8 GB in the temporary folder",
    )
    parser.add_argument(
        "--memory",
        default="2g",
        help="the most that Java's heap may grow to, as in SPARK_DRIVER_MEMORY",
    )
    parser.add_argument(
        "--least-heap",
        action="store_true",
        help="then halve the heap until the job fails, and print the least heap that works",
    )
    parser.add_argument(
        "--mongo-url",
        help="use a store with a plain log in this database; its oplog is dropped before and after",
    )
    parser.add_argument(
        "--dry-run",
        action="store_const",
        const=["--dry-run"],
        default=[],
        help="emit nothing: the tests' MongoDB stand-in is slow at corrections",
    )
    given = parser.parse_args()
    small, figures = compare(given.objects, given.memory, given.mongo_url, given.dry_run)
    if given.least_heap:
        least = least_heap(given.objects, given.memory, given.mongo_url, given.dry_run)
        figures.append(kit.Figure(f"{given.objects:,} objects: least heap", "MiB", [least]))
    if given.large:
        large, more = compare(10 * given.objects, given.memory, given.mongo_url, given.dry_run)
        print(f"ten times the objects: {large.seconds / small.seconds:.1f} times the time, "
              f"{large.peak_mib / small.peak_mib:.2f} times the memory")  # fmt: skip
        figures += more
    kit.finish("oplog-sync on two cores", figures, given)


if __name__ == "__main__":
    main()

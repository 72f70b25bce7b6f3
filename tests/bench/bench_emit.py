"""The emission on SQLite beside an agent: in the order of a hash and of keys, with and without the pauses.

Corrects a part of a store's objects, spread evenly over all of them, from a process of its own, while operations are posted to an
agent on the same store one after another. Prints corrections per second and the times of the posts for each way of emission, first
without any, and their ratios. A post's time counts from the moment it is due, so it holds the wait for those before it. Each way
begins with a fresh copy of the store.

    PYTHONPATH=. python tests/bench/bench_emit.py [--objects 1000000] [--corrections 100000] [--posts 50]
"""

import argparse
import hashlib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from oplog_sync import apply
from oplog_sync.backend.sqlite import SqliteBackend
from oplogd.operation import Operation
from oplogd.store import MAX_CORRECTIONS, Correction, CorrectionResult
from tests.agents import Agent
from tests.bench.bench_sync import NEW, data, make_store

ALONE_SECONDS = 10.0


class Way(NamedTuple):
    """How corrections are emitted: in which order, how many at once, and whether with a pause after each batch."""

    by_key: bool
    batch: int
    pauses: bool

    @property
    def title(self) -> str:
        return f"{'by key' if self.by_key else 'by hash'}, {self.batch:,} at once{', pauses' if self.pauses else ''}"


class Figures(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float
    posts: int


SHORT = apply._SHORT_BATCH
WAYS = (
    Way(True, SHORT, True),
    Way(False, SHORT, True),
    Way(True, SHORT, False),
    Way(True, MAX_CORRECTIONS, True),
    Way(True, MAX_CORRECTIONS, False),
    Way(False, MAX_CORRECTIONS, False),
)


def emit(store: Path, objects: int, count: int, way: Way) -> float:
    """Emit so many updates and return how many a second went in."""
    apply._SHORT_BATCH = apply.MAX_CORRECTIONS = way.batch  # type: ignore[attr-defined]
    SqliteBackend.writers_wait = way.pauses
    corrections = []
    for n in range(1, objects, max(objects // count, 1)):
        raw = data(n, NEW)
        corrections.append(
            Correction(Operation("update", f"video/{json.loads(raw)['id']}", raw.encode()), n + 1)
        )
    key: Callable[[Correction], str] = lambda each: each.operation.key  # noqa: E731
    hashed: Callable[[Correction], str] = lambda each: hashlib.md5(key(each).encode()).hexdigest()  # noqa: E731
    corrections.sort(key=key if way.by_key else hashed)
    print("emitting", flush=True)
    started = time.monotonic()
    applied = sum(
        verdict == CorrectionResult.APPLIED
        for judged in apply.apply(str(store), corrections)
        for _, verdict in judged
    )
    seconds = time.monotonic() - started
    assert applied == len(corrections), (applied, len(corrections))
    return applied / seconds


def measure(folder: Path, made: Path, given: argparse.Namespace, way: Way | None) -> Figures:
    """Post to an agent until the emission is over; without one, for some seconds."""
    folder.mkdir()
    shutil.copy(made, folder / "oplog.db")
    with Agent(folder) as agent:
        connection = http.client.HTTPConnection("127.0.0.1", agent.port)
        process = None
        if way is not None:
            numbers = [str(int(number)) for number in (given.objects, given.corrections, *way)]
            command = [
                sys.executable,
                "-m",
                "tests.bench.bench_emit",
                "--emit",
                str(folder / "oplog.db"),
                *numbers,
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "emitting\n"
        took: list[float] = []
        started = time.monotonic()
        while process.poll() is None if process else time.monotonic() - started < ALONE_SECONDS:
            due = started + len(took) / given.posts
            time.sleep(max(due - time.monotonic(), 0.0))
            post(connection, len(took))
            took.append((time.monotonic() - due) * 1000)
        connection.close()
        output = process.communicate()[0] if process else "0"
        assert process is None or process.returncode == 0
    shutil.rmtree(folder)
    took.sort()
    return Figures(float(output), took[len(took) // 2], took[len(took) * 99 // 100], len(took))


def post(connection: http.client.HTTPConnection, number: int) -> None:
    body = json.dumps({"event": "insert", "type": "posted", "id": str(number)})
    connection.request("POST", "/ops", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 204, answer.status


def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder / "made.db", given.objects)
        print(f"{given.corrections:,} of {given.objects:,} objects, {given.posts} posts per second")
        found: dict[Way | None, Figures] = {}
        for way in (None, *WAYS):
            figures = found[way] = measure(folder / "run", folder / "made.db", given, way)
            print(
                f"  {way.title if way else 'no emission':<26} {figures.per_second:>8,.0f} corrections/s,"
                f" posts: p50 {figures.p50_ms:6.1f} ms, p99 {figures.p99_ms:7.1f} ms of {figures.posts:,}",
                flush=True,
            )
    by_key, by_hash = found[Way(True, SHORT, True)], found[Way(False, SHORT, True)]
    print(f"by key {by_key.per_second / by_hash.per_second:.1f} times as fast as by hash")
    print(f"times of the posts beside those with {WAYS[0].title}:")
    for way in WAYS[1:]:
        beside = found[way]
        ratios = f"p50 {beside.p50_ms / by_key.p50_ms:5.1f}, p99 {beside.p99_ms / by_key.p99_ms:5.1f} times as long"
        print(f"  {way.title:<26} {ratios}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--corrections", type=int, default=100_000)
    parser.add_argument("--posts", type=int, default=50, help="per second")
    parser.add_argument("--emit", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.emit:
        store, *numbers = arguments.emit
        objects, count, by_key, batch, pauses = map(int, numbers)
        print(emit(Path(store), objects, count, Way(bool(by_key), batch, bool(pauses))))
    else:
        main(arguments)

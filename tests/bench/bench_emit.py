"""Compare ways to emit corrections on SQLite while an agent on the same store gets posts.

The ways differ in order (by key or by hash), batch size, and pauses between batches. A process of
its own corrects some of the objects, evenly spread, while operations are posted one after another.
Prints the corrections per second and the duration of the posts for each way, first without an
emission, and their ratios. A post's duration counts from the time it was due, so it includes the
wait for earlier posts. Each way begins with a fresh copy of the store.

    python -m tests.bench.bench_emit [--objects 1000000] [--corrections 100000] [--posts 50]
"""

import argparse
import hashlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from oplog_sync import apply
from oplog_sync.backend.sqlite import SqliteBackend
from oplogd.model.operation import Operation
from oplogd.store import MAX_CORRECTIONS, Correction, CorrectionResult
from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.spark.large import NEW, data, make_store

ALONE_SECONDS = 10.0


class Way(NamedTuple):
    """A way to emit. ``by_key``: in the order of keys, else of hashes.

    ``pauses``: after each batch.
    """

    by_key: bool
    batch: int
    pauses: bool

    @property
    def title(self) -> str:
        order = "by key" if self.by_key else "by hash"
        return f"{order}, {self.batch:,} at once{', pauses' if self.pauses else ''}"


class EmissionFigures(NamedTuple):
    """Corrections per second, and the duration of the posts meanwhile."""

    per_second: float
    p50_ms: float
    p99_ms: float
    posts: int


SHORT = apply.SHORT_BATCH
WAYS = (
    Way(True, SHORT, True),
    Way(False, SHORT, True),
    Way(True, SHORT, False),
    Way(True, MAX_CORRECTIONS, True),
    Way(True, MAX_CORRECTIONS, False),
    Way(False, MAX_CORRECTIONS, False),
)


def emit(store: Path, objects: int, count: int, way: Way) -> float:
    """Emit ``count`` updates and return the number per second."""
    apply.SHORT_BATCH = apply.MAX_CORRECTIONS = way.batch  # type: ignore[attr-defined]
    SqliteBackend.writers_wait = way.pauses
    corrections = []
    for n in range(1, objects, max(objects // count, 1)):
        raw = data(n, NEW)
        corrections.append(
            Correction(Operation("update", f"video/{json.loads(raw)['id']}", raw.encode()), n + 1)
        )
    corrections.sort(key=key_of if way.by_key else hash_of)
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


def key_of(correction: Correction) -> str:
    return correction.operation.key


def hash_of(correction: Correction) -> str:
    return hashlib.md5(key_of(correction).encode()).hexdigest()


def measure(
    folder: Path, made: Path, given: argparse.Namespace, way: Way | None
) -> EmissionFigures:
    """Post to an agent until the emission ends; without an emission, for ALONE_SECONDS."""
    folder.mkdir()
    shutil.copy(made, folder / "oplog.db")
    with Agent(folder) as agent:
        connection = http.client.HTTPConnection("127.0.0.1", agent.port)
        process = None
        if way is not None:
            numbers = [str(int(number)) for number in (given.objects, given.corrections, *way)]
            command = kit.command("bench_emit", "--emit", folder / "oplog.db", *numbers)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=kit.ROOT)
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
    return EmissionFigures(
        float(output), took[len(took) // 2], took[len(took) * 99 // 100], len(took)
    )


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
        found: dict[Way | None, EmissionFigures] = {}
        for way in (None, *WAYS):
            beside = found[way] = measure(folder / "run", folder / "made.db", given, way)
            print(
                f"  {way.title if way else 'no emission':<30}"
                f" {beside.per_second:>8,.0f} corrections/s, posts: p50 {beside.p50_ms:6.1f} ms,"
                f" p99 {beside.p99_ms:7.1f} ms of {beside.posts:,}",
                flush=True,
            )
    ways = {way.title: [found[way]] for way in WAYS}
    posts = {"no emission": [found[None]], **ways}
    ours = WAYS[0].title
    figures = [
        kit.compared(
            f"corrections {ours}", "corrections/s", ours, ways, lambda each: each.per_second
        ),
        kit.compared(f"posts beside: p50, {ours}", "ms", ours, posts, lambda each: each.p50_ms),
        kit.compared(f"posts beside: p99, {ours}", "ms", ours, posts, lambda each: each.p99_ms),
    ]
    kit.finish(f"{given.corrections:,} of {given.objects:,} objects", figures, given)


if __name__ == "__main__":
    parser = kit.parser(__doc__)
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

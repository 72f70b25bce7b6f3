"""Compare the bytes that an operation takes on disk with the bytes that the cap counts for it.

Each kind of operation goes into a store of its own: first once on each object, then again on the
same objects. The second half adds to the log and not to the states, so both sizes are known.
Prints the bytes per operation, and the ratio of the log on disk to the counted bytes.

    python -m tests.bench.bench_size [--objects 50000]
"""

import asyncio
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from oplogd.model.operation import Operation, encode_data
from oplogd.store.sqlite import SqliteStore
from tests.bench import kit

BATCH = 1000
TIMESTAMP = "2025-11-20T10:00:00.123Z"
LARGE = 1 << 40


def short(number: int) -> Operation:
    return _operation("video", f"x{number}", [f"user/{number % 100}"])


def with_uuid(number: int) -> Operation:
    return _operation("video", str(uuid.UUID(int=number * 0x9E3779B97F4A7C15 % (1 << 128))), [])


def with_parents(number: int) -> Operation:
    id_ = str(uuid.UUID(int=number * 0x9E3779B97F4A7C15 % (1 << 128)))
    return _operation(
        "comment", id_, [f"video/x{number % 5000}", f"user/{number % 100}", "region/west"]
    )


def _operation(type_: str, id_: str, parents: list[str]) -> Operation:
    return Operation("insert", f"{type_}/{id_}", encode_data(TIMESTAMP, parents, type_, id_))


async def append(path: Path, make: Callable[[int], Operation], count: int) -> float:
    """Append operations and return the bytes that the cap counts for each."""
    store = SqliteStore(path, max_bytes=LARGE)
    await store.open()
    for start in range(0, count, BATCH):
        await store.append([make(number) for number in range(start, min(start + BATCH, count))])
    stats = await store.stats()
    await store.close()
    return stats.bytes / stats.operations


def on_disk(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--objects", type=int, default=50_000)
    args = parser.parse_args()
    count = args.objects
    figures = []
    print("operation                     counted  in the log  in the states   (bytes each)")
    for name, make in (
        ("short id, 1 parent", short),
        ("UUID, no parent", with_uuid),
        ("UUID, 3 parents", with_parents),
    ):
        with tempfile.TemporaryDirectory(prefix="oplog-size-") as folder:
            path = Path(folder) / "oplog.db"
            counted = asyncio.run(append(path, make, count))
            both = on_disk(path)
            asyncio.run(append(path, make, count))
            log = on_disk(path) - both
        print(f"{name:28s} {counted:8.0f} {log / count:11.0f} {(both - log) / count:14.0f}")
        beside = {"the counted bytes": [counted]}
        figures.append(kit.Figure(f"{name}: log on disk", "bytes", [log / count], beside))
        figures.append(kit.Figure(f"{name}: states on disk", "bytes", [(both - log) / count]))
    kit.finish("Bytes of an operation, SQLite", figures, args)


if __name__ == "__main__":
    main()

"""Stores, dumps and runs of the job for the tests of ``oplog_sync``."""

import asyncio
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from pymongo import MongoClient
from pyspark.sql import SparkSession

from oplog_sync.dump.reading import raw_rows
from oplog_sync.dump.rows import INVALID, faulty_rows, normalised
from oplog_sync.errors import SyncError
from oplog_sync.failure import shown_path, translating
from oplog_sync.job import run
from oplog_sync.report import ObjectCounts
from oplog_sync.session import utc
from oplog_sync.settings import command
from oplogd.model.operation import decode
from oplogd.store import Correction, CorrectionResult, Entry
from oplogd.store.mongo import MongoStore
from oplogd.store.sqlite import SqliteStore
from tests.kits.mongo.operations import live_states
from tests.kits.servers.stores import StoreLocation as StoreLocation
from tests.kits.servers.stores import StorePlace as StorePlace

ARRIVAL = "2020-01-01T00:00:00.000Z"

Json = dict[str, Any]


def sync(spark: SparkSession, *argv: str | Path, create: bool = True) -> ObjectCounts:
    """Run the job in the tests' own Spark session, with --create unless a test says otherwise."""
    flags = ["--create"] if create else []
    return run(spark, command().parse([*flags, *map(str, argv)], {}))


def operation(event: str, type_: str, id_: str, timestamp: str = ARRIVAL, *parents: str) -> Json:
    return {
        "event": event,
        "type": type_,
        "id": id_,
        "timestamp": timestamp,
        "parents": list(parents),
    }


def row(type_: str, id_: str, timestamp: str = ARRIVAL, *parents: str) -> Json:
    """A row of a dump."""
    return {"timestamp": timestamp, "parents": list(parents), "type": type_, "id": id_}


def append(store: StoreLocation, operations: Iterable[Json | bytes]) -> None:
    """Append operations to a store, which is created if missing."""
    decoded = [
        decode(given if isinstance(given, bytes) else json.dumps(given).encode(), ARRIVAL)
        for given in operations
    ]

    async def write() -> None:
        async with opened(store) as opened_store:
            for start in range(0, len(decoded), 5000):
                await opened_store.append(decoded[start : start + 5000])
            await opened_store.checkpoint()

    asyncio.run(write())


@asynccontextmanager
async def opened(store: StoreLocation) -> AsyncIterator[SqliteStore | MongoStore]:
    made = SqliteStore(store) if isinstance(store, Path) else MongoStore(store, collection=None)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def correct(store: StoreLocation, corrections: Sequence[Correction]) -> list[CorrectionResult]:
    async def write() -> list[CorrectionResult]:
        async with opened(store) as opened_store:
            return await opened_store.correct(corrections)

    return asyncio.run(write())


def log(store: StoreLocation, after: int = 0) -> list[Entry]:
    async def read() -> list[Entry]:
        entries: list[Entry] = []
        async with opened(store) as opened_store:
            last = after
            while chunk := await opened_store.read(last, 5000):
                entries += chunk
                last = chunk[-1].offset
        return entries

    return asyncio.run(read())


def live(store: StoreLocation) -> dict[str, str]:
    """Return the live objects: key -> data."""

    async def read() -> dict[str, str]:
        async with opened(store) as opened_store:
            return await live_states(opened_store)

    if isinstance(store, str):
        return asyncio.run(read())
    db = sqlite3.connect(store)
    try:
        return dict(db.execute("SELECT key, data FROM states WHERE NOT deleted"))
    finally:
        db.close()


@contextmanager
def looking(store: StoreLocation) -> Iterator[Callable[[int], bool]]:
    """Yield a cheap look-up: whether an offset is in the log."""
    if isinstance(store, Path):
        with closing(sqlite3.connect(store)) as db:
            yield (
                lambda offset: (
                    db.execute("SELECT 1 FROM ops WHERE seq = ?", (offset,)).fetchone() is not None
                )
            )
    else:
        with MongoClient[Json](store) as client:
            entries = client.get_default_database().oplog_ops
            yield lambda offset: entries.find_one({"n": offset}, {"_id": 1}) is not None


def write_dump(path: Path, rows: Iterable[Json]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def dump_state(rows: Iterable[Json]) -> dict[str, str]:
    """Return the live objects of a store that agrees with a dump of normalised rows."""
    return {
        f"{row['type']}/{row['id']}": json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        for row in rows
    }


def read_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class DumpRead(NamedTuple):
    """The valid rows of a dump: key -> data. The invalid ones: path, number of the row: reason."""

    objects: dict[str, str]
    faults: list[str]


def read_dump(spark: SparkSession, *argv: str | Path) -> DumpRead:
    """Read and check a dump as the job does, without a store."""
    settings = command().parse([*map(str, argv)], {})
    with translating(), utc(spark):
        raw = raw_rows(spark, settings, settings.arguments)
        rows = normalised(raw, settings.types).select("key", "data").collect()
        valid = [found for found in rows if found.key != INVALID]
        faulty = faulty_rows(raw).collect() if len(valid) < len(rows) else []
    objects = {found.key: found.data for found in valid}
    assert len(objects) == len(valid)
    assert len(objects) + len(faulty) == len(rows)
    return DumpRead(
        objects,
        sorted(f"{shown_path(unquote(each.file))}, {each.row}: {each.reason}" for each in faulty),
    )


def objects_of(spark: SparkSession, *argv: str | Path) -> dict[str, str]:
    """Return the objects of a dump without invalid rows."""
    objects, faults = read_dump(spark, *argv)
    assert faults == []
    return objects


def refusal(spark: SparkSession, *argv: str | Path) -> str:
    """Return the error of a dump that cannot be read."""
    with pytest.raises(SyncError) as refused:
        read_dump(spark, *argv)
    assert "\n" not in str(refused.value)
    return str(refused.value)

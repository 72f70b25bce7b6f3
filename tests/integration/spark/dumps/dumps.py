"""One dump in many forms."""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kits.spark.helpers import Json

WITH_ZONE, WITHOUT_ZONE = pa.timestamp("us", "UTC"), pa.timestamp("us")
_PARENTS = pa.list_(pa.string())
CSV_COLUMNS = ("id", "type", "timestamp", "parents")


def lines(rows: Iterable[Json], end: str = "\n") -> bytes:
    return "".join(json.dumps(row) + end for row in rows).encode()


def write_parquet(
    path: Path, rows: Sequence[Json], times: pa.DataType = WITH_ZONE, without: str = ""
) -> Path:
    """Write a Parquet file.

    ``times``: a type of timestamps, or text. ``without``: leave out this column.
    """
    stamps: list[Any] = [row["timestamp"] for row in rows]
    if not pa.types.is_string(times):
        instants = [datetime.fromisoformat(stamp).astimezone(UTC) for stamp in stamps]
        stamps = [
            instant.replace(tzinfo=None) if times.tz is None else instant for instant in instants
        ]
    columns = {
        "timestamp": pa.array(stamps, times),
        "parents": pa.array([row["parents"] for row in rows], _PARENTS),
        "type": pa.array([row["type"] for row in rows], pa.string()),
        "id": pa.array([row["id"] for row in rows], pa.string()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({name: column for name, column in columns.items() if name != without}), path
    )
    return path


def write_csv(
    path: Path,
    rows: Iterable[Json],
    names: Sequence[str] = CSV_COLUMNS,
    time: Callable[[str], str] = str,
) -> Path:
    """Write CSV as most programs do: quotes are doubled inside quotes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            cells = row | {
                "timestamp": time(row["timestamp"]),
                "parents": json.dumps(row["parents"]),
            }
            writer.writerow([cells[name] for name in names])
    return path


def without_zone(time: str) -> str:
    return time.replace("T", " ").removesuffix("Z")


def write_forms(folder: Path, rows: list[Json], unchanged: list[Json]) -> dict[str, list[str]]:
    """Write a dump in every form and return the job's arguments by the name of the form.

    ``unchanged``: rows whose objects the store has with the same parents.
    """
    half = len(rows) // 2
    changed = [row for row in rows if row not in unchanged]

    def put(name: str, data: bytes) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    json_lines = put("dump.jsonl", lines(rows))
    put("nested/a/1.jsonl", b"\xef\xbb\xbf" + lines(rows[:half], "\r\n\r\n").rstrip())
    members = [gzip.compress(lines(part)) for part in (rows[half : half + 9], rows[half + 9 :])]
    put("nested/a/b c/2.jsonl.gz", b"".join(members))
    put("nested/_SUCCESS", b"")
    write_parquet(folder / "drift/a.parquet", unchanged, without="parents")
    write_parquet(folder / "drift/z/b.parquet", changed)
    for type_, of_type in groupby(
        sorted(rows, key=lambda row: str(row["type"])), lambda row: str(row["type"])
    ):
        write_parquet(
            folder / f"by-type/type={type_}/part-0.parquet", list(of_type), without="type"
        )
    write_csv(folder / "two/1.csv", rows[:half])
    write_csv(folder / "two/x/2.csv", rows[half:])
    write_csv(folder / "swapped/1.csv", rows[:half])
    write_csv(folder / "swapped/2.csv", rows[half:], ("type", "id", "timestamp", "parents"))
    parquet, quotes = ["--format", "parquet"], ["--format", "csv", "--option", 'escape="']
    naive = write_csv(folder / "naive.csv", rows, time=without_zone)
    return {
        "JSON lines": [str(json_lines)],
        "nested folders": [str(folder / "nested")],
        "Parquet with zone": [*parquet, str(write_parquet(folder / "zone.parquet", rows))],
        "Parquet without zone": [
            *parquet,
            str(write_parquet(folder / "ntz.parquet", rows, WITHOUT_ZONE)),
        ],
        "Parquet with text": [
            *parquet,
            str(write_parquet(folder / "text.parquet", rows, pa.string())),
        ],
        "drifted Parquet": [*parquet, str(folder / "drift")],
        "Parquet by type": [*parquet, str(folder / "by-type")],
        "CSV": [*quotes, str(folder / "two")],
        "CSV without zone": [*quotes, "--option", "inferSchema=true", str(naive)],
        "CSV swapped": [*quotes, str(folder / "swapped")],
    }

"""The output of a run: progress lines, the final table, the report of the corrections."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_sync.errors import SyncError
from oplog_sync.jvm import hadoop_configuration, hadoop_path

COLUMNS = ("insert", "update", "delete", "untouched", "skipped", "invalid", "duplicate")
# The table's line for invalid rows, whose type is unknown.
NO_TYPE = "(no type)"

NOT_EMITTED = "not emitted"
# The store failed while the correction was appended: it may be in the log.
UNKNOWN = "unknown"

_JSON_LINES = (".jsonl", ".json", ".ndjson")
_DATA = "timestamp string, parents array<string>, type string, id string"


@dataclass
class ObjectCounts:
    """Objects by type and column of the table. ``skipped``: changed since the comparison."""

    rows: dict[str, dict[str, int]]

    def add(self, type_: str, column: str, count: int) -> None:
        self.rows.setdefault(type_, dict.fromkeys(COLUMNS, 0))[column] += count

    def total(self, column: str) -> int:
        return sum(row[column] for row in self.rows.values())

    def corrections(self) -> int:
        return self.total("insert") + self.total("update") + self.total("delete")

    def table(self) -> str:
        """Return the table: a line for each type, and a total unless there is exactly one type."""
        lines: list[tuple[str, Mapping[str, int]]] = sorted(self.rows.items())
        if len(lines) != 1:
            lines.append(("total", {column: self.total(column) for column in COLUMNS}))
        rows = [["type", *COLUMNS]]
        rows += [[name, *(f"{row[column]:,}" for column in COLUMNS)] for name, row in lines]
        first, *rest = zip(*rows, strict=True)
        columns = [_padded(first, "<"), *(_padded(cells, ">") for cells in rest)]
        return "\n".join(map("  ".join, zip(*columns, strict=True)))


def _padded(cells: Sequence[str], side: str) -> list[str]:
    width = max(map(len, cells))
    return [f"{cell:{side}{width}}" for cell in cells]


def tell(text: str) -> None:
    # One write: threads print lines, too.
    sys.stderr.write(f"oplog-sync: {text}\n")
    sys.stderr.flush()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print the stage's name at its begin and its duration at its end."""
    tell(name)
    started = time.monotonic()
    yield
    tell(f"{name}: done in {time.monotonic() - started:.1f} s")


def check_report(spark: SparkSession, path: str) -> None:
    """Raise SyncError if the path exists or cannot be created: before the emission."""
    folder, flag = hadoop_path(path), f"--report {path}"
    try:
        files = folder.getFileSystem(hadoop_configuration(spark))
        if files.exists(folder):
            raise SyncError(f"{flag}: the path already exists; name another")
        made = files.mkdirs(folder) and files.delete(folder, False)
    except Py4JJavaError as error:
        reason = str(error.java_exception).partition(": ")[2]
        raise SyncError(f"{flag}: cannot write there: {reason}; name another path") from error
    if not made:
        raise SyncError(f"{flag}: cannot write there; name a path that this user may write to")


def write_report(corrections: DataFrame, path: str, verdict: str | None = None) -> None:
    """Write a folder with a row for each correction: JSON lines if the name says so, else Parquet.

    ``verdict``: the verdict on every correction. None: ``corrections`` has a column ``verdict``.
    """
    if verdict is not None:
        corrections = corrections.withColumn("verdict", F.lit(verdict))
    parsed = corrections.withColumn("data", F.from_json("data", _DATA))
    of_data = ("data.type", "data.id", "data.timestamp", "data.parents")
    rows = parsed.select(F.col("action").alias("event"), *of_data, "offset", "verdict")
    rows.write.format("json" if path.endswith(_JSON_LINES) else "parquet").save(path)

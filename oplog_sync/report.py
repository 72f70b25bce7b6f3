"""What a run tells: a line for each stage, the closing table, the file of corrections."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_sync.errors import SyncError

COLUMNS = ("insert", "update", "delete", "untouched", "skipped", "invalid", "duplicate")
NO_TYPE = "(no type)"
"""Where the table counts invalid rows: what their type is cannot be known."""

NOT_EMITTED = "not emitted"
UNKNOWN = "unknown"
"""The store failed while the correction was appended: it may be in the log."""

_JSON_LINES = (".jsonl", ".json", ".ndjson")
_DATA = "timestamp string, parents array<string>, type string, id string"


@dataclass
class Counts:
    """Objects by type and column of the table. ``skipped``: changed while the job ran, so left alone."""

    rows: dict[str, dict[str, int]]

    def add(self, type_: str, column: str, count: int) -> None:
        row = self.rows.setdefault(type_, dict.fromkeys(COLUMNS, 0))
        row[column] += count

    def total(self, column: str) -> int:
        return sum(row[column] for row in self.rows.values())

    def corrections(self) -> int:
        return self.total("insert") + self.total("update") + self.total("delete")

    def table(self) -> str:
        """With a line for each type and, below several, their sum."""
        lines: list[tuple[str, Mapping[str, int]]] = sorted(self.rows.items())
        if len(lines) != 1:
            lines.append(("total", {column: self.total(column) for column in COLUMNS}))
        width = max(len("type"), *(len(name) for name, _ in lines))
        widths = [
            max(len(column), *(len(f"{row[column]:,}") for _, row in lines)) for column in COLUMNS
        ]
        head = "  ".join(
            [f"{'type':<{width}}", *(f"{c:>{w}}" for c, w in zip(COLUMNS, widths, strict=True))]
        )
        body = [
            "  ".join(
                [
                    f"{name:<{width}}",
                    *(f"{row[c]:>{w},}" for c, w in zip(COLUMNS, widths, strict=True)),
                ]
            )
            for name, row in lines
        ]
        return "\n".join([head, *body])


def tell(text: str) -> None:
    print(f"oplog-sync: {text}", file=sys.stderr, flush=True)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say what begins and, at its end, how long it took. Spark adds a bar on a terminal."""
    tell(name)
    started = time.monotonic()
    yield
    tell(f"{name}: done in {time.monotonic() - started:.1f} s")


def check_report(spark: SparkSession, path: str) -> None:
    """Raise SyncError if the report's path exists or cannot be made: the report is written after the emission."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs.Path(path)
    try:
        files = hadoop.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if files.exists(hadoop):
            raise SyncError(f"--report {path}: it exists already; name another path")
        made = files.mkdirs(hadoop) and files.delete(hadoop, False)
    except Py4JJavaError as error:
        reason = str(error.java_exception).partition(": ")[2]
        raise SyncError(
            f"--report {path}: it cannot be written: {reason}; name another path"
        ) from error
    if not made:
        raise SyncError(
            f"--report {path}: it cannot be written; name a path that this user may write"
        )


def write_report(corrections: DataFrame, path: str, verdict: str | None = None) -> None:
    """A folder of Parquet files, or of JSON lines if its name ends so, with a row for each correction.

    ``verdict``: that of every correction; None if it is a column.
    """
    if verdict is not None:
        corrections = corrections.withColumn("verdict", F.lit(verdict))
    rows = corrections.withColumn("data", F.from_json("data", _DATA)).select(
        F.col("action").alias("event"),
        "data.type",
        "data.id",
        "data.timestamp",
        "data.parents",
        "n",
        "verdict",
    )
    if path.endswith(_JSON_LINES):
        rows.write.json(path)
    else:
        rows.write.parquet(path)

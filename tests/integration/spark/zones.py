"""Compare a store with many dumps in one Spark session, in a process of its own.

Reads a JSON object of argument lists from standard input. Prints a JSON object with the corrections
or the error of each.
"""

import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.job import run
from oplog_sync.jvm import jvm
from oplog_sync.session import start
from oplog_sync.settings import parse


def _corrections(spark: SparkSession, argv: list[str], report: Path) -> Any:
    try:
        run(spark, parse([*argv, "--create", "--dry-run", "--report", str(report)], {}))
    except SyncError as error:
        return str(error)
    found = [
        json.loads(line) for part in report.glob("*.json") for line in part.read_text().splitlines()
    ]
    return sorted(
        [row["event"], row["type"], row["id"], row["timestamp"], row["parents"]] for row in found
    )


def all_corrections(
    spark: SparkSession, wanted: dict[str, list[str]], folder: Path
) -> dict[str, Any]:
    """Return the corrections or the error of each."""
    return {
        name: _corrections(spark, argv, folder / f"{number}.jsonl")
        for number, (name, argv) in enumerate(wanted.items())
    }


def main() -> None:
    wanted: dict[str, list[str]] = json.load(sys.stdin)
    with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        spark = start("local[2]", debug=False)
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        zone = jvm(spark).java.util.TimeZone.getDefault().getID()
        found = all_corrections(spark, wanted, Path(folder))
        spark.stop()
    print(json.dumps({"zone": zone, "found": found}))


if __name__ == "__main__":
    main()

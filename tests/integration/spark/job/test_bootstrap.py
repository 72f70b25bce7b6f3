"""Paste all of docs/howto/bootstrap.md. Only ``oplog-sync`` runs in the tests' Spark session."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.kits.documents import pages
from tests.kits.documents.reader import Reader
from tests.kits.spark.helpers import sync


def test_the_pasted_howto_prints_the_shown_output_again_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    def oplog_sync(arguments: list[str]) -> str:
        # Java does not follow this process to another folder.
        return sync(
            spark, *(tmp_path / each if "." in each else each for each in arguments)
        ).table()

    with Reader(tmp_path, {"oplog-sync": oplog_sync}) as reader:
        reader.read_twice(pages.HOWTO / "bootstrap.md")

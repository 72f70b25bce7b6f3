"""docs/howto/bootstrap.md, pasted as a reader would; only ``oplog-sync`` runs in the tests' own Spark session."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import ROOT
from tests.reader import Reader
from tests.sync.helpers import sync


def test_a_reader_who_pastes_everything_sees_what_is_shown_and_again_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    def oplog_sync(arguments: list[str]) -> str:
        # Java does not follow this process to another folder.
        return sync(
            spark, *(tmp_path / each if "." in each else each for each in arguments)
        ).table()

    with Reader(tmp_path, {"oplog-sync": oplog_sync}) as reader:
        reader.read_twice(ROOT / "docs/howto/bootstrap.md")

"""The versions of rows, and who may write them."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oplog_pipe.errors import FencedError
from oplog_pipe.message import version_of
from oplog_pipe.spark.noted import Checkpoint, Claim
from oplog_pipe.spark.versions import SPAN, Versions

CREATED = 1_790_000_000_000
BEGIN = version_of(CREATED, 0)
BASE = version_of(CREATED + 70_000, 0)
NAMES = ["oplog", "quiet", "topic"]
PLANNED = [f'{{"id":"9","offset":9,"ms":1,"base":{BASE}}}', "-", '{"id":"9","offset":1,"ms":500}']


class Planned:
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def planned(self, batch: int) -> list[str]:
        assert batch == self.batch
        return PLANNED


@pytest.mark.parametrize("batch", [0, 3])
def test_versions_count_back_from_the_end_of_a_batch_in_each_source(
    spark: SparkSession, batch: int
) -> None:
    noted: Any = Planned(batch)
    versions = Versions(noted, Checkpoint(1, CREATED), NAMES)
    given = [
        ("oplog", BASE + 9, 9), ("oplog", BASE + 7, 7), ("oplog", BASE + 10, 10),
        ("oplog", BASE - SPAN, 1), ("topic", 500, 0), ("topic", 450, 0), ("topic", 600, 0),
        ("topic", 500 - SPAN, 0),
    ]  # fmt: skip
    rows = spark.createDataFrame(given, "source string, version bigint, place bigint").coalesce(1)
    found = versions.give(rows, batch, versions.planned(batch)).collect()
    newest = BEGIN + (batch + 1) * SPAN - 1
    assert versions.newest(batch) == newest
    assert [newest - row.version for row in found] == [
        0, 2, 0, SPAN - 1,  # a copy may be newer than planned
        0, 50, 0, SPAN - 1,
    ]  # fmt: skip
    assert [row.place for row in found] == [9, 7, 10, 1, 0, 1, 2, 3]


def test_the_driver_that_begins_last_has_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = Claim(spark, str(tmp_path), "p/s")
    first.check()
    second = Claim(spark, str(tmp_path), "p/s")
    for _ in range(2):
        second.check()
        with pytest.raises(FencedError, match="another driver writes the rows of 'p/s'"):
            first.check()

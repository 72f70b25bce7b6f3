"""Dumps in ORC files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from tests.kits.spark.helpers import read_dump, refusal

_ORC = ("--format", "orc")
_TIME = "2020-01-01T01:00:00.001999+01:00"
_DATA = '{"timestamp":"2020-01-01T00:00:00.001Z","parents":%s,"type":"video","id":"%s"}'


def _write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    orc.write_table(pa.table(columns), path)
    return path


def test_files_with_different_columns_are_one_dump(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    _write(
        folder / "type=Video" / "a.orc",
        id=["1", "2"],
        timestamp=[_TIME, _TIME],
        parents=pa.array([["b", "a"], None], pa.list_(pa.string())),
        more=[1.5, None],
    )
    _write(folder / "type=Video" / "b.orc", id=["3"], timestamp=[_TIME])
    wrong = _write(folder / "type=Video" / "c.orc", id=[""], timestamp=[_TIME])
    assert read_dump(spark, *_ORC, folder) == (
        {
            "video/1": _DATA % ('["b","a"]', 1),
            "video/2": _DATA % ("[]", 2),
            "video/3": _DATA % ("[]", 3),
        },
        [f"{wrong}, 1: id: must not be empty"],
    )
    _write(folder / "type=Video" / "d.orc", id=pa.array([4], pa.int64()), timestamp=[_TIME])
    assert "write all files with the same types" in refusal(spark, *_ORC, folder)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_an_orc_timestamp_is_refused_since_its_zone_is_not_known(
    spark: SparkSession, tmp_path: Path, zone: str | None
) -> None:
    times = pa.array([datetime(2020, 1, 1, tzinfo=UTC if zone else None)], pa.timestamp("us", zone))
    file = _write(tmp_path / "a.orc", type=["video"], id=["1"], timestamp=times)
    assert "the column timestamp is an ORC timestamp, which Spark may read in another" in refusal(
        spark, *_ORC, file
    )


def test_files_in_another_format_or_cut_off_are_named(spark: SparkSession, tmp_path: Path) -> None:
    file = _write(
        tmp_path / "a.orc", type=["video"] * 1000, id=["1"] * 1000, timestamp=[_TIME] * 1000
    )
    assert f"{file} is an ORC file; give --format orc" in refusal(spark, file)
    lines = tmp_path / "a.jsonl"
    lines.write_text("{}\n")
    assert f"{lines} is not an ORC file; give the dump's --format" in refusal(spark, *_ORC, lines)
    file.write_bytes(file.read_bytes()[:-40])
    assert str(file) in refusal(spark, *_ORC, file)

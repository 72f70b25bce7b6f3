"""``--types`` leaves rows out before they go to Python."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession

from oplog_sync.dump.reading import raw_rows
from oplog_sync.settings import command
from tests.integration.spark.dumps.dumps import write_parquet
from tests.kits.spark.helpers import (
    objects_of,
    put,
    row,
)

T = "2020-01-01T00:00:00.000Z"


def _plan(spark: SparkSession, *argv: str | Path) -> str:
    """Return Spark's plan to read the rows of a dump."""
    settings = command().parse([str(argument) for argument in argv], {})
    rows = raw_rows(spark, settings, settings.arguments).where("may_be_wanted").select("value")
    length = "spark.sql.maxMetadataStringLength"
    spark.conf.set(length, "9999")
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            rows.explain()
    finally:
        spark.conf.unset(length)
    return printed.getvalue()


def test_types_are_filtered_before_rows_go_to_python(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row(type_, str(number), T)
        for number, type_ in enumerate(["VIDEO", "Video", "video", "user", "videos"])
    ]
    rows += [row("K\u00e9", "k", T), row("mar\u212a", "kelvin", T)]
    dump = write_parquet(tmp_path / "dump.parquet", rows)
    argv: list[str | Path] = ["--format", "parquet", dump]
    found = objects_of(spark, "--types", "video,mark", *argv)
    assert sorted(found) == ["mark/kelvin", "video/0", "video/1", "video/2"]
    assert sorted(objects_of(spark, "--types", "video", *argv)) == [
        "video/0",
        "video/1",
        "video/2",
    ]
    plan = _plan(spark, "--types", "video", *argv)
    pushed = (
        "Or(IsNull(type),Or(And(GreaterThanOrEqual(type,VIDEO),LessThanOrEqual(type,Video)),"
        "And(GreaterThanOrEqual(type,v"
    )
    assert f"PushedFilters: [{pushed}" in plan
    write_parquet(tmp_path / "by/type=Video/a.parquet", rows[:1], without="type")
    write_parquet(tmp_path / "by/type=user/b.parquet", rows[3:4], without="type")
    settings = command().parse(
        ["--types", "video", "--format", "parquet", str(tmp_path / "by")], {}
    )
    read = raw_rows(spark, settings, settings.arguments).where("may_be_wanted")
    assert [Path(each.file).name for each in read.select("file").collect()] == ["a.parquet"]
    plan = _plan(spark, "--types", "video", *argv[:2], tmp_path / "by")
    assert re.search(r"PartitionFilters: \[.*lower\(type", plan), plan


def test_types_drop_only_plain_lines_of_other_types(spark: SparkSession, tmp_path: Path) -> None:
    kept = [
        b'{"id":"1","type":"VIDEO"}',
        b'{"type":"user","id":"1","type":"video"}',
        b'{"\\u0074ype":"video","id":"1"}',
        b'{"type":"vid\\u0065o"}',
        b'{"type":"\xe2\x84\xaa"}',
        b'{"type":"user","id":"1"',
        b'{"id":"1"}',
        b'{"type":7}',
        b'{"a":{"type":"user"},"id":"1"}',
        b'{"type":"user"}{"type":"video"}',
        b"\xff",
    ]
    dropped = [
        b'{"type":"user","id":"1"}',
        b' { "id" : "type:", "type" : "videos" } ',
        b'{"type":"User","more":[1,2]}',
    ]
    dump = put(tmp_path / "dump.jsonl", b"\n".join([*kept, *dropped]))
    raw = raw_rows(spark, command().parse(["--types", "video", str(dump)], {}), [str(dump)])
    assert [bytes(each.value) for each in raw.where("may_be_wanted").collect()] == kept

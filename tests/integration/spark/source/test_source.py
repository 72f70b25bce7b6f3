"""The data source ``oplog``: batch read and write."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from oplog_sync.source.columns import arrow_batch, full_schema
from oplogd.model.event_id import Mark, format_id
from oplogd.model.operation import format_ms
from tests.kits.spark.helpers import append, live, log, operation

T1, T2 = "2020-01-01T00:00:00.001Z", "2021-01-01T00:00:00.000Z"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """25 live objects of two types and 5 deleted ones, in 40 operations."""
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", f"v/{n}", T1, "user/1") for n in range(20)])
    append(store, [operation("insert", "tag", f"é{n}", T1) for n in range(10)])
    append(store, [operation("delete", "tag", f"é{n}", T2) for n in range(5)])
    append(store, [operation("update", "video", f"v/{n}", T2) for n in range(5)])
    return store


def read(spark: SparkSession, store: Path, table: str, **options: object) -> DataFrame:
    reader = spark.read.format("oplog").option("store", str(store)).option("table", table)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_states_are_read_in_partitions_each_once(spark: SparkSession, store: Path) -> None:
    states = read(spark, store, "states", partitionRows=7)
    assert states.rdd.getNumPartitions() == 5
    rows = {found.key: found for found in states.collect()}
    assert len(rows) == 30 == states.count()
    video, tag = rows["video/v/0"], rows["tag/é0"]
    entries = {entry.offset: entry for entry in log(store)}
    assert (video.type, video.id, video.event, video.offset, video.parents) == (
        "video",
        "v/0",
        "insert",
        36,
        [],
    )
    assert (tag.type, tag.id, tag.event, tag.offset) == ("tag", "é0", "delete", 31)
    assert video.event_id == format_id(Mark(36, entries[36].ms))
    assert video.data == entries[36].data
    times = (
        states.where("key = 'video/v/7'")
        .select(F.unix_millis("timestamp"), F.unix_millis("logged"))
        .first()
    )
    assert times is not None
    assert tuple(times) == (1577836800001, entries[8].ms)


def test_operations_are_read_in_the_order_of_the_log(spark: SparkSession, store: Path) -> None:
    rows = read(spark, store, "operations", partitionRows=9).collect()
    entries = log(store)
    assert [found.offset for found in rows] == list(range(1, 41))
    assert [(found.event, found.data) for found in rows] == [
        (entry.event, entry.data) for entry in entries
    ]


def test_only_the_columns_asked_for_are_read(spark: SparkSession, store: Path) -> None:
    reader = (
        spark.read.format("oplog").option("store", str(store)).schema("offset bigint, type string")
    )
    assert reader.load().agg(F.sum("offset"), F.count_distinct("type")).first() == (
        sum(range(6, 21)) + sum(range(26, 41)),
        2,
    )
    with pytest.raises(PySparkException, match="there is no column size"):
        spark.read.format("oplog").option("store", str(store)).schema(
            "size bigint"
        ).load().collect()
    batch = arrow_batch([], full_schema())
    assert batch.num_rows == 0


@pytest.mark.parametrize("table", ["states", "operations"])
def test_options_filter_in_the_store(spark: SparkSession, store: Path, table: str) -> None:
    everything = read(spark, store, table).collect()
    filters: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
        ({"types": "Tag"}, lambda r: r.type == "tag"),
        (
            {"types": "tag,user", "events": "delete"},
            lambda r: r.type == "tag" and r.event == "delete",
        ),
        ({"parents": "user/1"}, lambda r: "user/1" in r.parents),
        ({"parents": "user/1", "types": "tag"}, lambda r: False),
    ]
    for given, holds in filters:
        found = read(spark, store, table, **given).collect()
        assert [r.offset for r in found] == [r.offset for r in everything if holds(r)], given
    assert sum(1 for r in everything if "user/1" in r.parents) == (15 if table == "states" else 20)


def test_one_dataframe_serves_queries_with_different_filters(
    spark: SparkSession, store: Path
) -> None:
    states = read(spark, store, "states")
    videos, tags = states.where("type = 'video'"), states.where("type = 'tag'")
    assert (videos.count(), tags.count(), states.count(), videos.union(tags).count()) == (
        20,
        10,
        30,
        30,
    )
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"


def test_a_batch_of_operations_has_a_start_and_an_end(spark: SparkSession, store: Path) -> None:
    entries = log(store)
    ids = [format_id(Mark(entry.offset, entry.ms)) for entry in entries]
    split = entries[20].ms  # the third append, some ms later
    before = [entry.offset for entry in entries if entry.ms < split]
    after = [entry.offset for entry in entries if entry.ms >= split]
    for given, offsets in (
        ({"start": ids[6]}, list(range(8, 41))),
        ({"start": ids[6], "end": ids[8]}, [8, 9]),
        ({"startingOffsets": "earliest", "endingOffsets": ids[2]}, [1, 2, 3]),
        ({"start": str(split)}, after),
        ({"start": format_ms(split)}, after),
        ({"end": str(split)}, before),
        ({"start": "now"}, []),
        ({"start": ids[8], "end": ids[6]}, []),
        ({"start": "oldest", "end": "now", "events": "delete"}, list(range(31, 36))),
    ):
        found = read(spark, store, "operations", **given).collect()
        assert [r.offset for r in found] == offsets, given


def test_written_rows_are_operations(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("INSERT", "Video", "1", datetime(2020, 1, 1, 0, 0, 0, 1999, tzinfo=UTC), ["a"])]
    frame = spark.createDataFrame(
        rows, "event string, type string, id string, timestamp timestamp, parents array<string>"
    )
    frame.write.format("oplog").option("store", str(tmp_path / "oplog.db")).mode("append").save()
    (entry,) = log(tmp_path / "oplog.db")
    assert entry.event == "insert"
    assert json.loads(entry.data) == {
        "timestamp": "2020-01-01T00:00:00.001Z", "parents": ["a"], "type": "video", "id": "1",
    }  # fmt: skip
    more = spark.range(5000).selectExpr(
        "'update' AS event", "'video' AS type", "CAST(id AS string) AS id"
    )
    more.repartition(4).write.format("oplog").option("store", str(tmp_path / "oplog.db")).mode(
        "append"
    ).save()
    assert len(log(tmp_path / "oplog.db")) == 5001
    assert len(live(tmp_path / "oplog.db")) == 5000


def test_guarded_rows_are_written_once_however_often_their_task_is_retried(
    spark: SparkSession, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(3000).selectExpr(
        "'insert' AS event",
        "'new' AS type",
        "CAST(id AS string) AS id",
        "CAST(0 AS bigint) AS expected_offset",
        f"'{T2}' AS timestamp",
    )
    for _ in range(2):  # as a retried task does: it writes all its rows again
        rows.coalesce(1).write.format("oplog").option("store", str(store)).mode("append").save()
    assert len(log(store)) == 3040
    assert "skipped" not in capfd.readouterr().err
    append(store, [operation("update", "new", "7", T2, "newer")])
    rows.withColumn("parents", F.array(F.lit("x"))).limit(10).write.format("oplog").option(
        "store", str(store)
    ).mode("append").save()
    assert len(log(store)) == 3041


def test_rows_that_cannot_be_written_are_named(spark: SparkSession, store: Path) -> None:
    frame = spark.createDataFrame([("insert", "a/b", "1")], "event string, type string, id string")
    to_store = frame.write.format("oplog").option("store", str(store))
    with pytest.raises(PySparkException, match="type: must not contain '/' or ','"):
        to_store.mode("append").save()
    with pytest.raises(PySparkException, match="a log can only be appended to"):
        to_store.mode("overwrite").save()
    with pytest.raises(PySparkException, match="column id is missing"):
        frame.drop("id").write.format("oplog").option("store", str(store)).mode("append").save()


def test_a_missing_store_is_an_error_and_is_not_created(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="the file does not exist"):
        read(spark, tmp_path / "missing.db", "states").collect()
    assert not (tmp_path / "missing.db").exists()


def test_statements_of_sql_read_and_write(spark: SparkSession, store: Path) -> None:
    assert spark.read.format("oplog").load(str(store)).count() == 30
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING oplog OPTIONS (store '{store}', types 'tag')"
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW w USING oplog OPTIONS (store '{store}')")
    spark.sql("CREATE TABLE kept USING oplog OPTIONS (store 'lost')")
    try:
        assert spark.sql("SELECT count(*) FROM v").first() == (10,)
        spark.sql(
            "INSERT INTO w (event, type, id) VALUES ('insert', 'tag', 'new'), ('update', 'x', 'y')"
        )
        entries = [json.loads(entry.data) for entry in log(store, after=40)]
        assert sorted((each["type"], each["id"]) for each in entries) == [
            ("tag", "new"),
            ("x", "y"),
        ]
        with pytest.raises(PySparkException, match="column key: it is set by the log"):
            spark.sql("INSERT INTO w (event, type, id, key) VALUES ('insert', 'a', 'b', 'a/b')")
        with pytest.raises(PySparkException, match="none of its options; use CREATE TEMPORARY"):
            spark.sql("SELECT * FROM kept").collect()
        found = spark.sql(f"SELECT count(*) FROM kept WITH (store = '{store}', types = 'tag')")
        assert found.first() == (11,)
    finally:
        spark.sql("DROP TABLE kept")
        spark.catalog.dropTempView("v")
        spark.catalog.dropTempView("w")

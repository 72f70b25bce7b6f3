"""The data source ``oplog``: batch read and write."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual, Not

from oplog_sync.backend import Wanted, make_backend
from oplog_sync.errors import OptionError
from oplog_sync.source.columns import arrow_batch, full_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.pushdown import wanted_by
from oplogd.model.event_id import Mark, format_id
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
def test_filters_reach_the_store_and_change_no_result(
    spark: SparkSession, store: Path, table: str
) -> None:
    everything = read(spark, store, table).collect()
    logged = sorted({found.logged for found in everything})[1]
    conditions: list[tuple[Any, Callable[[Row], bool]]] = [
        ("type = 'tag'", lambda r: r.type == "tag"),
        (
            "type IN ('tag', 'user') AND event = 'delete'",
            lambda r: r.type == "tag" and r.event == "delete",
        ),
        ("offset > 7 AND offset <= 33", lambda r: 7 < r.offset <= 33),
        ("timestamp > TIMESTAMP'2020-01-01T00:00:00.0005Z'", lambda r: True),
        (
            "timestamp > TIMESTAMP'2020-01-01T00:00:00.0015Z'",
            lambda r: r.data.startswith('{"timestamp":"2021'),
        ),
        (
            "timestamp < TIMESTAMP'2020-06-01T00:00:00Z'",
            lambda r: r.data.startswith('{"timestamp":"2020'),
        ),
        ("event != 'delete' OR type = 'video'", lambda r: r.event != "delete" or r.type == "video"),
        (F.col("logged") >= logged, lambda r: r.logged >= logged),
    ]
    for condition, holds in conditions:
        # A new DataFrame for each query: Spark keeps the pushed filters.
        found = read(spark, store, table, pushFilters="true").where(condition).collect()
        assert [r.offset for r in found] == [r.offset for r in everything if holds(r)], condition


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


def test_pushed_filters_leave_rows_unread(store: Path) -> None:
    moment = datetime(2020, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
    wanted = wanted_by(
        [
            IsNotNull(("type",)),
            In(("type",), ("tag", "video")),
            EqualTo(("type",), "tag"),
            EqualTo(("event",), "delete"),
            GreaterThan(("timestamp",), moment),
            LessThanOrEqual(("logged",), moment),
            GreaterThan(("offset",), 3),
            Not(EqualTo(("event",), "insert")),
        ]
    )
    assert wanted == Wanted(
        types=frozenset(["tag"]),
        events=frozenset(["delete"]),
        timestamp=("2020-01-01T00:00:00.001Z", None),
        ms=(None, 1577836800001),
        offset=(3, None),
    )
    backend = make_backend(str(store))
    (part,) = backend.state_ranges(1000)
    wanted = Wanted(types=frozenset(["tag"]), events=frozenset(["delete"]), timestamp=(T2, None))
    assert sum(len(rows) for rows in backend.states(part, wanted)) == 5
    assert sum(len(rows) for rows in backend.operations((0, 40), Wanted(offset=(40, 50)))) == 1


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option store: name the SQLite file"),
        ({"store": "a", "table": "rows"}, "option table: 'rows' is neither states nor operations"),
        (
            {"store": "a", "partitionRows": "0"},
            "option partitionRows: '0' is not a whole number of at least 1",
        ),
        ({"store": "a", "onGap": "ignore"}, "option onGap: 'ignore' is neither fail nor states"),
        ({"store": "a", "agent": "b"}, "either store or agent"),
        ({"store": "a", "colour": "red"}, "option colour: there is no such option"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_options(options)

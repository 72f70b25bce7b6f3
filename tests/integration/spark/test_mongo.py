"""The job and the data source on MongoDB."""

from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplogd.errors import StoreUnavailableError
from tests.kits.spark.helpers import (
    StorePlace,
    append,
    dump_state,
    live,
    log,
    operation,
    row,
    sync,
    write_dump,
)

T1, T2 = "2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z"


@pytest.mark.parametrize("kind", ["plain", "capped"])
def test_an_empty_database_is_filled(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, kind: Any
) -> None:
    place = StorePlace(request.getfixturevalue(f"{kind}_url"), kind)
    rows = [row("video", str(n), T2) for n in range(50)]
    dump = write_dump(tmp_path / "dump.jsonl", rows)
    size = ("--capped-collection-size", "2MB")
    with MongoClient[dict[str, Any]](str(place.store)) as client:
        database = client.get_default_database()
        assert sync(spark, *place.argv, *size, "--dry-run", dump).total("insert") == 50
        assert database.list_collection_names() == []
        assert sync(spark, *place.argv, *size, dump).total("insert") == 50
        assert live(place.store) == dump_state(rows)
        cap = database.oplog_meta.find_one({"_id": "oplog_ops"})
        assert cap is not None
        assert cap["max_bytes"] == 2 << 20
        # The existing log stays as it is: both flags are ignored.
        other = (
            "--mongo-url",
            str(place.store),
            "--capped-collection-size",
            "3MB",
            "--log-collection",
        )
        append(place.store, [operation("insert", "video", "extra", T1)])
        assert (
            sync(spark, *other, "capped" if kind == "plain" else "plain", dump).total("delete") == 1
        )
        assert database.oplog_meta.find_one({"_id": "oplog_ops"}, {"max_bytes": 1}) == {
            "_id": "oplog_ops", "max_bytes": 2 << 20,
        }  # fmt: skip
        assert database.oplog_ops.options().get("capped", False) == (kind == "capped")
    assert len(log(place.store)) == 52


def test_entries_that_no_agent_has_folded_are_folded_before_the_comparison(
    spark: SparkSession, tmp_path: Path, plain_url: str
) -> None:
    place = StorePlace(plain_url, "plain").create()
    rows = [row("video", str(n), T2) for n in range(20)]
    append(place.store, [operation("insert", "video", str(n), T2) for n in range(20)])
    with MongoClient[dict[str, Any]](plain_url) as client:
        database = client.get_default_database()
        database.oplog_states.delete_many({})
        database.oplog_meta.update_one({"_id": "oplog_ops"}, {"$set": {"n": 0}})
    counts = sync(spark, *place.argv, write_dump(tmp_path / "dump.jsonl", rows))
    assert (counts.total("untouched"), len(log(place.store))) == (20, 20)


def test_states_and_operations_are_dataframes_and_rows_are_written_under_the_guard(
    spark: SparkSession, place: StorePlace
) -> None:
    append(place.store, [operation("insert", "video", str(n), T1, "a") for n in range(40)])
    reader = (
        spark.read.format("oplog").option("store", str(place.store)).option("partitionRows", "15")
    )
    states = reader.option("types", "video").load().where("offset > 10")
    assert [found.parents for found in states.collect()] == [["a"]] * 30
    assert (
        reader.schema("offset bigint, type string")
        .option("table", "operations")
        .load()
        .distinct()
        .count()
        == 40
    )
    rows = spark.createDataFrame(
        [
            ("update", "video", "1", 2, T2),
            ("update", "video", "2", 2, T2),
            ("delete", "video", "3", 4, T2),
        ],
        "event string, type string, id string, expected_offset bigint, timestamp string",
    )
    for _ in range(2):  # as a retried task does
        rows.write.format("oplog").option("store", str(place.store)).mode("append").save()
    assert sorted(entry.event for entry in log(place.store, after=40)) == ["delete", "update"]


def test_the_password_shows_in_no_plan_and_in_no_error(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "mongodb://user:s3cret@127.0.0.1:1/oplog?serverSelectionTimeoutMS=100"
    states = spark.read.format("oplog").option("store", url).load()
    states.explain(extended=True)
    plan = capsys.readouterr().out
    assert "oplog" in plan
    with pytest.raises(PySparkException, match=r"MongoDB at 127\.0\.0\.1:1") as refused:
        states.collect()
    with pytest.raises(StoreUnavailableError, match=r"MongoDB at 127\.0\.0\.1:1") as failed:
        sync(spark, "--mongo-url", url, write_dump(tmp_path / "dump.jsonl", [row("video", "1")]))
    for text in (plan, str(refused.value), str(failed.value)):
        assert "s3cret" not in text

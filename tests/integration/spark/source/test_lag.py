"""The lag of a query, and the limit per trigger."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from oplog_sync.source import stream
from oplog_sync.source.lag import LagListener, QueryLag, lag_of
from oplog_sync.source.positions import Offset
from tests.integration.spark.source.streams import StreamSink, reader_of, stream_of
from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import wait_until
from tests.kits.spark.helpers import append, log, operation


def _progress(end: Offset, latest: Offset | None) -> StreamingQueryProgress:
    """Return what Spark reports after a batch, in the members that count here."""
    names = ("description", "startOffset", "numInputRows", "inputRowsPerSecond")
    source = dict.fromkeys((*names, "processedRowsPerSecond"), 0) | {
        "endOffset": end,
        "latestOffset": latest,
    }
    numbers = dict.fromkeys(("batchId", "batchDuration"), 0)
    return StreamingQueryProgress.fromJson(
        {
            "id": "11111111-2222-3333-4444-555555555555",
            "runId": "11111111-2222-3333-4444-555555555555",
            "name": "counts",
            "timestamp": "",
            "sources": [source],
            "sink": {"description": "", "numOutputRows": 0},
            "stateOperators": [],
            **numbers,
        }
    )


def test_the_lag_falls_to_zero_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, limit = 100_000, 1_000
    append(tmp_path / "oplog.db", (operation("insert", "video", str(n)) for n in range(count)))
    now = 0.0
    monkeypatch.setattr(stream, "monotonic", lambda: now)
    with Agent(tmp_path) as agent:
        for place in ({"store": str(tmp_path / "oplog.db")}, {"agent": agent.url}):
            reader = reader_of({**place, "start": "oldest", "maxOffsetsPerTrigger": str(limit)})
            at = reader.initialOffset()
            read_limit = reader.getDefaultReadLimit()
            lags: list[int] = []
            rows = 0
            while (end := reader.latestOffset(at, read_limit)) is not at:
                now += 10
                (part,) = reader.partitions(at, end)
                if len(lags) % 20 == 0:
                    rows += sum(batch.num_rows for batch in reader.read(part))
                lag = lag_of(_progress(end, reader.reportLatestOffset()))
                assert lag is not None
                lags.append(lag.operations)
                at = end
            reader.stop()
            assert lags == list(range(count - limit, -1, -limit)), place
            assert rows == 5 * limit


def test_a_listener_is_told_the_lag_after_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(n)) for n in range(40)])
    append(store, [operation("update", "video", str(n)) for n in range(5)])
    found: list[QueryLag] = []
    listener = LagListener(found.append)
    spark.streams.addListener(listener)
    try:
        options = {"store": str(store), "start": "oldest", "maxOperationsPerTrigger": "20"}
        StreamSink().complete(stream_of(spark, options), tmp_path / "checkpoint")
        assert wait_until(lambda: len(found) == 3)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.operations for lag in found] == [25, 5, 0]
    ms = [entry.ms for entry in log(store)]
    assert [lag.seconds for lag in found] == [(ms[-1] - ms[19]) / 1000, (ms[-1] - ms[39]) / 1000, 0]


def test_positions_of_other_sources_and_of_old_checkpoints_have_no_lag() -> None:
    assert lag_of(_progress({"topic": {"0": 5}}, {"topic": {"0": 9}})) is None
    assert lag_of(_progress({"id": "545b55c7f095528dd0f3863c"}, None)) is None
    assert lag_of(_progress({"id": "0", "offset": 0, "ms": 0}, None)) is None


def test_a_checkpoint_of_an_earlier_release_continues(tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(n)) for n in range(4)])
    reader = reader_of({"store": str(store)})
    head = reader.latestOffset(reader.initialOffset())
    old = {"id": head["id"]}
    assert reader.latestOffset(old) is old  # no batch without operations
    append(store, [operation("insert", "video", "4")])
    reader = reader_of({"store": str(store)})
    end = reader.latestOffset(old)
    (part,) = reader.partitions(old, end)
    (rows,) = reader.read(part)
    assert rows["key"].to_pylist() == ["video/4"]

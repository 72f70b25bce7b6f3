"""Streaming reads from a store."""

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.backend import make_backend
from oplog_sync.errors import SyncError
from oplog_sync.source import stream
from oplog_sync.source.positions import offset
from oplog_sync.source.store import LogPart, StatePart
from oplog_sync.source.stream import HOLD_SECONDS
from oplogd.model.event_id import Mark, format_id
from tests.integration.spark.source.streams import StreamSink, reader_of, stream_of
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.spark.helpers import StoreLocation, StorePlace, append, log, operation

_TRIMMED = pytest.mark.parametrize(
    "place", ["sqlite", "mongo-plain"], indirect=True
)  # FerretDB never trims its log


@pytest.mark.parametrize(("through", "count", "restarts"), [("store", 1_200, 2), ("agent", 600, 1)])
def test_operations_arriving_while_the_query_restarts_are_counted_once_each(
    spark: SparkSession, tmp_path: Path, through: str, count: int, restarts: int
) -> None:
    per_post = count // 60
    with Agent(tmp_path) as agent:
        assert agent.post(operation("insert", "first", "1")) == 204
        store = {
            "store": str(tmp_path / "oplog.db"),
            "start": "oldest",
            "maxOperationsPerTrigger": "200",
        }
        stream = stream_of(spark, store if through == "store" else {"agent": agent.url})
        table, checkpoint = StreamSink(), tmp_path / "checkpoint"
        allowed, posted = threading.Semaphore(0), threading.Semaphore(0)
        failed: list[BaseException] = []

        def produce() -> None:
            try:
                for start in range(0, count, per_post):
                    assert allowed.acquire(timeout=DEADLINE)
                    ids = range(start, start + per_post)
                    assert agent.post([operation("insert", "video", str(n)) for n in ids]) == 200
                    posted.release()
            except BaseException as error:
                failed.append(error)
                posted.release(count)

        producer = threading.Thread(target=produce)
        table.complete(stream, checkpoint)  # the position is in the checkpoint now
        producer.start()
        posts = count // per_post
        a_round = posts // (restarts + 1)
        for _ in range(restarts):
            allowed.release(a_round)
            assert posted.acquire(
                timeout=DEADLINE
            )  # so the query finds something; the others arrive meanwhile
            table.begin(stream, checkpoint).stop()
            assert all(posted.acquire(timeout=DEADLINE) for _ in range(a_round - 1))
        allowed.release(posts - restarts * a_round)
        producer.join(DEADLINE)
        assert not failed, failed
        table.complete(stream, checkpoint)
        entries = log(tmp_path / "oplog.db")
    found = table.rows()
    expected = entries if through == "store" else entries[1:]
    assert len(found) == len(expected) == (count + 1 if through == "store" else count)
    assert [(r.event_id, r.offset) for r in found] == [
        (format_id(Mark(e.offset, e.ms)), e.offset) for e in expected
    ]


def test_a_batch_is_the_same_range_each_time_it_is_read(place: StorePlace) -> None:
    store = place.store
    append(store, [operation("insert", "video", str(n)) for n in range(100)])
    reader = reader_of({"store": str(store), "start": "oldest", "partitionRows": "30"})
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    append(store, [operation("insert", "video", "later")])
    parts = reader.partitions(start, end)
    assert parts == [LogPart((0, 30)), LogPart((30, 60)), LogPart((60, 90)), LogPart((90, 100))]
    for _ in range(2):
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 100
    assert reader.partitions(end, end) == []
    assert reader.latestOffset() == reader.latestOffset(end)  # as Spark 4.1 calls it


def _wait_for_trim(store: StoreLocation, after: int) -> None:
    deadline = time.monotonic() + DEADLINE
    backend = make_backend(str(store))
    while (oldest := backend.locate(0).oldest) is None or oldest.offset <= after + 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@_TRIMMED
def test_a_position_that_has_left_the_log_raises_or_falls_back_to_the_states(
    tmp_path: Path, place: StorePlace
) -> None:
    store = place.store
    with place.agent(tmp_path, "--capped-collection-size", "100KB") as agent:
        assert agent.post([operation("insert", "video", str(n)) for n in range(10)]) == 200
        strict, tolerant = (
            reader_of({"store": str(store), "onGap": on_gap}) for on_gap in ("fail", "states")
        )
        start = tolerant.initialOffset()
        assert strict.initialOffset() == start
        assert agent.post([operation("delete", "video", str(n)) for n in range(5)]) == 200
        updates = [operation("update", "video", str(n % 50 + 5)) for n in range(1000)]
        assert agent.post(updates) == 200
        _wait_for_trim(store, after=10)
    start = tolerant.latestOffset(start)
    assert strict.latestOffset(strict.initialOffset()) == start
    end = tolerant.latestOffset(start)
    assert strict.latestOffset(start) == end
    with pytest.raises(
        SyncError, match=f"position {start['id']} has left the log, .* onGap to states"
    ):
        strict.partitions(start, end)
    parts = tolerant.partitions(start, end)
    assert all(isinstance(part, StatePart) for part in parts)
    rows = [row for part in parts for batch in tolerant.read(part) for row in batch.to_pylist()]
    assert Counter(row["event"] for row in rows) == {"delete": 5, "insert": 50}
    append(store, [operation("insert", "video", "new")])
    more = tolerant.latestOffset(end)
    (part,) = tolerant.partitions(end, more)
    found = [row["key"] for batch in tolerant.read(part) for row in batch.to_pylist()]
    assert found == ["video/new"]


def test_a_position_of_another_log_raises_even_when_told_to_fall_back(place: StorePlace) -> None:
    store = place.store
    append(store, [operation("insert", "video", "1")])
    reader = reader_of({"store": str(store), "onGap": "states"})
    head = reader.latestOffset()
    with pytest.raises(SyncError, match="belongs to another log"):
        reader.partitions(offset(format_id(Mark(7, 0))), head)
    with pytest.raises(SyncError, match="belongs to another log"):
        reader.partitions(offset(format_id(Mark(1, 0))), head)


def test_the_first_batch_of_a_stream_from_now_on_is_empty_and_holds_its_position(
    place: StorePlace,
) -> None:
    append(place.store, [operation("insert", "video", "1")])
    reader = reader_of({"store": str(place.store)})
    start = reader.initialOffset()
    append(place.store, [operation("insert", "video", "2")])
    end = reader.latestOffset(start)
    assert reader.initialOffset() == start
    assert end == {name: start[name] for name in ("id", "offset", "ms")}
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end)["offset"] == 2


def test_an_unchanged_position_is_held(place: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    append(place.store, [operation("insert", "video", "1")])
    now = 100.0
    monkeypatch.setattr(stream, "monotonic", lambda: now)
    reader = reader_of({"store": str(place.store)})
    start = reader.latestOffset(reader.initialOffset())  # the first batch is empty
    assert reader.latestOffset(start) == start
    append(place.store, [operation("insert", "video", "2")])
    assert reader.latestOffset(start) == start  # held
    now += HOLD_SECONDS
    end = reader.latestOffset(start)
    assert end != start
    append(place.store, [operation("insert", "video", "3")])
    assert reader.latestOffset(end) not in (start, end)  # a position that moved is not held

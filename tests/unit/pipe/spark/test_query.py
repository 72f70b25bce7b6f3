"""The life of a sink's query: its ends, its attempts, and what its status says meanwhile."""

import threading
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.errors import (
    BrokenBatchError,
    ConfigError,
    FencedError,
    GapError,
    PipeError,
    SinkError,
    SourceError,
)
from oplog_pipe.folder.failures import exit_code
from oplog_pipe.model.settings import PipeSettings, SinkSettings, SourceSettings
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.spark import query as module
from oplog_pipe.spark.batch import SinkBatches
from oplog_pipe.spark.noted import Checkpoint
from oplog_pipe.spark.query import QueryOptions, SinkQuery
from oplog_pipe.spark.stream import Reading, read_by
from oplog_sync.source.lag import QueryLag


class FakeQuery:
    """A query of Spark, which is its own writer and rows."""

    runId = "run"

    def __init__(self) -> None:
        self.isActive = True
        self.error: Exception | None = None
        self.status = {"isTriggerActive": False}
        self.lastProgress: object = None
        self.stopped = 0

    @property
    def writeStream(self) -> "FakeQuery":
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("queryName", "foreachBatch", "trigger", "option"):
            return lambda *_, **__: self
        raise AttributeError(name)

    def start(self) -> "FakeQuery":
        return self

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped += 1


class Noted:
    def __init__(self, spark: object, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def check(self, *given: object) -> Checkpoint:
        return Checkpoint(1, 1)

    def has_batches(self) -> bool:
        return False


class FakeClaim:
    """``taken``: whether another driver has begun."""

    def __init__(self, *given: object) -> None:
        self.taken = False

    def check(self) -> None:
        if self.taken:
            raise FencedError("another driver")


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, on_failure: Any) -> None:
        self.now = 100.0
        self.queries: list[FakeQuery] = []
        self.refused: PipeError | None = None
        self.lag: QueryLag | None = None
        monkeypatch.setattr(module, "NotedSettings", Noted)
        self.claims: list[FakeClaim] = []
        monkeypatch.setattr(module, "Claim", self._claim)
        monkeypatch.setattr(Reading, "stream", self._stream)
        monkeypatch.setattr(module, "lag_of", lambda _: self.lag)
        own = SinkSettings("s", "m:C", CustomOptions("m:C"), on_failure=on_failure)
        settings = PipeSettings(folder, folder, (SourceSettings("a", ("http://a",)),), (own,))
        clock = RetryClock(now=lambda: self.now, jitter=lambda: 0.0)
        self.query = SinkQuery(
            None,  # type: ignore[arg-type]  # nothing here uses it
            settings, 0, QueryOptions("cp", 2, 10), clock=clock,
        )  # fmt: skip
        self.query.start()

    def _claim(self, *given: object) -> FakeClaim:
        self.claims.append(FakeClaim())
        return self.claims[-1]

    def _stream(self, *given: object) -> FakeQuery:
        if self.refused is not None:
            raise self.refused
        self.queries.append(FakeQuery())
        return self.queries[-1]

    def end(self, error: PipeError | None) -> None:
        """Let the query end, and look at it."""
        assert self.query._running is not None
        query, batches = self.query._running
        batches.error = error
        query.isActive = False  # type: ignore[misc]  # of the fake
        self.query.look()

    def wait(self) -> None:
        """Wait for the longest pause, and look."""
        self.now += 301
        self.query.look()

    def write(self, batch: int) -> None:
        self.query._figures.batch = batch
        self.query.look()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path, "stop")


@pytest.fixture
def parking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path, "park")


def test_a_query_for_what_there_is_now_ends_without_an_error(scene: Scene) -> None:
    scene.end(None)
    assert (scene.query.is_done, scene.query.error) == (True, None)
    assert scene.query.status().phase == "stopped"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SinkError("refused"), 4),
        (ConfigError("wrong"), 2),
        (FencedError("another driver"), 4),
        (GapError("gone"), 5),
    ],
)
def test_a_failure_of_the_sink_ends_its_query(scene: Scene, error: PipeError, code: int) -> None:
    scene.end(error)
    assert scene.query.is_done
    assert scene.query.error is error
    assert exit_code(error) == code
    scene.wait()
    assert len(scene.queries) == 1


def test_a_batch_that_spark_does_not_end_is_tried_five_times(scene: Scene) -> None:
    for attempt in range(1, 6):
        assert len(scene.queries) == attempt
        scene.end(BrokenBatchError("an executor is lost"))
        scene.query.look()  # it is not yet time
        assert len(scene.queries) == attempt
        assert scene.query.is_done == (attempt == 5)
        scene.wait()
    assert exit_code(scene.query.error or PipeError()) == 1


def test_a_written_batch_gives_five_more_attempts(scene: Scene) -> None:
    for batch in range(8):
        scene.end(BrokenBatchError("an executor is lost"))
        assert scene.query.status().phase == "parked"
        scene.wait()
        scene.write(batch)
        assert scene.query.status().phase == "bulk"
    assert not scene.query.is_done


@pytest.mark.parametrize("error", [SinkError("away"), ConfigError("b"), BrokenBatchError("c")])
def test_a_parked_query_is_tried_until_it_works(parking: Scene, error: PipeError) -> None:
    for attempt in range(1, 20):
        assert len(parking.queries) == attempt
        parking.end(error)
        assert parking.query.status().error == str(error)
        parking.wait()
    parking.write(0)
    status = parking.query.status()
    assert (status.phase, status.error, status.offset) == ("bulk", None, 0)


def test_messages_that_are_gone_are_not_waited_for(parking: Scene) -> None:
    parking.end(GapError("gone"))
    assert parking.query.is_done


def test_a_query_does_not_take_the_fence_back(parking: Scene) -> None:
    parking.end(FencedError("another driver"))
    assert parking.query.is_done


def test_a_query_does_not_start_again_after_another_driver_has_begun(parking: Scene) -> None:
    parking.end(BrokenBatchError("CONCURRENT_STREAM_LOG_UPDATE"))
    parking.wait()
    assert len(parking.queries) == 2
    [claim] = parking.claims
    claim.taken = True
    parking.end(BrokenBatchError("CONCURRENT_STREAM_LOG_UPDATE"))
    parking.wait()
    assert (len(parking.queries), len(parking.claims)) == (2, 1)
    assert isinstance(parking.query.error, FencedError)


def test_a_source_that_refuses_ends_the_query(parking: Scene) -> None:
    parking.end(SinkError("away"))
    parking.refused = SourceError("a wrong password")
    parking.wait()
    assert parking.query.is_done
    assert exit_code(parking.query.error or PipeError()) == 1


def test_an_error_of_the_query_itself_counts_as_a_broken_batch(scene: Scene) -> None:
    scene.queries[0].error = ValueError("of Spark")
    scene.end(None)
    assert scene.query.status().phase == "parked"


def test_the_lag_grows_while_the_query_does_not_run(parking: Scene) -> None:
    parking.lag = QueryLag("s", 12, 3.0)
    parking.queries[0].lastProgress = object()
    parking.query.look()
    status = parking.query.status()
    assert (status.lag, status.lag_seconds) == (12, 3.0)
    parking.end(SinkError("away"))
    parking.now += 60
    status = parking.query.status()
    assert (status.lag, status.lag_seconds) == (12, 63.0)
    parking.now += 300
    parking.query.look()
    assert parking.query.status().lag_seconds == 3.0


def test_a_first_batch_that_takes_long_is_a_lag(scene: Scene) -> None:
    scene.queries[0].status["isTriggerActive"] = True
    scene.query.look()
    scene.now += 4
    assert scene.query.status().lag_seconds == 4.0
    scene.write(0)
    assert scene.query.status().lag_seconds == 0.0


def test_a_batch_whose_target_does_not_answer_is_a_lag(scene: Scene) -> None:
    scene.write(7)
    scene.queries[0].status["isTriggerActive"] = True
    scene.query.look()
    assert scene.query._running is not None
    batches = scene.query._running[1]
    assert isinstance(batches, SinkBatches)
    batches._retry.error, batches._retry.retries = "away", 3
    scene.now += 4
    scene.query.look()
    status = scene.query.status()
    assert (status.lag_seconds, status.retries, status.error) == (4.0, 3, "away")
    scene.end(SinkError("away"))
    assert scene.query.status().retries == 3


def test_a_batch_that_takes_long_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oplog_pipe")
    monkeypatch.setattr(module, "batch_progress", lambda *_: "stage 1 of 2, 0 of 2 tasks done")
    scene.queries[0].status["isTriggerActive"] = True
    for _ in range(12):
        scene.now += 1
        scene.query.look()
    told = [each for each in caplog.messages if "stage 1 of 2" in each]
    assert len(told) == 2


def test_a_stop_ends_the_query_once(scene: Scene) -> None:
    scene.query.stop()
    scene.query.look()
    assert scene.queries[0].stopped == 1
    assert isinstance(scene.query._leaving, threading.Event)
    assert scene.query._leaving.is_set()
    assert scene.query.status().phase == "stopped"


def test_a_sink_reads_only_topics_that_it_can_match() -> None:
    oplog = SourceSettings("o", ("http://a",))
    orders = SourceSettings("t", ("http://a",), "shop/orders")
    none = SourceSettings("n", ("http://a",), "shop/others", namespace="^never$")
    sources = [oplog, orders, none]

    def read(namespace: str, given: list[SourceSettings]) -> list[str]:
        own = SinkSettings("s", "m:C", CustomOptions("m:C"), namespace=namespace)
        return [each.name for each in read_by(own, given)]

    assert read(".*", sources) == ["o", "t"]
    assert read("^video$", sources) == ["o"]
    assert read("^shop/", sources) == ["o", "t"]
    assert read("^video$", [orders, none]) == ["n", "t"]  # a query needs a source

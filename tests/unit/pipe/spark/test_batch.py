"""The driver's part of a batch: in which order it moves the fence, and what failures leave."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.retry import LeftError, RetryClock
from oplog_pipe.errors import BrokenBatchError, ConfigError, FencedError, SinkError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Sink
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.spark import batch as module
from oplog_pipe.spark.batch import SinkBatches, SinkFigures
from oplog_pipe.spark.tasks.rows import FAILURE, LETTER, LIVE, REPORT, Failure, Report, Row, told
from oplog_pipe.spark.tasks.work import SinkWork


class Calls(Sink):
    """Notes its calls."""

    late_seconds = 30.0

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.term = 1
        self.fails: dict[str, SinkError] = {}

    def note(self, name: str, *values: Any) -> None:
        self.calls.append((name, *values))
        if name in self.fails:
            raise self.fails.pop(name)

    def open(self) -> None:
        self.note("open")

    def write(self, messages: Sequence[Message]) -> None:
        raise AssertionError("the driver writes no messages")

    def begin_term(self) -> int:
        self.note("term")
        return self.term

    def read_fence(self) -> Fence | None:
        raise AssertionError("a driver begins a term")

    def move_fence(self, fence: Fence) -> None:
        self.note("move", *fence)

    def stand_at(self, fence: Fence) -> None:
        self.note("stand", *fence)

    def begin_copy(self, generation: int, source: str) -> None:
        self.note("begin", generation, source)

    def end_copy(self, generation: int, source: str) -> None:
        self.note("end", generation, source)

    def abandon_copy(self, generation: int, source: str) -> None:
        self.note("abandon", generation, source)

    def close(self) -> None:
        self.note("close")


class Scene:
    """A sink, and what the tasks of its batches tell. ``stages``: that have begun again."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_new: bool = True
    ) -> None:
        self.sink = Calls()
        self.figures = SinkFigures()
        self.stages: set[int] = set()
        self.leaving = threading.Event()
        # Looks for another driver, and the one that finds it.
        self.checks = self.fenced_at = 0
        own = SinkSettings("s", "m:C", CustomOptions("m:C"), retry_for=60.0, dead_letter="d")
        work = SinkWork("p", folder, "sinks[0]", own, {"oplog": ".*"}, "run")
        monkeypatch.setattr(module, "told", self._told)
        monkeypatch.setattr("oplog_pipe.spark.tasks.work.build", lambda *_: self.sink)
        self.file = folder / "dead"
        self.batches = SinkBatches(
            work, self.figures, DeadLetters(self.file), self, self.check_driver,  # type: ignore[arg-type]
            tasks=2, is_new=is_new,
            stage_attempts=lambda stage: int(stage in self.stages), leaving=self.leaving,
            clock=RetryClock(pause=self._pause, jitter=lambda: 0.0),
        )  # fmt: skip

    def run(self, number: int, *rows: Row) -> list[Any]:
        """Run a batch, and return the calls of its sink."""
        self._rows = rows
        self.sink.calls.clear()
        try:
            self.batches(object(), number)  # type: ignore[arg-type]
        finally:
            calls = list(self.sink.calls)
        return calls

    def newest(self, number: int) -> int:
        """Is the versions of the batches, as ``give`` is."""
        return number

    def planned(self, number: int) -> list[str]:
        return []

    def give(self, rows: object, number: int, planned: list[str]) -> object:
        return rows

    def check_driver(self) -> None:
        self.checks += 1
        if self.checks == self.fenced_at:
            raise FencedError("another driver")

    def _told(self, rows: object, work: SinkWork, sink: Sink, tasks: int) -> "Scene":
        self.sink.note("tasks", *(work.fence or ()))
        return self

    def collect(self) -> list[Row]:
        return list(self._rows)

    def _pause(self, leaving: threading.Event, seconds: float) -> bool:
        self.sink.note("pause", seconds)
        return leaving.is_set()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path)


def report(**values: int) -> Row:
    return told(REPORT, Report(**values))


def test_the_fence_moves_before_the_tasks_and_before_the_end_of_a_copy(scene: Scene) -> None:
    assert scene.run(0, report(written=3)) == [
        ("open",), ("term",), ("move", 1, 0), ("tasks", 1, 0),
    ]  # fmt: skip
    lives = [Row(LIVE, "oplog", 50), Row(LIVE, "oplog", 60), Row(LIVE, "b", 10)]
    assert scene.run(1, report(written=2, filtered=1, retries=4), *lives) == [
        ("move", 1, 2), ("tasks", 1, 2), ("move", 1, 3), ("stand", 1, 3),
        ("begin", 10, "b"), ("end", 10, "b"), ("begin", 60, "oplog"), ("end", 60, "oplog"),
    ]  # fmt: skip
    assert scene.figures == SinkFigures(1, written=5, filtered=1, retries=4)


def test_a_driver_that_was_frozen_before_its_term_ends_and_one_that_was_frozen_later_too(
    scene: Scene,
) -> None:
    scene.fenced_at = 2
    with pytest.raises(FencedError):
        scene.run(0)
    assert scene.sink.calls == [("open",), ("term",), ("close",)]
    scene.fenced_at = 3
    with pytest.raises(FencedError):
        scene.run(0)
    assert not scene.sink.calls


PAUSE = ("pause", 30.0)


@pytest.mark.parametrize("why", ["restart", "term"])
def test_the_driver_waits_for_tasks_of_drivers_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    scene = Scene(monkeypatch, tmp_path, is_new=why != "restart")
    scene.sink.term = 1 if why == "restart" else 2
    term = scene.sink.term
    assert scene.run(0, report(), Row(LIVE, "oplog", 5)) == [
        ("open",), ("term",), ("move", term, 0), PAUSE, ("tasks", term, 0),
        ("move", term, 1), ("stand", term, 1), ("begin", 5, "oplog"), ("end", 5, "oplog"),
    ]  # fmt: skip
    assert PAUSE not in scene.run(1, report())


def test_the_driver_waits_for_attempts_of_tasks_before_the_end_of_a_copy(scene: Scene) -> None:
    calls = scene.run(0, report(attempt=1), Row(LIVE, "oplog", 5))
    assert calls[4:7] == [("move", 1, 1), ("stand", 1, 1), PAUSE]
    # The wait does for the next batch, too.
    assert PAUSE not in scene.run(1, report())


def test_a_batch_is_repeated_if_a_part_of_it_was_read_twice(scene: Scene) -> None:
    scene.stages = {5}
    with pytest.raises(BrokenBatchError):
        scene.run(0, report(written=1, stage=5), Row(LETTER, "oplog", data="{}"))
    assert not scene.file.exists()
    assert scene.figures == SinkFigures()


def test_many_letters_without_a_written_message_are_a_failure(scene: Scene) -> None:
    letters = [Row(LETTER, "oplog", data="{}")] * 19
    scene.run(0, *letters, report())
    scene.run(1, *letters, report(written=1))
    with pytest.raises(SinkError, match="the target seems to be ill"):
        scene.run(2, letters[0], report())
    assert scene.file.read_bytes().count(b"\n") == 38
    scene.run(3, *letters, report(written=200))
    with pytest.raises(SinkError, match="100 messages were refused, and 100"):
        scene.run(4, *[letters[0]] * 100, report(written=100))


def test_a_batch_after_late_tasks_without_a_copy_waits_behind_the_fence(scene: Scene) -> None:
    scene.run(0, report(attempt=1))
    assert scene.run(1, report()) == [("move", 1, 2), PAUSE, ("tasks", 1, 2)]
    assert scene.run(2, report()) == [("move", 1, 4), ("tasks", 1, 4)]


def test_letters_are_on_disk_and_their_copy_is_abandoned(scene: Scene) -> None:
    letter = Row(LETTER, "oplog", data='{"a":1}')
    calls = scene.run(0, letter, Row(LIVE, "b", 3), Row(LIVE, "oplog", 5), report(written=1))
    assert calls[-4:] == [
        ("begin", 3, "b"), ("end", 3, "b"), ("begin", 5, "oplog"), ("abandon", 5, "oplog"),
    ]  # fmt: skip
    assert scene.file.read_bytes() == b'{"a":1}\n'
    assert scene.figures.not_whole == {"oplog"}
    scene.run(1, Row(LIVE, "oplog", 6), report())
    assert scene.figures.not_whole == set()
    assert scene.figures.dead == 1


def test_a_failed_task_ends_the_query_without_letters_and_copies(scene: Scene) -> None:
    failure = told(FAILURE, Failure("TransformError", "shape: KeyError"))
    rows = (Row(LETTER, data="{}"), failure, Row(LIVE, "oplog", 5), report(written=9))
    with pytest.raises(SinkError, match="shape: KeyError"):
        scene.run(0, *rows)
    assert isinstance(scene.batches.error, SinkError)
    assert scene.sink.calls[-1] == ("tasks", 1, 0)
    assert not scene.file.exists()
    assert scene.figures == SinkFigures()


def test_what_a_task_finds_stays_what_it_is(scene: Scene) -> None:
    with pytest.raises(ConfigError):
        scene.run(
            0,
            told(
                FAILURE, Failure("ConfigError", "another folder or checkpoint has written the row")
            ),
        )
    with pytest.raises(FencedError, match="another driver writes the rows of 'p/s'"):
        scene.run(0, told(FAILURE, Failure("FencedError", "a later writer has begun")))


def test_passing_failures_of_the_target_are_tried_again(scene: Scene) -> None:
    scene.sink.fails = {
        name: SinkError("away", transient=True) for name in ("open", "term", "move", "end")
    }
    calls = scene.run(0, Row(LIVE, "oplog", 5), report())
    assert [calls.count(each) for each in (("open",), ("term",), ("end", 5, "oplog"))] == [2, 2, 2]


def test_a_driver_that_another_one_has_followed_ends(scene: Scene) -> None:
    scene.run(0, report())
    scene.sink.fails = {"move": FencedError("another driver")}
    with pytest.raises(FencedError):
        scene.run(1, report())
    assert ("tasks", 1, 2) not in scene.sink.calls


def test_a_stop_ends_the_wait_for_late_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene = Scene(monkeypatch, tmp_path, is_new=False)
    scene.leaving.set()
    with pytest.raises(LeftError):
        scene.run(0, report())
    assert scene.sink.calls[-1] == ("pause", 30.0)


def test_the_end_of_a_copy_is_judged_by_the_versions_of_its_batch(scene: Scene) -> None:
    class Owned(Calls):
        def own(self, owner: Owner) -> None:
            self.owner = owner

        def adopt(self, former: str) -> int:
            return 0

        def end_copy(self, generation: int, source: str) -> None:
            self.note("end", self.owner.newest())

    scene.sink = Owned()
    assert scene.run(7, Row(LIVE, "oplog", 5), report())[-1] == ("end", 7)
    assert scene.run(9, Row(LIVE, "oplog", 5), report())[-1] == ("end", 9)


def test_a_sink_without_a_fence_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Plain(Sink):
        def write(self, messages: Sequence[Message]) -> None: ...

    scene = Scene(monkeypatch, tmp_path, is_new=False)
    seen: list[object] = []

    def told(rows: object, work: SinkWork, *others: object) -> Scene:
        seen.append(work.fence)
        return scene

    monkeypatch.setattr("oplog_pipe.spark.tasks.work.build", lambda *_: Plain())
    monkeypatch.setattr(module, "told", told)
    scene.run(0, report(written=1), Row(LIVE, "oplog", 5))
    assert seen == [None]
    assert scene.figures.written == 1

"""A sink that a pipe on Spark has written before: a start lets late tasks fail, and waits."""

import threading
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.model.exits import EXIT_OK, EXIT_SINK
from oplog_pipe.sinks.parts.fence import SETTLED, Fence
from tests.unit.pipe.engine.bound import SOON, until
from tests.unit.pipe.engine.engine import Folder, RecordingSink, change, sink


class FencedSink(RecordingSink):
    """``failures``: of the first calls."""

    late_seconds = 12.0

    def __init__(self, fence: Fence | None, *failures: SinkError) -> None:
        super().__init__("c0")
        self.place = fence
        self.noted: list[Any] = []
        self._failures = list(failures)

    def note(self, *call: Any) -> None:
        self.noted.append(call)
        if self._failures:
            raise self._failures.pop(0)

    def read_fence(self) -> Fence | None:
        self.note("read")
        return self.place

    def begin_term(self) -> int:
        self.note("begin")
        assert self.place is not None
        return self.place.term + 1

    def move_fence(self, fence: Fence) -> None:
        self.note("move", *fence)

    def stand_at(self, fence: Fence) -> None:
        raise AssertionError("only Spark stands at a fence")


ENDED = [("read",), ("begin",), ("pause", 12.0), ("move", 4, SETTLED)]


@pytest.mark.parametrize(
    ("fence", "failures", "calls"),
    [
        (None, [], [("read",)]),
        (Fence(3, 8), [], ENDED),
        (Fence(3, SETTLED), [], [("read",)]),
        (Fence(3, -1), [SinkError("away", transient=True)], [("read",), *ENDED]),
        # Of another user, in the same schema: most likely none is of this sink.
        (Fence(3, 8), [TargetError("permission denied for table oplog_fence")], [("read",)]),
    ],
)
async def test_a_start_ends_the_term_of_a_driver_and_waits_for_late_tasks(
    tmp_path: Path, fence: Fence | None, failures: list[SinkError], calls: list[Any]
) -> None:
    fenced = FencedSink(fence, *failures)

    def pause(stopping: threading.Event, seconds: float) -> bool:
        if seconds == 12.0:
            fenced.noted.append(("pause", seconds))
        return stopping.wait(min(seconds, 0.01))

    folder = Folder(tmp_path, sink("c0"))
    clock = RetryClock(pause=pause)
    async with folder.start(fenced, brings=[change()] * 3, clock=clock) as running:
        await until(lambda: len(fenced.offsets) == 3)
    assert running.code == EXIT_OK
    assert fenced.noted == calls


async def test_a_fence_that_must_not_be_changed_stops_the_sink(tmp_path: Path) -> None:
    class Seen(FencedSink):
        def begin_term(self) -> int:
            raise TargetError("the user may not change table oplog_fence")

    fenced = Seen(Fence(3, 8))
    folder = Folder(tmp_path, sink("c0"))
    assert await folder.run(fenced, brings=[change()], clock=SOON) == EXIT_SINK
    assert fenced.offsets == []

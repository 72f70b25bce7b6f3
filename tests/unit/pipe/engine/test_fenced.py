"""A sink that a pipe on Spark has written before: a start ends the terms of its drivers."""

from pathlib import Path

import pytest

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.model.exits import EXIT_OK
from oplog_pipe.sinks.parts.fence import Fence
from tests.unit.pipe.engine.bound import SOON, until
from tests.unit.pipe.engine.engine import Folder, RecordingSink, change, sink


class FencedSink(RecordingSink):
    """``failures``: of the first attempts to end the terms."""

    late_seconds = 0.0

    def __init__(self, *failures: SinkError) -> None:
        super().__init__("c0")
        self.ended = 0
        self._failures = list(failures)

    def end_terms(self) -> None:
        self.ended += 1
        if self._failures:
            raise self._failures.pop(0)

    def begin_term(self) -> int:
        raise AssertionError("only Spark begins a term")

    def move_fence(self, fence: Fence) -> None:
        raise AssertionError("only Spark moves a fence")

    def stand_at(self, fence: Fence) -> None:
        raise AssertionError("only Spark stands at a fence")


@pytest.mark.parametrize(
    ("failures", "attempts"),
    [
        ([], 1),
        ([SinkError("away", transient=True)], 2),
        # Another user's fence, in the same schema: it has none of this sink.
        ([TargetError("permission denied for table oplog_fence")], 1),
    ],
)
async def test_a_start_ends_the_terms_of_drivers(
    tmp_path: Path, failures: list[SinkError], attempts: int
) -> None:
    folder = Folder(tmp_path, sink("c0"))
    fenced = FencedSink(*failures)
    async with folder.start(fenced, brings=[change()] * 3, clock=SOON) as running:
        await until(lambda: len(fenced.offsets) == 3)
    assert running.code == EXIT_OK
    assert fenced.ended == attempts

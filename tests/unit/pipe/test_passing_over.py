"""The end of a copy that an operator lets a sink pass over: ghosts would stay without a word."""

from pathlib import Path

import pytest

from oplog_pipe.commitlog import OffsetLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE
from tests.unit.pipe.test_operate import SOURCE, Pipe

TOLD = (
    "sink search: copy not whole: the last copy of system/oplog lacked messages, or its end, for"
    " this sink, and nothing was removed; run `oplog-pipe copy system/oplog` while the pipe is"
    " stopped"
)


@pytest.fixture
def pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pipe:
    pipe = Pipe(tmp_path, capsys)
    pipe.fill()
    return pipe


@pytest.mark.parametrize(
    ("flushed", "command", "is_passed"),
    [
        (3, ("ack", "search", "4"), True),
        (1, ("ack", "search", "5", "--force"), True),
        (1, ("reset", "search", "5"), True),
        (3, ("reset", "search", "4"), True),
        (1, ("ack", "search", "2"), False),
        (4, ("ack", "search", "5"), False),
        (1, ("reset", "search", "3"), False),
        (5, ("reset", "search", "3"), False),
    ],
)
def test_a_sink_that_passes_over_the_end_of_a_copy_is_not_whole(
    pipe: Pipe, flushed: int, command: tuple[str, ...], is_passed: bool
) -> None:
    pipe.flush("search", {"video": flushed, WHOLE_SINCE: -1})
    lines = pipe.out("offset", *command)
    assert OffsetLog.view(pipe.dir, "search").not_whole == ([SOURCE] if is_passed else [])
    assert lines[1:] == ([TOLD] if is_passed else [])
    assert (TOLD in pipe.out("status")) == is_passed

"""The progress of a pipe as one line: in the log, and on a terminal."""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable

import pytest

from oplog_pipe.model.status import LogStatus, PipeStatus, SinkStatus, SourceStatus
from oplog_pipe.watch.progress import ProgressMeter, TerminalLine, show_progress


def status(*parts: SourceStatus | SinkStatus) -> PipeStatus:
    return PipeStatus(
        "1", 0.0, LogStatus(0, 1, 1, 1, -1),
        [each for each in parts if isinstance(each, SourceStatus)],
        [each for each in parts if isinstance(each, SinkStatus)],
    )  # fmt: skip


SOURCE = SourceStatus("oplog", "system/oplog", "copy", received=5, copied=1000, copy_total=9000)
NEXT = SourceStatus("oplog", "system/oplog", "copy", received=5005, copied=5000, copy_total=9000)
SYNC = SourceStatus("oplog", "system/oplog", received=5)
SINK = SinkStatus("search", "file", "bulk", written=10, filtered=4, dead=1)
LATER = SinkStatus(
    "search", "file", "recovery", written=1000, filtered=20, dead=5, lag=1234, lag_seconds=3.2
)
RATES = (
    "received 1,000.0 messages per second; search: recovery, 202.0 per second, lag 1,234 (3.2 s)"
)
IDLE = "received 0.0 messages per second; search: 0.0 per second, lag 0"


def read(before: PipeStatus, after: PipeStatus) -> tuple[str, bool]:
    """Return the progress within five seconds."""
    return ProgressMeter(before, 100.0).read(after, 105.0)


def test_a_line_has_rate_lag_and_copy_with_the_time_left() -> None:
    text, is_busy = read(status(SOURCE, SINK), status(NEXT, LATER))
    assert text == f"{RATES}; copy of oplog: 5,000 of 9,000, 5.0 s left"
    assert is_busy
    unknown = SourceStatus("oplog", "system/oplog", "copy", received=5, copied=1000)
    assert read(status(unknown), status(unknown)) == (
        "received 0.0 messages per second; copy of oplog: 1,000", True,
    )  # fmt: skip
    standing, _ = read(status(SOURCE), status(SOURCE))
    assert standing.endswith("copy of oplog: 1,000 of 9,000")


def test_a_pipe_is_busy_while_something_moves_or_waits() -> None:
    assert read(status(SYNC, SINK), status(SYNC, SINK)) == (IDLE, False)
    for each in (
        SinkStatus("search", "file", "bulk", written=11, filtered=4, dead=1),
        SinkStatus("search", "file", "bulk", written=10, filtered=5, dead=1),
        SinkStatus("search", "file", "bulk", written=10, filtered=4, dead=2),
        SinkStatus("search", "file", "bulk", written=10, filtered=4, dead=1, lag=1),
    ):
        assert read(status(SYNC, SINK), status(SYNC, each))[1]


def pauses(count: int, then: list[float]) -> Callable[[float], Awaitable[None]]:
    """Return a pause that takes no time, and ends the progress after some of them."""

    async def pause(length: float) -> None:
        if len(then) == count:
            raise asyncio.CancelledError
        then.append(length)

    return pause


async def test_the_log_gets_a_line_every_five_seconds_unless_the_pipe_is_idle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oplog_pipe")
    idle, before, after = status(SYNC, SINK), status(SOURCE, SINK), status(NEXT, LATER)
    states, times = iter([idle, idle, before, after]), iter([0.0, 5.0, 10.0, 15.0])
    slept: list[float] = []
    with pytest.raises(asyncio.CancelledError):
        await show_progress(lambda: next(states), pause=pauses(3, slept), clock=lambda: next(times))
    assert slept == [5.0, 5.0, 5.0]
    first, second = caplog.messages
    assert first.startswith(IDLE)
    assert second == f"{RATES}; copy of oplog: 5,000 of 9,000, 5.0 s left"


async def test_a_terminal_has_one_line_that_is_rewritten_and_erased_at_the_end() -> None:
    terminal = io.StringIO()
    slept: list[float] = []
    with pytest.raises(asyncio.CancelledError):
        await show_progress(
            lambda: status(SYNC, SINK), terminal, pause=pauses(2, slept), clock=lambda: 0.0
        )
    assert slept == [1.0, 1.0]
    assert terminal.getvalue() == f"\r\x1b[K{IDLE}" * 2 + "\r\x1b[K"


def test_the_line_is_cut_at_the_width_and_stays_below_the_lines_of_the_log() -> None:
    terminal = io.StringIO()
    handler = logging.StreamHandler(terminal)
    line = TerminalLine(terminal, lambda: 6)
    record = logging.makeLogRecord({"msg": "logged"})
    with line.below([handler]):
        line.show("123456789")
        handler.handle(record)
        handler.handle(record)
        line.show("ab")
    handler.handle(record)
    assert terminal.getvalue() == (
        "\r\x1b[K12345\r\x1b[Klogged\nlogged\n\r\x1b[Kab\r\x1b[Klogged\n"
    )

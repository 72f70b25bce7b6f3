"""Stops: what is received is written, and a sink that hangs delays nothing."""

import asyncio
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog
from oplog_pipe.errors import SinkError
from oplog_pipe.model.exits import EXIT_OK, EXIT_SINK
from oplog_pipe.model.settings import BatchLimits
from tests.unit.pipe.engine.bound import until
from tests.unit.pipe.engine.engine import (
    DEADLINE,
    LONG,
    Folder,
    Gate,
    RecordingSink,
    change,
    refuse,
    sink,
)

SIX = [change(id=str(number)) for number in range(6)]


async def test_a_stop_writes_what_waits_and_nothing_comes_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0", batch=BatchLimits(time=LONG)), sink("c1"))
    held = Gate(0)
    c0, c1 = RecordingSink("c0"), RecordingSink("c1", held)
    async with folder.start(c0, c1, brings=SIX) as running:
        await held.wait()
        assert c0.writes == []
        running.stop.set()
        held.open.set()
    assert (running.code, running.pipe.hangs) == (EXIT_OK, False)
    assert (c0.writes, c1.writes) == ([[*range(6)]], [[*range(6)]])
    assert [c0.calls[-1], c1.calls[-1]] == ["close", "close"]
    assert folder.flushed() == {"c0": 5, "c1": 5}

    again = RecordingSink("c0"), RecordingSink("c1")
    assert await folder.run(*again) == EXIT_OK
    assert [each.writes for each in again] == [[], []]


async def test_a_sink_that_hangs_keeps_its_offset_and_the_others_are_flushed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0"), sink("c1"), shutdown_timeout=0.02)
    folder.fill(*SIX)
    folder.acknowledge(c0=1, c1=1)
    held = Gate(3)
    c0, c1 = RecordingSink("c0", held), RecordingSink("c1")
    async with folder.start(c0, c1) as running:
        await held.wait()
        await until(lambda: running.pipe.status().sinks[1].offset == 5)
    assert (running.code, running.pipe.hangs) == (EXIT_OK, True)
    assert folder.flushed() == {"c0": 2, "c1": 5}
    assert "sink 'c0' hangs" in caplog.text
    held.open.set()

    c0, c1 = RecordingSink("c0"), RecordingSink("c1")
    assert await folder.run(c0, c1) == EXIT_OK
    assert (c0.writes, c1.writes) == ([[3], [4], [5]], [])


async def test_a_backlog_longer_than_the_time_for_the_stop_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0"), shutdown_timeout=0.0)
    folder.fill(*SIX)
    folder.acknowledge(c0=0)
    held = Gate(3)
    c0 = RecordingSink("c0", held)
    async with folder.start(c0) as running:
        await held.wait()
        running.stop.set()
        await running.task
        held.open.set()
    assert folder.flushed() == {"c0": 2}
    again = RecordingSink()
    assert await folder.run(again) == EXIT_OK
    assert again.writes == [[3], [4], [5]]


async def test_a_stop_ends_the_retries_of_a_sink_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0", retry_for=LONG))
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def away(offsets: list[int]) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise SinkError("the server is unreachable", transient=True)

    async with folder.start(RecordingSink("c0", away), brings=SIX) as running:
        async with asyncio.timeout(DEADLINE):
            await failed.wait()
    assert (running.code, running.pipe.hangs, folder.flushed()) == (EXIT_OK, False, {"c0": -1})
    assert "sink 'c0' stops at offset -1" in caplog.text


async def test_a_permanent_failure_lets_the_other_sinks_write_what_was_received(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0"), sink("c1", batch=BatchLimits(time=LONG)))
    c0, c1 = RecordingSink("c0", refuse(2, KeyError("field"))), RecordingSink("c1")
    async with folder.start(c0, c1, brings=SIX) as running:
        await asyncio.wait({running.task}, timeout=DEADLINE)
        assert running.task.done()
    assert (running.code, c1.writes) == (EXIT_SINK, [[*range(6)]])
    assert folder.flushed() == {"c0": -1, "c1": 5}
    status = running.pipe.status()
    first, second = [each.error for each in status.sinks]
    assert first is not None
    assert first.startswith("KeyError in ")
    assert second is None


async def test_a_folder_can_be_used_again_after_each_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0"))
    assert await folder.run(RecordingSink(), brings=SIX) == EXIT_OK
    CommitLog.open(folder.path).close()


async def test_a_sink_that_exits_the_program_in_close_counts_as_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Exiting(RecordingSink):
        def close(self) -> None:
            raise SystemExit(3)

    folder = Folder(tmp_path, sink("c0"))
    async with folder.start(Exiting(), brings=SIX) as running:
        await running.sources_or_end()
    assert (running.code, running.pipe.hangs) == (EXIT_OK, False)
    assert "sink 'c0': closing has failed: SystemExit in test_stop.py, line " in caplog.text

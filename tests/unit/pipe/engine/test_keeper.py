"""Flushes and compaction, status and ages."""

import asyncio
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import LogError
from oplog_pipe.folder.keeper import ManagedSink, SinkKeeper
from oplog_pipe.model.exits import EXIT_FAILED, EXIT_OK
from oplog_pipe.model.settings import BatchLimits
from oplog_pipe.model.wholeness import Wholeness
from oplog_pipe.watch.ages import EntryAges
from tests.unit.pipe.engine.engine import DEADLINE, LONG, Folder, Gate, RecordingSink, change, sink

CLOSED = "ABCABCABCABCABCBA"  # 0 to 16: the last C is 14, B 15, A 16


def _log(path: Path) -> CommitLog:
    """Return a log: 0 to 16 in a closed segment, 17 to 33 in the active one."""
    log = CommitLog.open(path)
    log.append([change(key) for key in CLOSED])
    size = log.bytes
    log.close()
    log = CommitLog.open(path, max_segment_bytes=size)
    log.append([change("ABC"[number % 3]) for number in range(17)])
    return log


def test_closed_segments_below_every_flushed_offset_keep_the_last_entry_per_namespace(
    tmp_path: Path,
) -> None:
    log = _log(tmp_path)
    assert [(each.base, each.newest) for each in log.segments] == [(0, 16), (17, 33)]
    slow, fast = (OffsetLog.open(tmp_path, name) for name in ("slow", "fast"))
    slow.write({"A": 16, "B": 15, "C": 14})
    fast.write({"A": 26, "B": 23, "C": 27})

    def keeper(held: dict[str, int]) -> SinkKeeper:
        kept = [
            ManagedSink(
                Worker(sink(name), RecordingSink(), Steps([]), log, SinkPlace(each.offset or 0)),
                each,
            )
            for name, each in (("slow", slow), ("fast", fast))
        ]
        return SinkKeeper(log, kept, held=held, interval=LONG)

    keeper(held={"gone": 15}).compact()
    assert log.oldest == 0
    keeper(held={}).compact()
    assert [entry.offset for entry in log.read(0)] == [14, 15, 16]
    assert [entry.offset for entry in log.read(17)] == [*range(17, 34)]
    log.close()


def test_a_mark_behind_the_offset_of_a_sink_lets_nothing_be_compacted(tmp_path: Path) -> None:
    log = _log(tmp_path)
    offsets = OffsetLog.open(tmp_path, "slow")
    offsets.write({"A": 3, WHOLE_SINCE: 33})
    worker = Worker(sink("slow"), RecordingSink(), Steps([]), log, SinkPlace(3, Wholeness(33)))
    keeper = SinkKeeper(log, [ManagedSink(worker, offsets)], held={}, interval=LONG)
    worker.place.acknowledge(5, {"A": 5}, missed=5)
    keeper.flush()
    keeper.compact()
    assert (offsets.whole_since, worker.status().flushed, log.compacted) == (33, 5, -1)
    log.close()


async def test_offsets_are_flushed_and_the_log_compacted_while_the_pipe_runs(
    tmp_path: Path,
) -> None:
    folder = Folder(
        tmp_path,
        sink("c0", batch=BatchLimits(1, time=0.0)),
        max_segment_bytes=1,
        offset_flush=0.001,
    )
    last = Gate(5)
    async with folder.start(RecordingSink("c0", last), brings=[change()] * 6) as running:
        await last.wait()
        async with asyncio.timeout(DEADLINE):
            while running.log_status.oldest != 4:
                await asyncio.sleep(0.001)
        (status,) = running.pipe.status().sinks
        assert (status.offset, status.flushed, status.lag, status.phase) == (4, 4, 1, "bulk")
        last.open.set()
    assert (running.code, folder.flushed()) == (EXIT_OK, {"c0": 5})


async def test_a_flush_that_fails_stops_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0"), offset_flush=0.001)

    def full(*_: object) -> None:
        raise LogError("offsets/c0.log: No space left on device")

    async with folder.start(RecordingSink()) as running:
        await running.sources_or_end()
        monkeypatch.setattr(OffsetLog, "write", full)
        assert running.sources is not None
        running.sources.log.append([change()])
        await asyncio.wait({running.task}, timeout=DEADLINE)
        assert running.task.done()
    assert running.code == EXIT_FAILED
    assert "No space left on device" in caplog.text


def test_the_age_of_an_entry_counts_from_the_first_note_that_has_it() -> None:
    time = [0.0]
    ages = EntryAges(lambda: time[0])
    for now, end in ((0.0, 5), (1.0, 5), (2.0, 9), (3.0, 10)):
        time[0] = now
        ages.note(end)
    time[0] = 10.0
    assert [ages.of(offset) for offset in (0, 4, 5, 8, 9, 10)] == [10.0, 10.0, 8.0, 8.0, 7.0, 0.0]


def test_ages_of_a_long_backlog_take_bounded_memory_and_stay_in_order() -> None:
    time = [0.0]
    ages = EntryAges(lambda: time[0])
    for now in range(20_000):
        time[0] = float(now)
        ages.note(now + 1)
    found = [ages.of(offset) for offset in range(20_000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 19_999.0
    assert found[-1000:] == [float(19_999 - offset) for offset in range(19_000, 20_000)]

"""The recorder: one append for all that waits, bounded memory, everything kept at the end."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog.codec import NewEntry
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.errors import LogError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.recorder import Recorder
from oplog_pipe.follow.source import Failures
from oplog_pipe.follow.streams import Change
from oplog_pipe.follow.track import Track
from oplog_pipe.model.settings import SourceSettings
from tests.kits.agents.agent import DEADLINE
from tests.kits.pipe.sources import ops


class HeldLog(CommitLog):
    """A log whose first append waits until the test lets it go on."""

    def hold(self) -> None:
        self.appends: list[int] = []
        self.began, self.may_end = threading.Event(), threading.Event()

    def append(self, entries: Sequence[NewEntry]) -> int:
        self.began.set()
        assert self.may_end.wait(DEADLINE)
        self.appends.append(len(entries))
        return super().append(entries)


class BrokenLog(CommitLog):
    def append(self, entries: Sequence[NewEntry]) -> int:
        raise LogError("the disk is full")


def track(name: str = "oplog") -> Track:
    return Track(SourceSettings(name, ()), SourceCheckpoint("system/oplog", "0", 0))


def change(number: int) -> Change:
    id_ = f"{number:024x}"
    return Change(id_, number, "insert", "video", f"o{number}", 1, b'{"n":1}')


async def began(log: HeldLog) -> None:
    assert await asyncio.to_thread(log.began.wait, DEADLINE)


async def test_all_that_waits_while_the_disk_works_is_one_append(tmp_path: Path) -> None:
    log = HeldLog.open(tmp_path)
    log.hold()
    tracks = [track("a"), track("b")]
    async with Recorder(log, Checkpoints(tmp_path), tracks) as recorder:
        recorder.put(tracks[0], [change(0)])
        await began(log)
        for number in range(1, 101):
            recorder.put(tracks[number % 2], [change(number)])
        log.may_end.set()
    assert log.appends == [1, 100]
    assert sorted(ops(log)) == sorted(("insert", f"o{number}") for number in range(101))
    assert [each.position for each in tracks] == [f"{number:024x}" for number in (100, 99)]
    saved = [Checkpoints(tmp_path).load(each) for each in "ab"]
    assert [each and (each.position, each.end) for each in saved] == [
        (f"{number:024x}", 101) for number in (100, 99)
    ]
    log.close()


async def test_there_is_room_again_when_what_was_received_is_on_disk(tmp_path: Path) -> None:
    log = HeldLog.open(tmp_path)
    log.hold()
    one = track()
    size = change(0).size
    async with Recorder(log, Checkpoints(tmp_path), [one], max_bytes=2 * size) as recorder:
        recorder.put(one, [change(0)])
        await recorder.room()
        recorder.put(one, [change(1)])
        waiting = asyncio.create_task(recorder.room())
        await began(log)
        await asyncio.sleep(0)
        assert not waiting.done()
        log.may_end.set()
        async with asyncio.timeout(DEADLINE):
            await waiting
    assert log.end == 2
    log.close()


async def test_a_log_that_fails_ends_it_and_keeps_no_checkpoint(tmp_path: Path) -> None:
    log = BrokenLog.open(tmp_path)
    one = track()
    checkpoints = Checkpoints(tmp_path)

    async def record() -> None:
        async with Recorder(log, checkpoints, [one]) as recorder:
            recorder.put(one, [change(0)])
            async with asyncio.timeout(DEADLINE):
                await recorder.ended()

    with pytest.raises(LogError, match="full"):
        await record()
    assert checkpoints.load("oplog") is None
    assert one.position == "0"
    log.close()


class LateRoom(CommitLogRoom):
    """Has room for the second append only. ``began``: the first one waits."""

    def hold(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def wait(self, size: int, is_over: Callable[[], bool]) -> bool:
        if self.began.is_set():
            return True
        self.began.set()
        return not self.may_end.wait(DEADLINE)


async def test_nothing_follows_an_append_that_ended_without_room(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    one = track()
    room = LateRoom(log, 0)
    room.hold()
    async with Recorder(log, Checkpoints(tmp_path), [one], room) as recorder:
        recorder.put(one, [change(0)])
        assert await asyncio.to_thread(room.began.wait, DEADLINE)
        recorder.put(one, [change(1)])
        room.may_end.set()
    assert (log.end, one.position) == (0, "0")
    log.close()


class LastRoom(LateRoom):
    """Has room for the first append only, which waits."""

    def wait(self, size: int, is_over: Callable[[], bool]) -> bool:
        return not self.began.is_set() and not super().wait(size, is_over)


async def test_no_step_follows_an_append_that_ended_without_room(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    one = track()
    room = LastRoom(log, 0)
    room.hold()
    async with Recorder(log, Checkpoints(tmp_path), [one], room) as recorder:
        recorder.put(one, [change(0)])
        assert await asyncio.to_thread(room.began.wait, DEADLINE)
        recorder.put(one, [change(1)])
        step = asyncio.create_task(recorder.step(lambda: one.adopt("a store")))
        await asyncio.sleep(0)  # both come together
        room.may_end.set()
    await step
    assert (log.end, one.position, one.store) == (1, f"{0:024x}", None)
    log.close()


async def test_an_append_waits_until_there_is_room(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    one = track()
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    room = CommitLogRoom(log, 0)

    def ask() -> None:
        loop.call_soon_threadsafe(asked.set)

    room.asked = ask
    async with Recorder(log, Checkpoints(tmp_path), [one], room) as recorder:
        recorder.put(one, [change(0), change(1)])
        async with asyncio.timeout(DEADLINE):
            await asked.wait()
            assert log.end == 0
            assert room.lacking is not None
            room.grant(room.lacking)
            while log.end < 2:
                await asyncio.sleep(0.001)
    assert one.position == f"{1:024x}"
    log.close()


async def test_a_checkpoint_is_saved_soon_although_nothing_comes_after_it(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    one = track()
    checkpoints = Checkpoints(tmp_path)
    async with Recorder(log, checkpoints, [one], save_interval=0.02) as recorder:
        recorder.put(one, [change(7)])
        async with asyncio.timeout(DEADLINE):
            while checkpoints.load("oplog") is None:
                await asyncio.sleep(0.005)
        saved: Any = checkpoints.load("oplog")
        assert (saved.position, saved.end) == (f"{7:024x}", 1)
    log.close()


def test_of_a_long_series_of_failures_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    failures = Failures("s", lambda: now)
    for _ in range(100):
        failures.tell("http://a", "away", 1.0)
    assert len(caplog.records) == 7
    now += 61
    failures.tell("http://a", "away", 1.0)
    assert len(caplog.records) == 8
    assert caplog.records[0].getMessage() == "source 's': http://a: away; trying again in 1.0 s"

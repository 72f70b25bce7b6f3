"""The bound of the commit log: sinks that do not work give up their place, or the sources wait."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import SinkError
from oplog_pipe.folder.backlog import RecoveryBacklog
from oplog_pipe.folder.keeper import ManagedSink, SinkKeeper
from oplog_pipe.folder.making_room import GiveUp, Holder, Wait, decide
from oplog_pipe.model.settings import SourceSettings
from tests.unit.pipe.engine.bound import ENTRY, SHOP, changes
from tests.unit.pipe.engine.engine import (
    DEADLINE,
    LONG,
    Folder,
    RecordingSink,
    control,
    sink,
)


def holder(name: str, offset: int, stays: str | None = None) -> Holder:
    return Holder(name, offset, stays)


@pytest.mark.parametrize(
    ("closed", "holders", "expected"),
    [
        ([], [holder("dead", -1)], None),
        ([9, 19], [holder("dead", 19), holder("well", 25)], None),
        ([9, 19], [], None),
        ([9, 19, 29], [holder("dead", 3), holder("well", 25)], GiveUp(["dead"], 19)),
        ([9, 19, 29], [holder("dead", 3), holder("other", 8)], GiveUp(["dead", "other"], 29)),
        ([9, 19, 29], [holder("dead", 3), holder("far", 12)], GiveUp(["dead"], 9)),
        ([9, 19, 29], [holder("dead", 3), holder("slow", 8, "slow")], Wait(["slow"])),
        ([9, 19, 29], [holder("dead", 3), holder("slow", 9, "slow")], GiveUp(["dead"], 9)),
        ([9], [holder("a", 3, "x"), holder("b", 4, "y")], Wait(["x", "y"])),
    ],
)
def test_sinks_give_up_what_no_other_sink_needs(
    closed: list[int], holders: list[Holder], expected: object
) -> None:
    assert decide(closed, holders) == expected


def test_a_wait_is_told_if_it_lasts_and_ends_with_a_grant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log = CommitLog.open(tmp_path)
    now, asked = 0.0, 0

    def ask() -> None:
        nonlocal now, asked
        asked += 1
        assert room.lacking is not None
        room.refuse(room.lacking, f"reason {asked}")
        assert room.status().waits == f"reason {asked}"
        assert (not caplog.records) == (asked < 3)
        if asked == 3:
            room.grant(room.lacking)
        now += 5

    room = CommitLogRoom(log, ENTRY, lambda: now)
    room.asked = ask
    assert room.wait(ENTRY, lambda: False)
    assert asked == 0
    assert room.wait(ENTRY + 1, lambda: False)
    assert [each.getMessage() for each in caplog.records] == [
        "reason 3",
        "the commit log has room again, and the sources go on",
    ]
    assert room.status().waits is None
    assert room.lacking is None
    assert not room.wait(ENTRY + 1, lambda: asked == 4)
    log.close()


def test_a_segment_is_at_most_a_quarter_of_the_bound(tmp_path: Path) -> None:
    settings = Folder(tmp_path, max_segment_bytes=1_000).settings
    bounds = [None, 3_999, 4_000, 40_000]
    assert [replace(settings, max_log_bytes=each).segment_bytes for each in bounds] == [
        1_000, 999, 1_000, 1_000,
    ]  # fmt: skip


class Bounded:
    """A log of two closed segments of five entries and an open one. ``room``: of no more bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = CommitLog.open(path, max_segment_bytes=5 * ENTRY)
        self.log.append(changes(11))
        self.room = CommitLogRoom(self.log, self.log.bytes)
        self.kept: list[ManagedSink] = []
        self.now = 0.0

    def add(
        self, name: str, offset: int, sources: Sequence[SourceSettings] = (), **state: Any
    ) -> Worker:
        offsets = OffsetLog.open(self.path, name)
        offsets.write({"": offset})
        worker = Worker(
            sink(name, retry_for=LONG), state.get("sink", RecordingSink(name)), Steps([]), self.log,
            SinkPlace(offset), clock=state.get("clock", RetryClock()),
        )  # fmt: skip
        worker._parked = state.get("parked")
        backlog = (
            RecoveryBacklog(self.log, sink(name), sources, is_removed=True) if sources else None
        )
        self.kept.append(ManagedSink(worker, offsets, backlog))
        return worker

    def has_room(self, after: float = 0.0, **held: int) -> bool:
        """Return whether one entry more gets room, so many seconds after the start."""
        keeper = SinkKeeper(
            self.log, self.kept, held=held, interval=LONG, room=self.room, now=lambda: self.now
        )
        self.now += after
        self.room.asked = keeper.make_room
        self.reason: str | None = None

        def is_over() -> bool:
            self.reason = self.room.reason
            return self.reason is not None

        return self.room.wait(ENTRY, is_over)


def test_a_parked_sink_gives_up_its_place_and_notes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = Bounded(tmp_path)
    dead = found.add("dead", 1, parked="away")
    found.add("well", 10)
    assert found.has_room()
    assert (dead.place.offset, dead.place.copy_due, dead.status().copy_due) == (9, 9, True)
    on_disk = OffsetLog.view(tmp_path, "dead")
    assert (on_disk.offset, on_disk.whole_since, on_disk.copy_due) == (9, 9, 9)
    assert [each.offset for each in found.log.read(0)] == [9]
    assert "sink 'dead' gives up its place" in caplog.text
    assert "8 entries from offset 2 to 9" in caplog.text


def test_a_sink_that_works_is_waited_for_and_one_that_hangs_is_not(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    slow = found.add("slow", 1)
    found.add("well", 10)
    assert not found.has_room()
    assert found.reason == (
        "the commit log has reached max_log_bytes, and the sources wait: sink 'slow' has still to"
        " write 9 entries"
    )
    assert not found.has_room(299.0)
    assert found.has_room(300.0)
    assert slow.place.offset == 9


@pytest.mark.parametrize("method", ["begin_copy", "end_copy"])
def test_a_call_at_a_copy_may_take_long_until_it_fails(tmp_path: Path, method: str) -> None:
    found = Bounded(tmp_path)
    called, goes_on, failed = threading.Event(), threading.Event(), threading.Event()

    class Slow(RecordingSink):
        def call(self, *_: object) -> None:
            called.set()
            assert goes_on.wait(DEADLINE)
            raise SinkError("away", transient=True)

    def pause(_: threading.Event, __: float) -> bool:
        failed.set()
        return worker._left.wait(DEADLINE)

    target = Slow("slow")
    setattr(target, method, target.call)
    found.log.append([control("reset"), control("live", 11)])
    worker = found.add("slow", 9, sink=target, clock=RetryClock(pause=pause))
    worker.start()
    assert called.wait(DEADLINE)
    found.log.append(changes(9))
    found.now += 1000.0
    assert not found.has_room(1000.0)
    assert found.reason is not None
    assert "sink 'slow' begins or ends a copy, and has still to write" in found.reason
    goes_on.set()
    assert failed.wait(DEADLINE)
    assert not found.has_room(299.0)
    assert found.has_room(300.0)
    worker.leave()
    worker.join(DEADLINE)


def test_a_sink_of_a_topic_keeps_its_place_and_the_reason_says_what_helps(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    orders = found.add("orders", 1, [SHOP], parked="away")
    assert not found.has_room()
    assert found.reason is not None
    assert "no copy brings messages of shop/orders again: mend its target, raise" in found.reason
    assert "`oplog-pipe offset delete orders`" in found.reason
    assert orders.place.offset == 1


def test_offsets_of_a_removed_sink_are_never_passed_over(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    dead = found.add("dead", 1, parked="away")
    assert not found.has_room(gone=0)
    assert found.reason is not None
    assert "`oplog-pipe offset delete gone`" in found.reason
    assert dead.place.offset == 1


def test_an_append_has_room_if_nothing_can_leave(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    found.add("well", 9)
    found.room.max_bytes = 0
    assert found.has_room()
    assert (found.log.oldest, found.log.bytes) == (9, 2 * ENTRY)


def test_a_late_answer_lets_no_other_append_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Bounded(tmp_path)
    found.add("well", 9)
    room, is_over = found.room, threading.Event()
    asked = threading.Semaphore(0)
    passed: list[bool] = []

    def append_twice() -> None:
        passed.append(room.wait(ENTRY, lambda: False))
        room.max_bytes = 0
        passed.append(room.wait(ENTRY, is_over.is_set))

    def decide_late(closed: list[int], holders: list[Holder]) -> object:
        answer = decide(closed, holders)
        room.max_bytes = None
        room.asked = asked.release
        room.wake()
        assert asked.acquire(timeout=DEADLINE)
        return answer

    monkeypatch.setattr("oplog_pipe.folder.keeper.decide", decide_late)
    keeper = SinkKeeper(found.log, found.kept, held={}, interval=LONG, room=room)
    room.max_bytes, room.asked = 0, asked.release
    appends = threading.Thread(target=append_twice)
    appends.start()
    assert asked.acquire(timeout=DEADLINE)
    room.asked = lambda: None
    keeper.make_room()
    is_over.set()
    room.wake()
    appends.join(DEADLINE)
    assert passed == [True, False]

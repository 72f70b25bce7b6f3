"""The bound of the commit log: sinks that do not work give up their place, or the sources wait."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog import CommitLog, NewEntry, OffsetLog
from oplog_pipe.commitlog.codec import size_of
from oplog_pipe.errors import SinkError
from oplog_pipe.exits import EXIT_OK
from oplog_pipe.keeper import Keeper, Kept
from oplog_pipe.making_room import GiveUp, Holder, Wait, decide
from oplog_pipe.message import version_of
from oplog_pipe.place import Place
from oplog_pipe.retry import Clock
from oplog_pipe.room import Room
from oplog_pipe.settings import SourceSettings
from oplog_pipe.steps import Steps
from oplog_pipe.wholeness import Wholeness
from oplog_pipe.worker import Worker
from tests.unit.pipe.engine.engine import (
    CREATED,
    DEADLINE,
    LONG,
    Folder,
    RecordingSink,
    Running,
    ScriptedSources,
    change,
    control,
    sink,
)

SOON = Clock(pause=lambda stopping, seconds: stopping.wait(min(seconds, 0.01)))
ENTRY = size_of([change(id="000")])
SHOP = SourceSettings("shop/orders", ("http://localhost:1",), "shop/orders")


def changes(count: int, namespace: str = "video") -> list[NewEntry]:
    return [change(namespace, id=f"{number:03}") for number in range(count)]


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

    room = Room(log, ENTRY, lambda: now)
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
        self.room = Room(self.log, self.log.bytes)
        self.kept: list[Kept] = []
        self.now = 0.0

    def add(self, name: str, offset: int, topics: Sequence[str] = (), **state: Any) -> Worker:
        offsets = OffsetLog.open(self.path, name)
        offsets.write({"": offset})
        worker = Worker(sink(name), RecordingSink(name), Steps([]), self.log, offset=offset)
        worker._parked = state.get("parked")
        self.kept.append(Kept(worker, offsets, topics))
        return worker

    def has_room(self, after: float = 0.0, **held: int) -> bool:
        """Return whether one entry more gets room, so many seconds after the start."""
        keeper = Keeper(
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
    assert (dead.offset, dead.copy_due, dead.status().copy_due) == (9, 9, True)
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
    assert slow.offset == 9


def test_a_sink_of_a_topic_keeps_its_place_and_the_reason_says_what_helps(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    orders = found.add("orders", 1, ["shop/orders"], parked="away")
    assert not found.has_room()
    assert found.reason is not None
    assert "no copy brings messages of shop/orders again: mend its target, raise" in found.reason
    assert "`oplog-pipe offset delete orders`" in found.reason
    assert orders.offset == 1


def test_offsets_of_a_removed_sink_are_never_passed_over(tmp_path: Path) -> None:
    found = Bounded(tmp_path)
    dead = found.add("dead", 1, parked="away")
    assert not found.has_room(gone=0)
    assert found.reason is not None
    assert "`oplog-pipe offset delete gone`" in found.reason
    assert dead.offset == 1


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

    monkeypatch.setattr("oplog_pipe.keeper.decide", decide_late)
    keeper = Keeper(found.log, found.kept, held={}, interval=LONG, room=room)
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


def test_a_place_that_was_given_up_is_not_taken_back() -> None:
    changed: list[None] = []
    place = Place(1, Wholeness(1), changed=lambda: changed.append(None))
    assert place.give_up(9)
    place.acknowledge(4, {"video": 4, "copy//of/oplog": -1}, 3)
    assert (place.offset, place.take_unflushed()) == (
        9, {"": 9, "copy//since": 9, "copy//due": 9},
    )  # fmt: skip
    assert not place.give_up(9)
    assert not place.end_copy("oplog", 9)
    assert place.end_copy("oplog", 10)
    assert not place.wants_copy
    place.wrote()
    assert (place.wants_copy, len(changed)) == (True, 1)
    assert place.give_up(12)
    assert not place.wants_copy
    place.begin_copy(9)
    assert place.copy_due == 12
    place.begin_copy(12)
    assert (place.copy_due, place.take_unflushed()["copy//due"]) == (-1, -1)


class BoundSources(ScriptedSources):
    """Appends entries while there is room. Each run brings the next list."""

    lists: list[list[NewEntry]]
    room: Room
    largest = 0

    async def run(self) -> None:
        entries = self.lists.pop(0)
        is_over = False
        try:
            while entries:
                if await asyncio.to_thread(self.room.wait, size_of(entries[:1]), lambda: is_over):
                    self.log.append([entries.pop(0)])
                    self.largest = max(self.largest, self.log.bytes)
            self.running.set()
            await asyncio.Event().wait()
        finally:
            is_over = True
            self.room.wake()


class BoundFolder(Folder):
    def start(self, *sinks: RecordingSink, lists: Any = (), **options: Any) -> Running:
        running = super().start(*sinks, **options)

        def open_sources(_: object, log: CommitLog, path: Path, room: Room) -> BoundSources:
            sources = BoundSources(log, self.events, [], None)
            sources.lists, sources.room = [*lists], room
            running.sources = sources
            running._opened.set()
            return sources

        running.pipe._open_sources = open_sources
        return running


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.001)


class Target(RecordingSink):
    is_away = True

    def __init__(self, name: str) -> None:
        super().__init__(name, self._judge)

    def _judge(self, offsets: list[int]) -> None:
        if self.is_away:
            raise SinkError("away", transient=True)


async def test_a_dead_sink_bounds_the_log_and_gets_a_copy_when_it_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bound = 40 * ENTRY
    folder = BoundFolder(
        tmp_path, sink("dead", on_failure="park", retry_for=0.0), sink("well"),
        max_log_bytes=bound, offset_flush=0.01,
    )  # fmt: skip
    dead, well = Target("dead"), RecordingSink("well")
    copy = [control("reset"), *changes(2), control("live", 300)]
    async with folder.start(dead, well, lists=[changes(300), copy], clock=SOON) as running:
        await running.sources_or_end()
        await until(lambda: len(well.offsets) == 300)
        assert isinstance(running.sources, BoundSources)
        assert running.sources.largest <= bound
        status = running.pipe.status().sinks[0]
        assert (status.phase, status.copy_due, status.error) == ("parked", True, "away")
        assert running.sources.copies == []
        dead.is_away = False
        await until(lambda: ("end", version_of(_created(folder), 300), "oplog") in dead.calls)
        assert running.sources.copies == ["oplog"]
        assert not running.pipe.status().sinks[0].copy_due
    assert running.code == EXIT_OK
    assert len(dead.offsets) < 100
    assert dead.offsets[-2:] == [301, 302]
    assert "they get a copy of oplog" in caplog.text
    view = OffsetLog.view(folder.path, "dead")
    assert (view.copy_due, view.not_whole, view.offset) == (-1, [], 303)


def _created(folder: Folder) -> int:
    return CommitLog.view(folder.path).created


async def test_the_sources_wait_for_a_dead_sink_of_a_topic_until_it_works_again(
    tmp_path: Path,
) -> None:
    folder = BoundFolder(
        tmp_path, sink("orders", on_failure="park", retry_for=0.0),
        max_log_bytes=40 * ENTRY, offset_flush=0.01, sources=(SHOP,),
    )  # fmt: skip
    orders = Target("orders")
    lists = [changes(200, "shop/orders")]
    async with folder.start(orders, lists=lists, clock=SOON) as running:
        await until(lambda: running.pipe.status().log.waits is not None)
        waits = running.pipe.status().log.waits
        assert waits is not None
        assert "messages of shop/orders" in waits
        orders.is_away = False
        await until(lambda: len(orders.offsets) == 200)
        await until(lambda: running.pipe.status().log.waits is None)
    assert orders.offsets == [*range(200)]
    assert running.code == EXIT_OK


async def test_a_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    folder = BoundFolder(
        tmp_path, sink("orders", on_failure="park", retry_for=0.0),
        max_log_bytes=40 * ENTRY, offset_flush=0.01, sources=(SHOP,),
    )  # fmt: skip
    lists = [changes(200, "shop/orders")]
    async with folder.start(Target("orders"), lists=lists, clock=SOON) as running:
        await until(lambda: running.pipe.status().log.waits is not None)
    assert running.code == EXIT_OK


async def test_a_sink_that_hangs_in_a_write_gives_up_and_goes_on_behind_it(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, clock=lambda: CREATED, max_segment_bytes=5 * ENTRY)
    log.append(changes(11))
    hangs, reached = threading.Event(), threading.Event()

    def hang(offsets: list[int]) -> None:
        if 3 in offsets:
            reached.set()
            assert hangs.wait(DEADLINE)

    target = RecordingSink("c0", hang)
    worker = Worker(sink("c0"), target, Steps([]), log, offset=-1, single_until=4)
    worker.start()
    assert reached.wait(DEADLINE)
    assert worker.give_up(9)
    log.compact(9)
    hangs.set()
    await until(lambda: worker.offset == 10)
    worker.leave()
    while not worker.is_done:
        log.wake()
    log.close()
    assert target.offsets == [0, 1, 2, 3, 10]
    assert (worker.offset, worker.wants_copy) == (10, True)

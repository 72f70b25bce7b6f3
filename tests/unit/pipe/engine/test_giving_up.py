"""A pipe whose log is full: a sink gives up its place, and gets a copy when it works again."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.commitlog.offsets import COPY_DUE
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.message import version_of
from oplog_pipe.model.exits import EXIT_OK
from oplog_pipe.model.wholeness import Wholeness
from tests.unit.pipe.engine.bound import (
    ENTRY,
    SHOP,
    SOON,
    BoundFolder,
    BoundSources,
    Target,
    changes,
    until,
    waits,
)
from tests.unit.pipe.engine.engine import (
    CREATED,
    DEADLINE,
    Folder,
    RecordingSink,
    control,
    sink,
)


def test_a_place_that_was_given_up_is_not_taken_back() -> None:
    changed: list[None] = []
    place = SinkPlace(1, Wholeness(1), changed=lambda: changed.append(None))
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
        await waits(running, "messages of shop/orders")
        orders.is_away = False
        await until(lambda: len(orders.offsets) == 200)
        await until(lambda: running.log_status.waits is None)
    assert orders.offsets == [*range(200)]
    assert running.code == EXIT_OK


async def test_a_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    folder = BoundFolder(
        tmp_path, sink("orders", on_failure="park", retry_for=0.0),
        max_log_bytes=40 * ENTRY, offset_flush=0.01, sources=(SHOP,),
    )  # fmt: skip
    lists = [changes(200, "shop/orders")]
    async with folder.start(Target("orders"), lists=lists, clock=SOON) as running:
        await until(lambda: running.log_status.waits is not None)
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
    worker = Worker(sink("c0"), target, Steps([]), log, SinkPlace(-1), single_until=4)
    worker.start()
    assert reached.wait(DEADLINE)
    assert worker.place.give_up(9)
    log.compact(9)
    hangs.set()
    await until(lambda: worker.place.offset == 10)
    worker.leave()
    while not worker.is_done:
        log.wake()
    log.close()
    assert target.offsets == [0, 1, 2, 3, 10]
    assert (worker.place.offset, worker.place.wants_copy) == (10, True)


async def test_a_sink_without_a_source_of_the_oplog_keeps_its_place_and_its_due_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = BoundFolder(
        tmp_path, sink("due"), sink("dead", namespace="^video$", on_failure="park", retry_for=0.0),
        max_log_bytes=40 * ENTRY, offset_flush=0.01, sources=(SHOP,),
    )  # fmt: skip
    folder.fill(*changes(2))
    folder.acknowledge(due=1, dead=0)
    with closing(OffsetLog.open(folder.path, "due")) as log:
        log.write({COPY_DUE: 1})
    due = RecordingSink("due")
    lists = [changes(200, "shop/orders")]
    async with folder.start(due, Target("dead"), lists=lists, clock=SOON) as running:
        reason = await waits(running, "sink 'dead' does not work")
        await until(lambda: due.offsets)
    assert "there is no source of system/oplog that could copy it again: mend its target" in reason
    assert OffsetLog.view(folder.path, "due").copy_due == 1
    (told,) = [
        each.getMessage()
        for each in caplog.records
        if each.levelname == "ERROR" and "parked" not in each.getMessage()
    ]
    assert told == (
        "sink 'due' gave up its place, because the log had reached max_log_bytes; no source of"
        " system/oplog is in the settings that could copy the objects again: add one to sources,"
        " or remove the sink and run `oplog-pipe offset delete due`"
    )


async def test_a_sink_that_waits_for_a_message_says_how_a_copy_comes_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = BoundFolder(tmp_path, sink("c0"))
    folder.fill(*changes(2))
    folder.acknowledge(c0=1)
    with closing(OffsetLog.open(folder.path, "c0")) as log:
        log.write({COPY_DUE: 1})
    told = (
        "gave up its place, because the log had reached max_log_bytes; it waits for its next"
        " message, and gets a copy once it has written one; to copy at once, stop the pipe, run"
        " `oplog-pipe copy`, and start it"
    )
    async with folder.start(RecordingSink(), lists=[[], changes(1)]) as running:
        await running.sources_or_end()
        assert running.pipe.status().sinks[0].notice == told
        assert running.sources is not None
        running.sources.log.append(changes(1))
        await until(lambda: running.pipe.status().sinks[0].notice is None)
    assert f"sink 'c0' {told}" in caplog.messages


def test_the_end_of_a_copy_whose_place_was_given_up_warns_of_nothing_because_another_one_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = CommitLog.open(tmp_path)
    log.append([control("reset"), *changes(3), control("live", 0), control("live", 3)])
    worker = Worker(sink("c0"), RecordingSink("c0"), Steps([]), log, SinkPlace(-1))
    assert worker.place.give_up(2)
    worker.place.begin_copy(2)
    worker.drain()
    worker.start()
    worker.join(DEADLINE)
    log.close()
    assert worker.error is None
    assert worker.status().not_whole == []
    assert "copy not whole" not in caplog.text


def test_a_whole_copy_without_a_message_for_the_sink_is_the_one_that_was_due(
    tmp_path: Path,
) -> None:
    log = CommitLog.open(tmp_path)
    log.append([*changes(1), control("reset"), *changes(3, "user"), control("live", 1)])
    settings = sink("c0", namespace="^video$")
    worker = Worker(settings, RecordingSink("c0"), Steps([]), log, SinkPlace(0, copy_due=0))
    worker.drain()
    worker.start()
    worker.join(DEADLINE)
    log.close()
    assert (worker.error, worker.place.offset, worker.place.wants_copy) == (None, 5, True)

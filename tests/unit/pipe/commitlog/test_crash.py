"""A crash at every step of append, roll, compaction and offset flush."""

import copy
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from oplog_pipe.commitlog import CommitLog, LogEntry, Mode, NewEntry, OffsetLog
from oplog_pipe.errors import LogError
from tests.kits.models.properties import EXAMPLES
from tests.kits.pipe.disk import Disk, Write

FOLDER = Path("/log")
KEYS = "ABC"


def key_of(offset: int) -> str:
    """Return the key of an entry. One is rare: its last entry lies in a segment that compaction
    writes again.
    """
    return "rare" if offset == 1 else KEYS[offset % 3]


def entry(offset: int) -> NewEntry:
    return NewEntry(offset, Mode.SYNC, key_of(offset), b"data %d" % offset)


def opened(disk: Disk) -> CommitLog:
    return CommitLog.open(FOLDER, max_segment_bytes=150, clock=lambda: 7, files=disk)


def everything(log: CommitLog) -> list[LogEntry]:
    found: list[LogEntry] = []
    while part := log.read(found[-1].offset + 1 if found else 0):
        found += part
    return found


class Run:
    """What the caller of a log and an offset log was told before the crash."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.attempted = 0
        self.compacting = -1
        self.flushed = [-2]

    def work(self, disk: Disk) -> None:
        log = opened(disk)
        offsets = OffsetLog.open(FOLDER, "sink", disk)
        for number, size in enumerate((1, 5, 2, 9, 3)):
            self.attempted = log.end + size
            log.append([entry(log.end + each) for each in range(size)])
            self.acknowledged = log.end
            self.flushed.append(log.end - 1)
            offsets.write({KEYS[number % 3]: log.end - 1})
            if number in (2, 4):
                self.compacting = log.end - 1
                log.compact(log.end - 1)
        log.close()

    def check(self, disk: Disk) -> None:
        log = opened(disk)
        found = everything(log)
        offsets = [each.offset for each in found]
        assert self.acknowledged <= log.end <= self.attempted
        assert log.created == 7
        assert log.compacted <= self.compacting
        assert found == [LogEntry(each, *entry(each)) for each in offsets]
        assert offsets == sorted(set(offsets))
        above = range(log.compacted + 1, log.end)
        assert [each for each in offsets if each > log.compacted] == list(above)
        closed = log.segments[-1].base
        last = {key_of(each): each for each in range(closed)}
        assert set(last.values()) <= set(offsets)
        # It goes on as if nothing had happened.
        first = log.end
        assert log.append([entry(first)]) == first
        log.compact(first)
        log.close()
        again = opened(disk)
        assert again.end == first + 1
        assert again.entry(first) == LogEntry(first, *entry(first))
        flushed = OffsetLog.open(FOLDER, "sink", disk).offset
        assert (-2 if flushed is None else flushed) in self.flushed[-2:]


class Crash(NamedTuple):
    """What a crash at a step leaves, after ``prefix`` bytes of a write.

    ``disk``: with all that the process saw. A kill alone leaves the same.
    """

    step: int
    prefix: int
    disk: Disk
    run: Run


@functools.cache
def crashes() -> list[Crash]:
    """Return all steps and, of each, all numbers of bytes written. `make check` takes a quarter."""
    disk, run = Disk(), Run()
    found: list[Crash] = []
    steps = itertools.count()

    def crash(write: Write | None) -> None:
        step = next(steps)
        for prefix in range(1 + (len(write.data) if write else 0)):
            found.append(Crash(step, prefix, disk.cut(write, prefix), copy.deepcopy(run)))

    disk.at_step = crash
    run.work(disk)
    return found[:: max(1, 40 // EXAMPLES)]


class Checks:
    """Checks each combination of a disk and of what the caller was told once."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def check(self, run: Run, disk: Disk) -> None:
        told = run.acknowledged, run.attempted, run.compacting, *run.flushed[-2:]
        if (both := (told, disk.content())) not in self._seen:
            self._seen.add(both)
            run.check(disk)


@pytest.mark.thorough
def test_a_crash_at_any_step_loses_and_doubles_nothing() -> None:
    checks = Checks()
    for step, prefix, disk, run in crashes():
        for keep_bytes, keep_names in itertools.product((True, False), repeat=2):
            try:
                checks.check(run, disk.after_crash(keep_bytes=keep_bytes, keep_names=keep_names))
            except BaseException as error:
                error.add_note(
                    f"crash at step {step}, {prefix} bytes written, {keep_bytes=}, {keep_names=}"
                )
                raise


def cuts_of_repair(disk: Disk) -> list[Disk]:
    """Repair the log. Return the disk as it was before each step."""
    found: list[Disk] = []
    disk.at_step = lambda write: found.append(disk.cut())
    opened(disk)
    return found


def test_a_crash_while_a_crash_is_repaired_loses_nothing() -> None:
    checks = Checks()
    for _, _, disk, run in crashes()[::7]:
        after = disk.after_crash(keep_bytes=True, keep_names=True)
        for second in cuts_of_repair(after):
            checks.check(run, second.after_crash(keep_bytes=False, keep_names=False))


def test_what_was_read_after_a_kill_survives_a_crash() -> None:
    for _, _, disk, _ in crashes()[::3]:
        killed = disk.cut()
        end = opened(killed).end
        assert opened(killed.after_crash(keep_bytes=False, keep_names=False)).end == end


def full(disk: Disk, room: int, change: Callable[[], object]) -> None:
    disk.full_after = room
    with pytest.raises(LogError, match="No space left on device"):
        change()
    disk.full_after = None


@pytest.mark.parametrize("room", [20, 100, 160])
def test_a_full_disk_leaves_no_trace(room: int) -> None:
    disk = Disk()
    log = opened(disk)
    log.append([entry(0)])
    full(disk, room, lambda: log.append([entry(each) for each in range(1, 9)]))
    assert [each.offset for each in everything(log)] == [0]
    assert opened(disk.after_crash(keep_bytes=True, keep_names=True)).end == 1
    assert log.append([entry(1)]) == 1
    offsets = OffsetLog.open(FOLDER, "sink", disk)
    offsets.write({"A": 1})
    full(disk, 20, lambda: offsets.write({"A": 2}))
    assert offsets.offsets == {"A": 1}
    offsets.write({"A": 3})
    log.close()
    assert [each.offset for each in everything(opened(disk))] == [0, 1]
    assert OffsetLog.open(FOLDER, "sink", disk).offsets == {"A": 3}

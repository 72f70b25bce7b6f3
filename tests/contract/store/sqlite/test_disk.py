"""The disk under an SQLite file: the reserve, refusals, and what they mean."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.store.space import MIB, UNKNOWN, limits_of
from oplogd.store.sqlite.file.disk import Disk
from oplogd.store.sqlite.file.reserve import Reserve
from oplogd.store.sqlite.upkeep import leaving
from tests.kits.store.bounded import BOUND, FIT, fill
from tests.kits.store.messages import NAME, payloads_of
from tests.kits.store.sqlite_files import opened

TOTAL = 24 * MIB
LIMITS = limits_of(TOTAL, None)
ROOM = LIMITS.needed + LIMITS.needed // 8 + LIMITS.reserve
Patch = pytest.MonkeyPatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "oplog.db"


class Bench:
    """``free``: of a disk of 24 MB. The reserve does not change it."""

    def __init__(self, path: Path, reserve: int | None = None) -> None:
        self.free = TOTAL
        self.now = 0.0
        self.file = path.with_name("oplog.db-reserve")
        self.disk = Disk(path, reserve, lambda _: (TOTAL, self.free), lambda: self.now)

    @property
    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def refuse(self, name: str = "SQLITE_FULL") -> bool:
        return self.disk.is_refusal(sqlite_error(name))


def sqlite_error(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("failed")
    error.sqlite_errorname = name
    return error


def refusing(code: int, most: int = 0) -> Callable[[int, int, int], None]:
    """Return a posix_fallocate that fails beyond ``most`` bytes."""

    def fallocate(file: int, start: int, size: int) -> None:
        if start + size > most:
            raise OSError(code, os.strerror(code))
        os.ftruncate(file, start + size)

    return fallocate


def test_the_reserve_is_made_when_it_leaves_room_for_intake(path: Path) -> None:
    bench = Bench(path)
    bench.free = ROOM - 1
    assert bench.disk.look().reserve == 0
    bench.free = ROOM
    assert bench.disk.look().reserve == LIMITS.reserve
    assert bench.file.stat().st_blocks * 512 >= LIMITS.reserve
    assert bench.file.stat().st_mode & 0o777 == 0o600


def test_the_reserve_is_made_beside_free_pages_if_the_disk_keeps_room_for_the_log(
    path: Path,
) -> None:
    bench = Bench(path)
    bench.free = LIMITS.needed // 2 + LIMITS.reserve - 1
    assert bench.disk.look(in_file=TOTAL).reserve == 0
    bench.free += 1
    assert bench.disk.look(in_file=TOTAL).reserve == LIMITS.reserve


def test_the_reserve_is_removed_before_the_file_is_opened_without_room(path: Path) -> None:
    bench = Bench(path)
    bench.disk.look()
    bench.free = LIMITS.log
    bench.disk.prepare()
    assert bench.size == LIMITS.reserve
    bench.free -= 1
    bench.disk.prepare()
    assert not bench.file.exists()


def test_a_full_disk_alone_does_not_remove_the_reserve(path: Path) -> None:
    bench = Bench(path)
    bench.disk.look()
    bench.free = 0
    assert bench.refuse()
    assert bench.disk.look().reserve == LIMITS.reserve
    assert bench.disk.free_reserve()
    assert not bench.disk.free_reserve()
    assert not bench.file.exists()


def test_another_size_counts_at_the_start_and_never_takes_from_another_agent(path: Path) -> None:
    Bench(path).disk.look()
    bench = Bench(path, MIB)
    assert bench.disk.look().reserve == MIB
    Bench(path).disk.look()
    assert bench.disk.look().reserve == LIMITS.reserve
    assert Bench(path, 0).disk.look().reserve == 0
    assert not bench.file.exists()


def test_while_another_agent_makes_the_reserve_it_is_left_alone(path: Path) -> None:
    bench = Bench(path)
    with bench.file.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert bench.disk.look().reserve == 0
        assert bench.file.exists()
    assert bench.disk.look().reserve == LIMITS.reserve


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_reserve_that_cannot_be_made_leaves_nothing_and_is_no_error(
    path: Path, monkeypatch: Patch, code: int
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refusing(code))
    bench = Bench(path)
    assert bench.disk.look().reserve == 0
    assert not bench.file.exists()


def test_a_reserve_without_fallocate_is_written(path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.EOPNOTSUPP))
    reserve = Reserve(path)
    assert reserve.make(3 * MIB + 5)
    content = path.with_name("oplog.db-reserve").read_bytes()
    assert len(content) == 3 * MIB + 5
    assert len(set(content[:MIB])) == 256  # no file system compresses it


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.ENOSPC])
def test_after_a_refusal_the_room_that_intake_needs_is_tried_with_growing_pauses(
    path: Path, monkeypatch: Patch, code: int
) -> None:
    bench = Bench(path)
    bench.disk.look()
    made = monkeypatch.setattr
    tried: list[float] = []

    def fallocate(file: int, start: int, size: int) -> None:
        tried.append(bench.now)
        raise OSError(code, os.strerror(code))

    made(os, "posix_fallocate", fallocate)
    assert bench.refuse()
    for second in range(40):
        bench.now = second
        figures = bench.disk.look()
        assert (figures.refused, figures.reserve) == (True, LIMITS.reserve)
    assert tried == [1, 3, 7, 15, 23, 31, 39]
    monkeypatch.undo()
    bench.now = 50
    figures = bench.disk.look()
    assert (figures.refused, figures.reserve) == (False, LIMITS.reserve)


def test_the_trial_asks_for_what_free_pages_do_not_give(path: Path, monkeypatch: Patch) -> None:
    bench = Bench(path)
    bench.refuse()
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.EDQUOT, most=LIMITS.log))
    bench.now = 10
    assert bench.disk.look(in_file=LIMITS.needed + LIMITS.reserve - LIMITS.log - 1).refused
    bench.now = 20
    assert not bench.disk.look(in_file=LIMITS.needed + LIMITS.reserve - LIMITS.log).refused
    assert not bench.file.exists()


def test_only_errors_that_mean_a_full_disk_count(path: Path, monkeypatch: Patch) -> None:
    for name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
        assert Bench(path).refuse(name)
    unclear = ("SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN", "SQLITE_IOERR_SHMOPEN")
    for name in (*unclear, "SQLITE_BUSY", "SQLITE_CORRUPT", "SQLITE_IOERR_READ", ""):
        assert not Bench(path).refuse(name)
    for code, means_full in ((errno.EDQUOT, True), (errno.ENOSPC, True), (errno.EMFILE, False)):

        def refuse(*_: object, code: int = code) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "open", refuse)
        assert [Bench(path).refuse(name) for name in unclear] == [means_full] * 3
        monkeypatch.undo()
    assert list(path.parent.iterdir()) == []


def test_a_disk_of_unknown_size_needs_no_room(path: Path) -> None:
    def fail(_: Path) -> tuple[int, int]:
        raise OSError

    for usage in (fail, lambda _: (0, 0)):
        figures = Disk(path, None, usage).look()
        assert (figures.free, figures.limits, figures.is_low) == (UNKNOWN, (0, 0, 0), False)
        assert figures.missing(is_stopped=True) == 0


async def test_a_call_that_frees_space_is_made_again_with_the_room_of_the_reserve(
    path: Path, monkeypatch: Patch
) -> None:
    async with opened(path) as store:
        pool = store._writer
        reserve = Reserve(path)
        calls: list[bool] = []

        def call(db: sqlite3.Connection) -> None:
            calls.append(reserve.size() > 0)
            raise sqlite_error("SQLITE_FULL")

        assert reserve.make(MIB)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="the disk is full"):
                await pool.run(call)
        assert calls == [True, True]
        calls.clear()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="the disk is full"):
                await pool.run(call, frees_space=True)
        assert calls == [True, False, False]
        assert store.space.refused


@pytest.mark.parametrize("together", [False, True])
async def test_what_leaves_by_a_bound_may_take_the_room_of_the_reserve(
    path: Path, monkeypatch: Patch, together: bool
) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await fill(store.topics, topic, 2 * FIT)
    reserve = Reserve(path)
    assert reserve.make(MIB)
    leave = leaving.leave

    def refuse_beside_the_reserve(
        db: sqlite3.Connection, *given: Any, **named: Any
    ) -> leaving.LeavingStep:
        if reserve.size():
            raise sqlite_error("SQLITE_FULL")
        return leave(db, *given, **named)

    monkeypatch.setattr(leaving, "leave", refuse_beside_the_reserve)
    async with opened(path, topics_max_bytes=BOUND if together else None) as store:
        if not together:
            await store.topics.change(NAME, None, max_bytes=BOUND)
        assert await store.topics.shrink() >= FIT
        assert reserve.size() == 0
        assert len(await payloads_of(store.topics, topic)) in (FIT - 1, FIT)


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (24 * MIB, "PRAGMA wal_autocheckpoint = 96; PRAGMA journal_size_limit = 786432;"),
        (1 << 30, "PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 33554432;"),
        (4 << 30, ""),
        (0, ""),
    ],
)
def test_the_write_ahead_log_is_small_on_a_small_disk(
    path: Path, total: int, expected: str
) -> None:
    assert Disk(path, None, lambda _: (total, total)).pragmas() == expected

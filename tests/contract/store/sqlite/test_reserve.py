"""The path of the reserve may hold something that the agent did not make, or cannot use."""

import os
from pathlib import Path

import pytest

from oplogd.store.space import MIB
from oplogd.store.sqlite.file.reserve import Reserve
from tests.contract.store.sqlite.test_disk import LIMITS, Bench

KEPT = b"what somebody keeps" * 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "oplog.db"


def link(file: Path, other: Path) -> None:
    other.write_bytes(KEPT)
    file.symlink_to(other)


def hard_link(file: Path, other: Path) -> None:
    other.write_bytes(bytes(2 * MIB))
    file.hardlink_to(other)


def content(file: Path, _: Path) -> None:
    file.write_bytes(KEPT)


def folder(file: Path, _: Path) -> None:
    file.mkdir()


def pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


@pytest.mark.parametrize("make", [link, hard_link, content, folder, pipe])
def test_what_the_agent_did_not_make_is_left_alone_and_told_once(
    path: Path, caplog: pytest.LogCaptureFixture, make: object
) -> None:
    assert callable(make)
    bench, other = Bench(path), path.with_name("other")
    make(bench.file, other)
    before = bench.file.lstat(), other.exists() and other.read_bytes()
    for _ in range(3):
        assert bench.disk.look().reserve == 0
    assert not bench.disk.free_reserve()
    bench.free = 0
    bench.disk.prepare()
    now = bench.file.lstat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (
        before[0].st_ino,
        before[0].st_size,
        before[0].st_mtime_ns,
    )
    assert (other.exists() and other.read_bytes()) == before[1]
    assert [each for each in caplog.messages if "oplog.db-reserve" in each] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("make", [content, folder])
def test_intake_goes_on_after_a_refusal_although_the_reserve_cannot_be_made(
    path: Path, make: object
) -> None:
    assert callable(make)
    bench = Bench(path)
    make(bench.file, path)
    assert bench.refuse()
    bench.now = 10
    assert not bench.disk.look().refused
    assert sorted(path.parent.iterdir()) == [bench.file]


def test_a_reserve_of_zeros_or_of_an_earlier_start_is_used(path: Path) -> None:
    bench = Bench(path)
    bench.file.write_bytes(bytes(MIB))  # its first bytes were lost when the machine stopped
    assert bench.disk.look().reserve == LIMITS.reserve
    assert Bench(path).disk.look().reserve == LIMITS.reserve
    assert Reserve(path).release()
    assert not bench.file.exists()


def test_a_reserve_may_have_any_size(path: Path) -> None:
    reserve = Reserve(path)
    for size in (1, 5, 100, 1):
        assert reserve.make(size)
        assert reserve.size() == size


def test_a_probe_of_the_disk_touches_no_file(path: Path) -> None:
    probe, other = path.with_name("oplog.db-probe"), path.with_name("other")
    link(probe, other)
    bench = Bench(path)
    assert not bench.refuse("SQLITE_IOERR_WRITE")
    assert other.read_bytes() == KEPT
    assert probe.is_symlink()

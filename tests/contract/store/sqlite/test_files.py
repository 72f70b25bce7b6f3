"""Troubles of the file: no operation is lost or doubled."""

import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.model.operation import Operation
from oplogd.store.sqlite.file import connection, statements, wal
from oplogd.store.sqlite.log import log
from tests.kits.models.operations import numbered, operation
from tests.kits.store.kits import contents, log_of, states_of, wanted
from tests.kits.store.sqlite_files import (
    content,
    direct,
    made_at,
    number,
    opened,
    put_in_place,
    replace,
    whole,
)

Patch = pytest.MonkeyPatch


async def use(path: Path) -> None:
    async with opened(path) as store:
        await log_of(store)
        await states_of(store)
        await store.append(numbered(2000))


async def test_a_lock_of_another_process_is_named_and_passes(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    made = numbered(4)
    async with opened(path) as store:
        await store.append(made[:2])
        with direct(path) as db:
            db.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailableError, match="another process holds a lock on it"
                ):
                    await store.append(made[2:])
            assert contents(await store.read(0, 10)) == wanted(made[:2])
            db.execute("ROLLBACK")
        await store.append(made[2:])
        await whole(store, made)


async def test_a_full_disk_is_named_and_refused_operations_can_be_stored_later(
    path: Path, monkeypatch: Patch
) -> None:
    made = [operation(id_=str(number), parents=["p" * 3000]) for number in range(60)]
    async with opened(path) as store:
        await store.append(made[:1])
    most = number(path, "PRAGMA page_count") + 20
    with monkeypatch.context() as patch:
        limit = f"PRAGMA max_page_count = {most};"
        patch.setattr(statements, "PRAGMAS", statements.PRAGMAS + limit)
        async with opened(path) as store:
            await store.append(made[1:10])
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailableError, match="the disk is full; free some space"
                ):
                    await store.append(made[10:])
            await whole(store, made[:10])
            patch.undo()  # there is space again; the store has dropped the connection
            await store.append(made[10:])
            await whole(store, made)
    async with opened(path) as store:
        await whole(store, made)


async def test_a_write_that_the_system_refuses_is_named_and_passes(path: Path) -> None:
    made = [operation(id_=str(number), parents=["p" * 3000]) for number in range(120)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(path) as store:
        await store.append(made[:20])
        size = len(content(Path(f"{path}-wal")))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, hard))
        try:
            with pytest.raises(
                StoreUnavailableError, match=r"reading or writing it failed|the disk is full"
            ):
                await store.append(made[20:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await whole(store, made[:20])
        await store.append(made[20:])
        await whole(store, made)


async def test_a_write_ahead_log_that_a_foreign_reader_keeps_large_is_told_once(
    path: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = "PRAGMA wal_autocheckpoint = 10; PRAGMA journal_size_limit = 65536;"
    monkeypatch.setattr(statements, "PRAGMAS", statements.PRAGMAS + limits)
    monkeypatch.setattr(wal, "LARGE_BYTES", 400_000)
    caplog.set_level("INFO", "oplogd.store")
    async with opened(path) as store:
        await store.append(numbered(1))
        assert (await store.stats()).warnings == ()
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM logs").fetchone()
            for batch in range(100):
                await store.append(numbered(10, 10 * batch))
            stats = await store.stats()
            assert stats.wal_bytes == len(content(Path(f"{path}-wal"))) > 400_000
            assert stats.warnings[0].startswith("the write-ahead log has ")
        for batch in range(3):  # one moves the log into the file, the next begins it anew
            await store.append(numbered(10, 10 * batch))
        stats = await store.stats()
        assert (stats.wal_bytes or 0) < 400_000
        assert stats.warnings == ()
    begin, end = (each for each in caplog.messages if "write-ahead log is large" in each)
    assert "a process that reads the file for long" in begin
    assert ": over, " in end


async def test_a_lack_of_descriptors_is_named_and_passes(path: Path) -> None:
    async with opened(path) as store:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(StoreUnavailableError, match="no file descriptor is free"):
                await store.read(0, 1)  # the first read opens a connection
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await store.read(0, 1) == []


async def test_a_damaged_file_is_named_and_a_sound_copy_in_its_place_works(path: Path) -> None:
    made = numbered(2000)
    async with opened(path) as store:
        await store.append(made)
    sound = content(path)
    replace(path, sound[:8192] + b"\xff" * 40_000 + sound[48_192:])
    with pytest.raises(StoreUnavailableError, match="it is damaged or no SQLite file"):
        await use(path)
    replace(path, sound)
    async with opened(path) as store:
        await whole(store, made)


async def test_an_empty_file_in_place_of_the_store_stays_empty_and_the_old_file_works_again(
    path: Path,
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made[:2])
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).rename(path.with_name("aside" + end))
        replace(path, b"")
        for call in (
            store.locate,
            store.stats,
            lambda: store.append(made[2:]),
            lambda: store.read(0, 10),
        ):
            with pytest.raises(StoreUnavailableError, match="no such table"):
                await call()
        with direct(path) as db:
            assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        for end in ("", "-wal", "-shm"):
            path.with_name("aside" + end).rename(path.with_name(path.name + end))
        await store.append(made[2:])
        await whole(store, made)


async def test_an_append_whose_file_is_replaced_before_it_returns_is_not_confirmed(
    path: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    made, other = numbered(3), tmp_path / "other.db"
    await made_at(other, made[:1])
    append = log.append

    def append_and_replace(
        db: sqlite3.Connection, operations: list[Operation], clock: Clock
    ) -> None:
        append(db, operations, clock)
        put_in_place(path, other)

    async with opened(path) as store:
        await store.append(made[1:2])
        with monkeypatch.context() as patch:
            patch.setattr(log, "append", append_and_replace)
            with pytest.raises(StoreUnavailableError, match="moved away while it was written to"):
                await store.append(made[2:])
        await store.append(made[2:])
        await whole(store, [made[0], made[2]])


async def test_a_file_that_is_replaced_while_it_is_opened_is_not_written_to(
    path: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    made, first, second = numbered(3), tmp_path / "first.db", tmp_path / "second.db"
    await made_at(first, made[:1])
    await made_at(second, made[1:2])
    connect = connection.connect

    def connect_and_replace(
        path: Path, *, create: bool, present_ms: Callable[[], int]
    ) -> sqlite3.Connection:
        db = connect(path, create=create, present_ms=present_ms)
        put_in_place(path, second)
        return db

    async with opened(path) as store:
        put_in_place(path, first)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "connect", connect_and_replace)
            with pytest.raises(StoreUnavailableError, match="while it was opened"):
                await store.append(made[2:])
        await store.append(made[2:])
        await whole(store, made[1:])


async def test_a_copy_with_the_inode_of_the_deleted_file_is_another_file(
    path: Path, tmp_path: Path
) -> None:
    made = numbered(3)
    await made_at(path, made[:1])
    older = content(path)
    async with opened(path) as store:
        await store.append(made[1:])
        head = (await store.locate()).head
        lost = head.ms
        put_in_place(tmp_path / "aside.db", path)
        for call in (
            store.locate,
            store.checkpoint,
            lambda: store.append(made),
            lambda: store.follow(0, 1, 0),
        ):
            with pytest.raises(StoreUnavailableError, match="the file is gone"):
                await call()
        replace(tmp_path / "aside.db", older)  # keeps the inode
        put_in_place(path, tmp_path / "aside.db")
        bounds = await store.locate()
        assert bounds.head.offset == 1
        assert [span for span in bounds.unwritten if span[0] == bounds.head.ms and span[1] > lost]

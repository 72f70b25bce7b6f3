"""The schema of the file: creation, migration and refusal."""

import contextlib
import os
from pathlib import Path

import pytest

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.store.sqlite import APPLICATION_ID, DEFAULT_CAP_BYTES, MIGRATIONS
from oplogd.store.sqlite.file import connection, migration
from oplogd.store.sqlite.file.schema import Migration
from tests.kits.models.operations import numbered
from tests.kits.store.kits import contents, log_of, states_of, wanted
from tests.kits.store.sqlite_files import (
    content,
    create_at_version,
    direct,
    opened,
    replace,
    schema_of,
    whole,
)

Patch = pytest.MonkeyPatch


async def test_a_new_file_has_the_application_id_and_the_present_version(path: Path) -> None:
    async with opened(path) as store:
        assert (await store.stats()).max_bytes == DEFAULT_CAP_BYTES
    with direct(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_every_commit_waits_for_the_disk(path: Path) -> None:
    with contextlib.closing(connection.connect(path, create=True)) as db:
        full = (2,)
        assert db.execute("PRAGMA synchronous").fetchone() == full


async def test_a_file_of_the_version_before_is_migrated_with_its_contents(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made)
    step = Migration(
        "a table with a trigger",
        (
            "CREATE TABLE extra (x)",
            "CREATE TRIGGER double AFTER INSERT ON extra BEGIN"
            " UPDATE extra SET x = 2 * x; UPDATE extra SET x = x + 1; END",
            "INSERT INTO extra VALUES (1)",
        ),
    )
    monkeypatch.setattr(migration, "MIGRATIONS", (*MIGRATIONS, step))
    for _ in range(2):  # the second time there is nothing left to do
        async with opened(path) as store:
            await whole(store, made)
    with direct(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
        assert db.execute("SELECT * FROM extra").fetchall() == [(3,)]


async def test_a_migration_that_fails_leaves_the_file_unchanged(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made)
    with monkeypatch.context() as patch:
        step = Migration(
            "half a step", ("CREATE TABLE extra (x)", "INSERT INTO nowhere VALUES (1)")
        )
        patch.setattr(migration, "MIGRATIONS", (*MIGRATIONS, step))
        with pytest.raises(StoreError):
            async with opened(path):
                pass
    async with opened(path) as store:
        await whole(store, made)
    with direct(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (
            0,
        )


async def test_a_newer_file_is_refused_with_the_remedy(path: Path) -> None:
    async with opened(path):
        pass
    with direct(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(
        StoreError, match=r"version 99, this oplog knows up to \d+; use the newer oplog"
    ):
        async with opened(path):
            pass


async def test_another_programs_file_is_refused_and_left_unchanged(path: Path) -> None:
    with direct(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = content(path)
    with pytest.raises(StoreError, match="not an oplog store; give --store another path"):
        async with opened(path):
            pass
    assert content(path) == before
    assert os.listdir(os.path.dirname(path)) == ["oplog.db"]


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    replace(path, b"")
    async with opened(path) as store:
        await whole(store, [])


async def test_a_file_that_is_no_database_is_refused_and_left_unchanged(path: Path) -> None:
    theirs = b"not a database " * 100
    replace(path, theirs)
    with pytest.raises(StoreUnavailableError, match="damaged or no SQLite file"):
        async with opened(path):
            pass
    assert content(path) == theirs


async def test_a_missing_folder_is_named(path: Path) -> None:
    missing = path.parent / "missing" / "oplog.db"
    with pytest.raises(
        StoreUnavailableError,
        match=r"missing/oplog\.db: it cannot be opened; check that its folder",
    ):
        async with opened(missing):
            pass


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_a_migrated_file_and_a_new_epoch_have_the_schema_of_a_new_file(
    path: Path, tmp_path: Path, version: int
) -> None:
    """Version 0 is a file that does not exist yet."""
    fresh = tmp_path / "fresh.db"
    async with opened(fresh):
        pass
    if version:
        create_at_version(path, version)
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made)
    assert schema_of(path) == schema_of(fresh)
    async with opened(path) as store:
        await store.new_epoch()
        await store.append(made)
        assert contents(await log_of(store, 3)) == wanted(made)
    assert schema_of(path) == schema_of(fresh)
    with direct(path) as db:
        assert db.execute("SELECT count(*) FROM ops_set_aside_at_3").fetchone() == (3,)


async def test_a_file_of_the_first_schema_is_migrated_and_the_log_says_so(
    path: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    create_at_version(path, 1)
    with direct(path) as db:
        db.execute(
            "INSERT INTO logs VALUES ('ops', 1000000, 0, 30000, 1700000000000, 1600000000000, 1, 0)"
        )
        db.execute(
            "INSERT INTO openings"
            " VALUES (1650000000000, 1660000000000), (1670000000000, 4000000000000)"
        )
        db.execute("""
            WITH RECURSIVE number (n) AS (
                SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 30000
            )
            INSERT INTO states (key, n, ts, deleted, data)
            SELECT 'video/' || n, n, 1600000000000 + n, n % 2,
            '{"type":"video","id":"' || n || '"}' FROM number
        """)
    monkeypatch.setattr(migration, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(migration, "PROGRESS_STEPS", 10_000)
    caplog.set_level("INFO")
    async with opened(path) as store:
        live = await states_of(store, live_only=True, limit=5000)
        assert [state.cursor.tie for state in live] == list(range(2, 30_001, 2))
        everything = await states_of(store, limit=5000)
        assert [state.cursor.tie for state in everything] == list(range(1, 30_001))
        bounds = await store.locate()
        assert (1650000000000, 1660000000000) in bounds.unwritten
        assert all(
            before < 4000000000000 for after, before in bounds.unwritten if after == 1670000000000
        )
    assert "bringing the file to schema version 2; a large one takes a while" in caplog.text
    assert "still migrating after" in caplog.text

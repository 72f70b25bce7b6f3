"""Identity and secret of a store in a file: of earlier versions, replaced, restored, damaged."""

import shutil
from pathlib import Path

import pytest

from oplogd.store.sqlite.file.schema import MIGRATIONS
from tests.kits.models.operations import numbered
from tests.kits.store.sqlite_files import count, create_at_version, direct, opened, put_in_place


@pytest.mark.parametrize("version", [1, len(MIGRATIONS)])
async def test_a_file_of_an_earlier_version_gets_identity_and_secret_when_it_is_opened(
    path: Path, version: int
) -> None:
    create_at_version(path, version)
    with direct(path) as db:
        for table in ("identity", "secret"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
    async with opened(path) as store:
        identity, secret = store.identity, store.secret
        assert identity is not None
        assert secret is not None
    async with opened(path) as store:
        assert (store.identity, store.secret) == (identity, secret)
    assert count(path, "identity") == count(path, "secret") == 1


async def test_a_restored_backup_has_identity_and_secret_of_its_store(
    path: Path, tmp_path: Path
) -> None:
    async with opened(path) as store:
        own = store.identity, store.secret
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    async with opened(path) as store:
        await store.append(numbered(2))
    shutil.copy(backup, path)
    async with opened(path) as store:
        assert (store.identity, store.secret) == own


@pytest.mark.parametrize("has_secret", [True, False])
async def test_another_file_that_takes_the_place_of_an_open_one_brings_identity_and_secret(
    path: Path, tmp_path: Path, has_secret: bool
) -> None:
    other = tmp_path / "other.db"
    async with opened(other) as store:
        identity, secret = store.identity, store.secret
    if not has_secret:
        with direct(other) as db:
            db.execute("DROP TABLE secret")
    async with opened(path) as store:
        former = store.secret
        assert store.identity != identity
        put_in_place(path, other)
        await store.locate()
        assert store.identity == identity
        assert store.secret not in (None, former)
        assert (store.secret == secret) == has_secret


async def test_a_damaged_identity_is_not_told(path: Path) -> None:
    async with opened(path):
        pass
    with direct(path) as db:
        db.execute("UPDATE identity SET store = ?", ("a\r\nb",))
    async with opened(path) as store:
        assert store.identity is None
        assert store.secret is not None


@pytest.mark.parametrize("damaged", [b"", b"x" * 31, b"x" * 33, "x" * 32, 1])
async def test_a_damaged_secret_is_not_used(path: Path, damaged: object) -> None:
    async with opened(path):
        pass
    with direct(path) as db:
        db.execute("UPDATE secret SET store = ?", (damaged,))
    async with opened(path) as store:
        assert store.secret is None
        assert store.identity is not None

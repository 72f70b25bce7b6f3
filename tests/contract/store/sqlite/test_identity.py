"""The identity of a store in a file: of earlier versions, replaced, restored, damaged."""

import shutil
from pathlib import Path

import pytest

from oplogd.store.sqlite.file.schema import MIGRATIONS
from tests.kits.models.operations import numbered
from tests.kits.store.sqlite_files import create_at_version, direct, opened, put_in_place


@pytest.mark.parametrize("version", [1, len(MIGRATIONS)])
async def test_a_file_of_an_earlier_version_gets_an_identity_when_it_is_opened(
    path: Path, version: int
) -> None:
    create_at_version(path, version)
    with direct(path) as db:
        db.execute("DROP TABLE IF EXISTS identity")
    async with opened(path) as store:
        identity = store.identity
        assert identity is not None
    async with opened(path) as store:
        assert store.identity == identity


async def test_a_restored_backup_has_the_identity_of_its_store(path: Path, tmp_path: Path) -> None:
    async with opened(path) as store:
        identity = store.identity
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    async with opened(path) as store:
        await store.append(numbered(2))
    shutil.copy(backup, path)
    async with opened(path) as store:
        assert store.identity == identity


async def test_another_file_that_takes_the_place_of_an_open_one_brings_its_identity(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    async with opened(other) as store:
        identity = store.identity
    async with opened(path) as store:
        assert store.identity != identity
        put_in_place(path, other)
        await store.locate()
        assert store.identity == identity


async def test_a_damaged_identity_is_not_told(path: Path) -> None:
    async with opened(path):
        pass
    with direct(path) as db:
        db.execute("UPDATE identity SET store = ?", ("a\r\nb",))
    async with opened(path) as store:
        assert store.identity is None

"""The spool: bounded, read by bytes; a failure is reported and ends."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from oplogd.errors import StoreError
from oplogd.ingest import spool as spool_module
from oplogd.ingest.spool import Spool
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.watch.health import Health
from tests.kits.models.operations import numbered, operation
from tests.kits.processes.forked import Forked
from tests.kits.processes.logged import DEADLINE

HUGE = 1 << 40


def size(*operations: Operation) -> int:
    return sum(len(each.key) + len(each.data) for each in operations)


def large(count: int) -> list[Operation]:
    return [operation(id_=str(number), parents=("p" * 60_000,)) for number in range(count)]


@asynccontextmanager
async def opened(
    path: Path, max_bytes: int = HUGE, health: Health | None = None
) -> AsyncIterator[Spool]:
    spool = Spool(path, max_bytes, health or Health())
    try:
        await spool.open()
        yield spool
    finally:
        await spool.close()


async def drained(
    spool: Spool, max_operations: int = 5_000, max_bytes: int = HUGE
) -> list[tuple[int, list[Operation]]]:
    """Return the first sequence and the operations of each batch."""
    found = []
    while batch := await spool.first(max_operations, max_bytes):
        found.append((batch.batch_id.sequence, batch.operations))
        await spool.drop(batch)
    return found


def change(path: Path, script: str) -> None:
    """Change the file as another process could."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=DEADLINE)) as db:
        db.executescript(script)


async def test_only_the_first_operations_that_fit_are_added(tmp_path: Path) -> None:
    made = numbered(5)
    async with opened(tmp_path / "s.db", size(*made[:3])) as spool:
        assert await spool.put(made, BatchId("w", 7)) == 3
        assert (spool.operations, spool.bytes) == (3, size(*made[:3]))
        assert await spool.put(made[3:], BatchId("w", 10)) == 0
        assert await drained(spool) == [(7, made[:3])]
        assert (spool.operations, spool.bytes) == (0, 0)
        assert await spool.put(made[3:], BatchId("w", 10)) == 2


async def test_a_batch_holds_no_more_bytes_and_operations_than_asked_for_and_at_least_one(
    tmp_path: Path,
) -> None:
    made = large(5)
    async with opened(tmp_path / "s.db") as spool:
        await spool.put(made, BatchId("w", 0))
        two = await spool.first(5_000, size(*made[:2]))
        assert two is not None
        assert two.operations == made[:2]
        one = await spool.first(5_000, 1)
        assert one is not None
        assert one.operations == made[:1]
        assert await drained(spool, 3) == [(0, made[:3]), (3, made[3:])]


async def test_a_batch_is_of_one_writer_and_without_a_gap(tmp_path: Path) -> None:
    made = numbered(6)
    async with opened(tmp_path / "s.db") as spool:
        for writer, sequence, part in (
            ("a", 0, made[:2]),
            ("a", 2, made[2:3]),
            ("a", 9, made[3:4]),
            ("b", 10, made[4:]),
        ):
            await spool.put(part, BatchId(writer, sequence))
    async with opened(tmp_path / "s.db") as spool:
        assert spool.operations == 6
        assert await drained(spool) == [(0, made[:3]), (9, made[3:4]), (10, made[4:])]


async def test_operations_that_cannot_be_deleted_are_not_returned_again_and_go_later(
    tmp_path: Path,
) -> None:
    path, health, made = tmp_path / "s.db", Health(), numbered(6)
    async with opened(path, health=health) as spool:
        await spool.put(made[:4], BatchId("w", 0))
        change(
            path,
            "CREATE TRIGGER no BEFORE DELETE ON spool BEGIN SELECT RAISE(FAIL, 'not now'); END",
        )
        assert await drained(spool, 2) == [(0, made[:2]), (2, made[2:4])]
        assert "not now" in (health.part("spool").trouble or "")
        assert "--spool" in (health.part("spool").trouble or "")
        change(path, "DROP TRIGGER no")
        await spool.put(made[4:], BatchId("w", 4))
        assert spool.operations == 2
        assert health.trouble is None
        assert await drained(spool) == [(4, made[4:])]
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM spool").fetchone() == (0,)


async def test_numbers_that_sqlite_uses_again_are_new_operations(tmp_path: Path) -> None:
    path, made = tmp_path / "s.db", numbered(4)
    async with opened(path) as spool:
        await spool.put(made[:3], BatchId("w", 0))
        batch = await spool.first(3, HUGE)
        assert batch is not None
        change(
            path,
            "CREATE TRIGGER no BEFORE DELETE ON spool BEGIN SELECT RAISE(FAIL, 'not now'); END",
        )
        await spool.drop(batch)
        change(path, "DROP TRIGGER no; DELETE FROM spool")
        await spool.put(made[3:], BatchId("w", 3))
        assert await drained(spool) == [(3, made[3:])]


async def test_a_failure_to_write_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MEND_SECONDS", 0.01)
    path, health = tmp_path / "folder" / "s.db", Health()
    path.parent.mkdir()
    async with opened(path, health=health) as spool:
        path.parent.rename(tmp_path / "away")
        with pytest.raises(StoreError, match="--spool"):
            await spool.put(numbered(1), BatchId("w", 0))
        assert health.trouble == health.part("spool").trouble
        mending = asyncio.create_task(spool.mend())
        path.parent.mkdir()
        async with asyncio.timeout(DEADLINE):
            while health.trouble:
                await asyncio.sleep(0.01)
        mending.cancel()
        assert await spool.put(numbered(1), BatchId("w", 0)) == 1
        assert path.exists()


async def test_a_file_that_was_moved_is_read_to_its_end_before_another_takes_its_place(
    tmp_path: Path,
) -> None:
    path, health, made = tmp_path / "s.db", Health(), numbered(4)
    async with opened(path, health=health) as spool:
        await spool.put(made[:2], BatchId("w", 0))
        os.rename(path, tmp_path / "moved.db")
        with pytest.raises(StoreError, match="moved or removed"):
            await spool.put(made[2:], BatchId("w", 2))
        assert await drained(spool) == [(0, made[:2])]
        assert await spool.put(made[2:], BatchId("w", 2)) == 2
        assert health.trouble is None
    async with opened(path) as spool:
        assert await drained(spool) == [(2, made[2:])]


async def test_a_damaged_file_is_reported_and_once_moved_away_a_new_one_is_used(
    tmp_path: Path,
) -> None:
    path, health, made = tmp_path / "s.db", Health(), large(100)
    async with opened(path) as spool:
        await spool.put(made, BatchId("w", 0))
    sound = path.read_bytes()
    async with opened(path, health=health) as spool:
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(b"\xff" * (len(sound) - 8192))
        with pytest.raises(StoreError, match=r"damaged.*\.recover.*--spool"):
            await drained(spool)
        assert "damaged" in (health.trouble or "")
        os.rename(path, tmp_path / "damaged.db")
        assert await drained(spool) == []
        assert await spool.put(made[:1], BatchId("w", 100)) == 1
        assert health.trouble is None


async def test_rows_that_somebody_deleted_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as spool:
        await spool.put(numbered(3), BatchId("w", 0))
        change(path, "DELETE FROM spool")
        assert await spool.first(10, HUGE) is None
        assert (spool.operations, spool.bytes) == (0, 0)


@pytest.mark.process
async def test_a_file_that_another_agent_uses_is_refused_until_that_one_has_ended(
    tmp_path: Path,
) -> None:
    path, made = tmp_path / "s.db", numbered(3)
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from oplogd.watch.health import Health\n"
        "from oplogd.ingest.spool import Spool\n"
        "asyncio.run(Spool(Path(sys.argv[1]), 1 << 20, Health()).open())\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with opened(path) as spool:
        await spool.put(made[:1], BatchId("w", 0))
    command = [sys.executable, "-c", script, str(path)]
    with Forked[bytes](command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert await asyncio.to_thread(other.stdout.readline) == b"open\n"
            with pytest.raises(StoreError, match=r"another agent uses it.*--spool"):
                async with opened(path):
                    pass
        finally:
            other.kill()
    async with opened(path) as spool:
        assert await spool.put(made[1:], BatchId("w", 1)) == 2
        assert await drained(spool) == [(0, made)]

"""Each worker has a spool file, and the files of earlier workers are sent once and removed."""

import asyncio
import fcntl
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from oplogd.clock import SYSTEM
from oplogd.config.command import parse
from oplogd.errors import StoreError
from oplogd.ingest import writer as writer_module
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.spool import Spool
from oplogd.ingest.spool_paths import SpoolPaths
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.watch.health import Health
from tests.kits.models.operations import numbered
from tests.kits.processes.forked import run
from tests.unit.ingest.writing import HUGE, FailingStore, Writing


class Bench:
    """The spool of a worker, as the agent makes it."""

    def __init__(self, path: Path, number: int, count: int) -> None:
        settings = parse(["--spool", str(path)], {"OPLOGD_MONGO_URL": "mongodb://localhost"})
        self.health, self.counters = Health(), IngestCounters()
        spool = Spool.of(settings, number, count, self.health, self.counters, SYSTEM)
        assert spool is not None
        self.spool = spool


async def spooled(path: Path, number: int, count: int, made: Sequence[Operation]) -> None:
    """Put operations into the file of a worker, as its writer ``w`` and its number would."""
    spool = Bench(path, number, count).spool
    await spool.open()
    await spool.put(made, BatchId(f"w{number}", 0))
    await spool.close()


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_first_worker_has_the_file_of_the_flag_and_the_others_files_beside_it() -> None:
    paths = [SpoolPaths(Path("/a/s.db"), number, 3).own for number in range(3)]
    assert paths == [Path("/a/s.db"), Path("/a/s.db.worker-1"), Path("/a/s.db.worker-2")]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12])
def test_each_file_that_no_worker_has_is_left_to_exactly_one(tmp_path: Path, count: int) -> None:
    path = tmp_path / "s.db"
    all_paths = {SpoolPaths(path, number, 12).own for number in range(12)}
    other_names = (
        "s.db.worker-0",
        "s.db.worker-01",
        "s.db.worker-9-wal",
        "xs.db.worker-9",
        "s.db.9",
    )
    for each in (*all_paths, *map(tmp_path.joinpath, other_names)):
        each.touch()
    of_workers = [SpoolPaths(path, number, count) for number in range(count)]
    found = [each for paths in of_workers for each in (paths.own, *paths.left())]
    assert len(found) == len(all_paths)
    assert set(found) == all_paths


def test_without_a_folder_no_file_is_left(tmp_path: Path) -> None:
    assert SpoolPaths(tmp_path / "none" / "s.db").left() == []


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_all_operations_of_four_workers_are_stored_once_and_in_order_by_fewer(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails now and then. New operations go behind those of all files."""
    monkeypatch.setattr(writer_module, "FIRST_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(writer_module, "BATCH_OPERATIONS", 2)
    path = tmp_path / "s.db"
    made = {number: numbered(5, first=10 * number) for number in range(4)}
    for number, operations in made.items():
        await spooled(path, number, 4, operations)
    owners: dict[Operation, int] = {op: number for number in made for op in made[number]}
    stored: list[Operation] = []
    for number in range(count):
        bench = Bench(path, number, count)
        spool = bench.spool
        await spool.open()
        found = spool.operations
        writing = Writing(FailingStore([1, 0, 2]), spool, bench.health)
        writing.bench.counters = bench.counters
        new = numbered(3, first=100 + 10 * number)
        writing.bench.put(new)
        await writing.until(lambda: not (spool.operations or writing.bench.queue.count))  # noqa: B023
        await spool.close()
        log = writing.bench.store.log
        assert log[-3:] == new
        assert bench.counters.recovered == found == len(log) - 3
        assert (bench.counters.in_spool, spool.bytes) == (0, 0)
        stored += log[:-3]
    by_owner: defaultdict[int, list[Operation]] = defaultdict(list)
    for operation in stored:
        by_owner[owners[operation]].append(operation)
    assert by_owner == made
    assert files(tmp_path) == sorted(SpoolPaths(path, n, count).own.name for n in range(count))


async def test_the_files_that_are_left_count_towards_the_size_of_the_spool(tmp_path: Path) -> None:
    path, made = tmp_path / "s.db", numbered(4)
    await spooled(path, 1, 2, made)
    paths = SpoolPaths(path)
    size = sum(len(each.key) + len(each.data) for each in made)
    spool = Spool(paths.own, size, Health(), left=paths.left)
    await spool.open()
    assert (spool.operations, spool.bytes) == (4, size)
    assert await spool.put(made, BatchId("new", 0)) == 0
    batch = await spool.first(1, HUGE)
    assert batch is not None
    assert batch.batch_id == BatchId("w1", 0)
    await spool.drop(batch)
    assert await spool.put(made, BatchId("new", 0)) == 1
    await spool.close()


async def test_an_end_in_the_middle_leaves_the_rest_to_the_next_process(tmp_path: Path) -> None:
    path, made = tmp_path / "s.db", numbered(4)
    await spooled(path, 1, 2, made)
    for first in (0, 2):
        bench = Bench(path, 0, 1)
        await bench.spool.open()
        batch = await bench.spool.first(2, HUGE)
        assert batch is not None
        assert batch.batch_id == BatchId("w1", first)
        assert batch.operations == made[first : first + 2]
        await bench.spool.drop(batch)
        await bench.spool.close()
        assert "s.db.worker-1" in files(tmp_path)
    bench = Bench(path, 0, 1)
    await bench.spool.open()
    assert await bench.spool.first(2, HUGE) is None
    await bench.spool.close()
    assert files(tmp_path) == ["s.db"]


@pytest.mark.parametrize("fault", ["damaged", "locked"])
async def test_a_file_that_is_left_and_cannot_be_read_is_named(tmp_path: Path, fault: str) -> None:
    left = tmp_path / "s.db.worker-3"
    left.write_bytes(b"no SQLite file" * 1_000)
    spool = Bench(tmp_path / "s.db", 1, 2).spool
    with left.open("rb") as file:
        if fault == "locked":
            fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"s\.db\.worker-3: .*(damaged|another agent)"):
            await spool.open()
    await spool.close()


async def test_a_file_that_cannot_be_removed_is_empty_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    await spooled(path, 1, 2, numbered(1))

    def no(_: Path) -> None:
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(Path, "unlink", no)
    for operations in (1, 0):
        bench = Bench(path, 0, 1)
        await bench.spool.open()
        assert bench.spool.operations == operations
        if batch := await bench.spool.first(9, HUGE):
            await bench.spool.drop(batch)
        assert await bench.spool.first(9, HUGE) is None
        await bench.spool.close()
    assert (
        caplog.messages
        == [f"spool {path}.worker-1: cannot remove the empty file: [Errno 13] not yours"] * 2
    )


@pytest.mark.process
async def test_a_killed_worker_leaves_its_file_to_its_successor(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from tests.kits.models.operations import numbered\n"
        "from tests.unit.ingest.test_spools_of_workers import spooled\n"
        "from oplogd.ingest.spool import Spool\n"
        "Spool.close = lambda self: os.kill(os.getpid(), 9)\n"
        "asyncio.run(spooled(Path(sys.argv[1]), 1, 2, numbered(3)))\n"
    )
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", script, str(path)]
    done = await asyncio.to_thread(lambda: run(command, capture_output=True, text=True))
    assert done.returncode == -signal.SIGKILL
    successor = Bench(path, 1, 2)
    await successor.spool.open()
    batch = await successor.spool.first(9, HUGE)
    assert batch is not None
    assert batch.operations == numbered(3)
    assert successor.counters.recovered == 3
    await successor.spool.close()


@pytest.mark.parametrize(
    ("counted", "recovered", "discarded"), [(0, 5, 0), (3, 2, 0), (5, 0, 0), (7, 0, 2)]
)
async def test_operations_that_an_earlier_process_has_counted_do_not_count_again(
    tmp_path: Path, counted: int, recovered: int, discarded: int
) -> None:
    """``counted``: by a worker killed in this place, whose successor has its counters."""
    path = tmp_path / "s.db"
    await spooled(path, 0, 2, numbered(2))
    await spooled(path, 1, 2, numbered(3))
    counters = IngestCounters(in_spool=counted)
    paths = SpoolPaths(path)
    spool = Spool(paths.own, HUGE, Health(), counters, left=paths.left)
    await spool.open()
    assert counters == IngestCounters(in_spool=5, recovered=recovered, discarded=discarded)
    await spool.close()

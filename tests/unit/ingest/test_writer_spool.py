"""The writer with a spool: order is kept, nothing is lost or doubled."""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.ingest import spool as spool_module
from oplogd.ingest import spool_file, writer
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.spool import Spool
from oplogd.ingest.spool_file import SpoolFile
from oplogd.model.operation import Operation
from oplogd.watch.health import Health
from tests.kits.models.operations import numbered
from tests.kits.models.properties import examples
from tests.unit.ingest.writing import HUGE, FailingStore, Writing


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 0.0)


@examples(1)
@given(
    failures=st.lists(st.integers(0, 3), max_size=6),
    puts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=12),
    batch=st.integers(1, 6),
    room=st.integers(0, 9),
    broken=st.lists(st.booleans(), max_size=12),
)
async def test_with_a_spool_of_any_size_that_fails_now_and_then_all_is_written_once_in_order(
    failures: list[int], puts: list[tuple[int, int]], batch: int, room: int, broken: list[bool]
) -> None:
    """``broken``: True for each call on the spool's file that fails."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(writer, "BATCH_OPERATIONS", batch)
        patch.setattr(writer, "SPOOL_FULL_SECONDS", 0.0)
        patch.setattr(spool_file, "PRAGMAS", spool_file.PRAGMAS.replace("NORMAL", "OFF"))
        patch.setattr(spool_module, "MEND_SECONDS", 0.001)
        health = Health()
        one = numbered(1)[0]
        spool = Spool(Path(folder) / "s.db", room * (len(one.key) + len(one.data) + 2), health)
        await spool.open()
        fails, connection = iter(broken), SpoolFile.connection

        def sometimes(file: SpoolFile) -> sqlite3.Connection:
            if next(fails, False):
                raise sqlite3.OperationalError("disk I/O error")
            return connection(file)

        patch.setattr(SpoolFile, "connection", sometimes)
        writing = Writing(FailingStore(failures), spool, health)
        bench, total = writing.bench, sum(count for count, _ in puts)

        async def produce() -> None:
            first = 1
            for count, turns in puts:
                bench.put(numbered(count, first))
                first += count
                for _ in range(turns):
                    await asyncio.sleep(0)

        def all_is_stored() -> bool:
            assert bench.adds_up()
            assert bench.counters.ingested == len(bench.store.log)
            return producing.done() and not (
                bench.queue.count or spool.operations or health.trouble
            )

        producing = asyncio.create_task(produce())
        await writing.until(all_is_stored)
        await producing
        await spool.close()
    assert bench.store.log == numbered(total)
    assert bench.counters == IngestCounters(
        received=total, ingested=total, spooled=bench.counters.spooled
    )
    assert bench.store.commits == bench.counters.commit_seconds.count


async def test_operations_in_the_spool_are_counted_as_stored_by_the_process_that_stores_them(
    tmp_path: Path,
) -> None:
    """The first process receives three operations, the second two, and the third stores all."""
    path = tmp_path / "s.db"
    counts: list[IngestCounters] = []

    async def run(batch: list[Operation], failures: int) -> None:
        health, counters = Health(), IngestCounters()
        spool = Spool(path, HUGE, health, counters)
        await spool.open()
        writing = Writing(FailingStore([failures]), spool, health)
        bench = writing.bench
        bench.counters = counters
        if batch:
            bench.put(batch)
        await writing.until(
            lambda: not bench.queue.count and bool(failures or not spool.operations)
        )
        assert bench.adds_up()
        await spool.close()
        counts.append(counters)

    await run(numbered(3), failures=HUGE)
    await run(numbered(2, first=4), failures=HUGE)
    await run([], failures=0)
    assert counts == [
        IngestCounters(received=3, spooled=3, in_spool=3),
        IngestCounters(received=2, recovered=3, spooled=2, in_spool=5),
        IngestCounters(recovered=5, ingested=5),
    ]


async def test_operations_that_somebody_takes_from_the_spool_are_counted_as_discarded(
    tmp_path: Path,
) -> None:
    health, counters = Health(), IngestCounters()
    spool = Spool(tmp_path / "s.db", HUGE, health, counters)
    await spool.open()
    writing = Writing(FailingStore([HUGE]), spool, health)
    writing.bench.counters = counters
    writing.bench.put(numbered(3))
    await writing.until(lambda: counters.in_spool == 3)
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute("DELETE FROM spool")
    await writing.until(lambda: not counters.in_spool)
    assert counters == IngestCounters(received=3, spooled=3, discarded=3)
    assert writing.bench.adds_up()
    await spool.close()


async def test_a_part_that_the_spool_takes_leaves_the_queue(tmp_path: Path) -> None:
    health, made = Health(), numbered(5)
    spool = Spool(
        tmp_path / "s.db", sum(len(each.key) + len(each.data) for each in made[:3]), health
    )
    await spool.open()
    writing = Writing(FailingStore([HUGE]), spool, health)
    bench = writing.bench
    for operation in made:
        bench.put([operation])
    await writing.until(lambda: bench.counters.in_spool == 3)
    assert bench.queue.count == 2
    assert bench.queue.bytes == sum(len(each.key) + len(each.data) for each in made[3:])
    assert bench.counters == IngestCounters(received=5, spooled=3, in_spool=3)
    await spool.close()

"""The writer with a store that fails: order is kept, nothing is lost or doubled, the counters add up."""

import asyncio
import logging
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import NotConfirmedError, StoreError, StoreUnavailableError
from oplogd.health import Health
from oplogd.ingest import spool as spool_module
from oplogd.ingest import writer
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.spool import Spool
from oplogd.operation import Operation
from oplogd.store import Stamp, Store
from tests.operations import numbered
from tests.properties import examples

DEADLINE = 30.0
HUGE = 10**9


class FailingStore:
    """Fails as often as ``failures`` says for each batch. A batch waits at ``gate`` before it is judged."""

    def __init__(self, failures: Sequence[int] = ()) -> None:
        self.failures = list(failures)
        self.batches: list[list[Operation]] = []
        self.error: Exception = StoreUnavailableError("the disk is full")
        self.tries = 0
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, operations: Sequence[Operation], stamp: Stamp | None = None) -> None:
        self.tries += 1
        self.arrived.set()
        await self.gate.wait()
        if self.failures and self.failures[0] > 0:
            self.failures[0] -= 1
            raise self.error
        if self.failures:
            self.failures.pop(0)
        self.batches.append(list(operations))

    @property
    def commits(self) -> int:
        return len(self.batches)

    @property
    def log(self) -> list[Operation]:
        return [op for batch in self.batches for op in batch]


class Bench:
    def __init__(self, store: FailingStore) -> None:
        self.store = store
        self.queue = IngestQueue(HUGE, HUGE)
        self.counters = Counters()
        self.health = Health()

    def put(self, operations: list[Operation], wait: bool) -> "asyncio.Future[None] | None":
        self.counters.received += len(operations)
        return self.queue.put(operations, wait)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Run the writer until the queue is empty; if it dies, so does the test."""
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            store = cast(Store, self.store)
            task = group.create_task(
                writer.write(store, self.queue, self.counters, self.health), name="writer"
            )
            yield
            self.store.gate.set()
            await self.queue.emptied()
            task.cancel()

    def adds_up(self) -> bool:
        counts = self.counters
        kept = counts.in_spool + self.queue.operations
        return (
            counts.received + counts.recovered
            == counts.ingested + counts.error + counts.discarded + kept
        )


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 0.0)


async def test_all_that_waits_shares_a_commit() -> None:
    bench = Bench(FailingStore())
    for number in range(1, 4):
        bench.put(numbered(1, number), wait=True)
    async with bench.writing():
        pass
    assert bench.store.batches == [numbered(3)]
    assert bench.counters == Counters(received=3, ingested=3)


async def test_a_commit_holds_at_most_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_OPERATIONS", 2)
    bench = Bench(FailingStore())
    for number in range(1, 6):
        bench.put(numbered(1, number), wait=False)
    async with bench.writing():
        pass
    assert [len(batch) for batch in bench.store.batches] == [2, 2, 1]
    assert bench.store.log == numbered(5)


async def test_a_batch_is_tried_until_it_is_written_once_and_nothing_overtakes_it() -> None:
    bench = Bench(FailingStore([5]))
    bench.put(numbered(2), wait=False)
    async with bench.writing():
        await bench.store.arrived.wait()
        bench.put(numbered(2, first=3), wait=False)
    assert bench.store.log == numbered(4)
    assert bench.store.tries == 7
    assert bench.counters == Counters(received=4, ingested=4)


async def test_at_a_failure_those_who_wait_are_told_and_only_what_is_being_written_stays() -> None:
    bench = Bench(FailingStore([1]))
    bench.store.gate.clear()
    in_flight = bench.put(numbered(1, first=1), wait=True)
    async with bench.writing():
        await bench.store.arrived.wait()
        waiting = bench.put(numbered(2, first=2), wait=True)
        bench.put(numbered(1, first=4), wait=False)
        assert in_flight is not None
        assert waiting is not None
        bench.store.gate.set()
        with pytest.raises(NotConfirmedError, match="the disk is full"):
            await in_flight
        with pytest.raises(StoreUnavailableError, match="the disk is full") as dropped:
            await waiting
        assert dropped.type is StoreUnavailableError
    assert bench.store.log == [*numbered(1, first=1), *numbered(1, first=4)]
    assert bench.counters == Counters(received=4, ingested=2, discarded=2)
    assert bench.adds_up()


async def test_who_waits_is_told_only_when_the_store_has_answered() -> None:
    bench = Bench(FailingStore())
    bench.store.gate.clear()
    done = bench.put(numbered(1), wait=True)
    assert done is not None
    async with bench.writing():
        await bench.store.arrived.wait()
        assert not done.done()
        assert bench.counters.ingested == 0
        bench.store.gate.set()
        await done
        assert bench.store.log == numbered(1)


async def test_the_trouble_is_told_while_it_lasts() -> None:
    bench = Bench(FailingStore([1]))
    done = bench.put(numbered(1), wait=True)
    assert done is not None
    async with bench.writing():
        with pytest.raises(StoreUnavailableError):
            await done
        assert bench.health.trouble == bench.health.of("writer") == "the disk is full"
    assert bench.health.trouble is None


async def test_the_delay_doubles_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def note(delay: float) -> None:
        delays.append(delay)

    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 1.0)
    monkeypatch.setattr("oplogd.ingest.writer.random.uniform", lambda low, high: high)
    bench = Bench(FailingStore([8]))
    bench.put(numbered(1), wait=False)
    with monkeypatch.context() as patch:
        patch.setattr("oplogd.ingest.writer.asyncio.sleep", note)
        async with bench.writing():
            pass
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@examples(1)
@given(
    failures=st.lists(st.integers(0, 3), max_size=6),
    puts=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 4)), max_size=12),
    batch=st.integers(1, 6),
)
async def test_what_was_acknowledged_or_sent_by_udp_is_written_once_in_order(
    failures: list[int], puts: list[tuple[int, bool, int]], batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "BATCH_OPERATIONS", batch)
        bench = Bench(FailingStore(failures))
        answers: list[tuple[list[Operation], asyncio.Future[None] | None]] = []
        async with bench.writing():
            first = 1
            for count, wait, turns in puts:
                made = numbered(count, first)
                first += count
                answers.append((made, bench.put(made, wait)))
                for _ in range(turns):  # let the writer go on to some point
                    await asyncio.sleep(0)
                assert bench.adds_up()
    log = bench.store.log
    ids = [int(op.key.removeprefix("video/")) for op in log]
    assert ids == sorted(set(ids)), "in order, each once"
    for made, done in answers:
        written = [op in log for op in made]
        assert all(written) or not any(written), "stored together or not at all"
        if done is None or done.exception() is None:
            assert all(written)
    assert bench.adds_up()
    assert bench.counters.ingested == len(log)
    assert bench.queue.operations == bench.queue.bytes == 0


@pytest.mark.parametrize(
    "error", [StoreError("another version"), ValueError("a bug")], ids=["StoreError", "a bug"]
)
async def test_no_error_of_the_store_ends_the_writer_or_loses_what_it_holds(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingStore([3])
    store.error = error
    bench = Bench(store)
    bench.put(numbered(2), wait=False)
    done = bench.put(numbered(1, first=3), wait=True)
    assert done is not None
    async with bench.writing():
        with pytest.raises(StoreUnavailableError, match=str(error)):
            await done
        assert str(error) in (bench.health.trouble or "")
    assert bench.store.log == numbered(3)
    assert bench.health.trouble is None
    assert bench.adds_up()
    told = [record for record in caplog.records if record.exc_info]
    assert len(told) == (not isinstance(error, StoreError))


# --- With a spool ---


class Writing:
    """A bench with a spool that is written to until the test has seen enough."""

    def __init__(self, store: FailingStore, spool: Spool, health: Health) -> None:
        self.bench = Bench(store)
        self.bench.health = health
        self._spool = spool

    async def until(self, condition: Callable[[], bool]) -> None:
        bench = self.bench
        store = cast(Store, bench.store)
        works = (
            writer.write(store, bench.queue, bench.counters, bench.health, self._spool),
            self._spool.mend(),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    assert not [task.exception() for task in tasks if task.done()]
                    await asyncio.sleep(0.001)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


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
    """``broken``: which of the first calls on the spool's file fail."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(writer, "BATCH_OPERATIONS", batch)
        patch.setattr(writer, "_FULL_SECONDS", 0.0)
        patch.setattr(spool_module, "_SCHEMA", spool_module._SCHEMA.replace("NORMAL", "OFF"))
        patch.setattr(spool_module, "_MEND_SECONDS", 0.001)
        health = Health()
        one = numbered(1)[0]
        spool = Spool(Path(folder) / "s.db", room * (len(one.key) + len(one.data) + 2), health)
        await spool.open()
        fails, opened = iter(broken), spool._opened

        def sometimes() -> sqlite3.Connection:
            if next(fails, False):
                raise sqlite3.OperationalError("disk I/O error")
            return opened()

        patch.setattr(spool, "_opened", sometimes)
        writing = Writing(FailingStore(failures), spool, health)
        bench, total = writing.bench, sum(count for count, _ in puts)

        async def produce() -> None:
            first = 1
            for count, turns in puts:
                bench.put(numbered(count, first), wait=False)
                first += count
                for _ in range(turns):
                    await asyncio.sleep(0)

        def all_is_stored() -> bool:
            assert bench.adds_up()
            assert bench.counters.ingested == len(bench.store.log)
            return producing.done() and not (
                bench.queue.operations or spool.operations or health.trouble
            )

        producing = asyncio.create_task(produce())
        await writing.until(all_is_stored)
        await producing
        await spool.close()
    assert bench.store.log == numbered(total)
    assert bench.counters == Counters(
        received=total, ingested=total, spooled=bench.counters.spooled
    )
    assert bench.store.commits == bench.counters.commit_seconds.count


async def test_operations_in_the_spool_are_counted_as_stored_by_the_process_that_stores_them(
    tmp_path: Path,
) -> None:
    """The first process receives three, the second two, and the third stores all."""
    path = tmp_path / "s.db"
    counts: list[Counters] = []

    async def run(batch: list[Operation], failures: int) -> None:
        health, counters = Health(), Counters()
        spool = Spool(path, HUGE, health, counters)
        await spool.open()
        writing = Writing(FailingStore([failures]), spool, health)
        bench = writing.bench
        bench.counters = counters
        if batch:
            bench.put(batch, wait=False)
        await writing.until(
            lambda: not bench.queue.operations and bool(failures or not spool.operations)
        )
        assert bench.adds_up()
        await spool.close()
        counts.append(counters)

    await run(numbered(3), failures=HUGE)
    await run(numbered(2, first=4), failures=HUGE)
    await run([], failures=0)
    assert counts == [
        Counters(received=3, spooled=3, in_spool=3),
        Counters(received=2, recovered=3, spooled=2, in_spool=5),
        Counters(recovered=5, ingested=5),
    ]


async def test_operations_that_somebody_takes_from_the_spool_are_counted_as_discarded(
    tmp_path: Path,
) -> None:
    health, counters = Health(), Counters()
    spool = Spool(tmp_path / "s.db", HUGE, health, counters)
    await spool.open()
    writing = Writing(FailingStore([HUGE]), spool, health)
    writing.bench.counters = counters
    writing.bench.put(numbered(3), wait=False)
    await writing.until(lambda: counters.in_spool == 3)
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute("DELETE FROM spool")
    await writing.until(lambda: not counters.in_spool)
    assert counters == Counters(received=3, spooled=3, discarded=3)
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
        bench.put([operation], wait=False)
    await writing.until(lambda: bench.counters.in_spool == 3)
    assert bench.queue.operations == 2
    assert bench.queue.bytes == sum(len(each.key) + len(each.data) for each in made[3:])
    assert bench.counters == Counters(received=5, spooled=3, in_spool=3)
    await spool.close()


# --- Health ---


def test_the_first_trouble_is_told_until_its_part_is_well() -> None:
    health = Health()

    def told() -> list[str | None]:
        return [health.trouble, health.of("writer"), health.of("follower")]

    assert told() == [None, None, None]
    writer, follower = health.part("writer"), health.part("follower")
    writer.bad("full")
    follower.bad("away")
    assert told() == ["full", "full", "away"]
    writer.good()
    assert told() == ["away", None, "away"]
    follower.good()
    assert told() == [None, None, None]


def test_a_trouble_is_logged_when_it_begins_changes_and_ends_and_not_in_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oplogd.store")
    part = Health().part("writer")
    part.good()
    for message in ("full", "full", "locked", "locked"):
        part.bad(message)
    part.good()
    part.good()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "writer: full"),
        ("ERROR", "writer: locked"),
        ("INFO", "writer: the store answers again"),
    ]

"""The writer with a store that fails: order is kept, nothing is lost or doubled."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.clock import Clock
from oplogd.errors import NotConfirmedError, StoreError, StoreUnavailableError
from oplogd.ingest import writer
from oplogd.ingest.counters import IngestCounters
from oplogd.model.operation import Operation
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.models.properties import examples
from tests.unit.ingest.writing import Bench, FailingStore


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 0.0)


async def test_all_that_waits_shares_a_commit() -> None:
    bench = Bench(FailingStore())
    for number in range(1, 4):
        bench.submit(numbered(1, number))
    async with bench.writing():
        pass
    assert bench.store.batches == [numbered(3)]
    assert bench.counters == IngestCounters(received=3, ingested=3)


async def test_a_commit_holds_at_most_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_OPERATIONS", 2)
    bench = Bench(FailingStore())
    for number in range(1, 6):
        bench.put(numbered(1, number))
    async with bench.writing():
        pass
    assert [len(batch) for batch in bench.store.batches] == [2, 2, 1]
    assert bench.store.log == numbered(5)


async def test_a_batch_is_tried_until_it_is_written_once_and_nothing_overtakes_it() -> None:
    bench = Bench(FailingStore([5]))
    bench.put(numbered(2))
    async with bench.writing():
        await bench.store.arrived.wait()
        bench.put(numbered(2, first=3))
    assert bench.store.log == numbered(4)
    assert bench.store.tries == 7
    assert bench.counters == IngestCounters(received=4, ingested=4)


async def test_at_a_failure_waiting_requests_fail_and_only_operations_being_written_stay() -> None:
    bench = Bench(FailingStore([1]))
    bench.store.gate.clear()
    in_flight = bench.submit(numbered(1, first=1))
    async with bench.writing():
        await bench.store.arrived.wait()
        waiting = bench.submit(numbered(2, first=2))
        bench.put(numbered(1, first=4))
        bench.store.gate.set()
        with pytest.raises(NotConfirmedError, match="the disk is full"):
            await in_flight
        with pytest.raises(StoreUnavailableError, match="the disk is full") as dropped:
            await waiting
        assert dropped.type is StoreUnavailableError
    assert bench.store.log == [*numbered(1, first=1), *numbered(1, first=4)]
    assert bench.counters == IngestCounters(received=4, ingested=2, discarded=2)
    assert bench.adds_up()


async def test_a_waiting_request_is_answered_only_after_the_store() -> None:
    bench = Bench(FailingStore())
    bench.store.gate.clear()
    done = bench.submit(numbered(1))
    async with bench.writing():
        await bench.store.arrived.wait()
        assert not done.done()
        assert bench.counters.ingested == 0
        bench.store.gate.set()
        await done
        assert bench.store.log == numbered(1)


async def test_the_trouble_is_reported_while_it_lasts() -> None:
    bench = Bench(FailingStore([1]))
    done = bench.submit(numbered(1))
    async with bench.writing():
        with pytest.raises(StoreUnavailableError):
            await done
        assert bench.health.trouble == bench.health.part("writer").trouble == "the disk is full"
    assert bench.health.trouble is None


async def test_the_delay_doubles_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def note(delay: float) -> None:
        delays.append(delay)

    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 1.0)
    monkeypatch.setattr("oplogd.ingest.writer.random.uniform", lambda low, high: high)
    bench = Bench(FailingStore([8]), Clock(sleep=note))
    bench.put(numbered(1))
    async with bench.writing():
        pass
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


async def test_the_writer_tries_again_as_soon_as_another_part_finds_the_store_back() -> None:
    bench = Bench(FailingStore([1]), VirtualClock().clock)  # its pauses have no end
    follower = bench.health.part("follower")
    bench.put(numbered(1))
    async with bench.writing():
        while bench.health.part("writer").trouble is None:
            await asyncio.sleep(0)
        follower.bad("away")
        follower.good()
    assert bench.store.tries == 2


async def test_a_recovery_during_an_append_makes_the_next_pause_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delays: list[float] = []

    async def note(delay: float) -> None:
        delays.append(delay)

    monkeypatch.setattr(writer, "FIRST_RETRY_SECONDS", 1.0)
    monkeypatch.setattr("oplogd.ingest.writer.random.uniform", lambda low, high: high)
    bench = Bench(FailingStore([4]), Clock(sleep=note))
    follower = bench.health.part("follower")
    bench.put(numbered(1))
    async with bench.writing():
        while bench.store.tries < 3:
            await asyncio.sleep(0)
        follower.bad("away")
        bench.store.gate.clear()
        bench.store.arrived.clear()
        await bench.store.arrived.wait()
        follower.good()
    assert delays == [1.0, 2.0, 4.0, 1.0]


@examples(1)
@given(
    failures=st.lists(st.integers(0, 3), max_size=6),
    puts=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 4)), max_size=12),
    batch=st.integers(1, 6),
)
async def test_acknowledged_and_udp_operations_are_written_once_in_order(
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
                if wait:
                    answers.append((made, bench.submit(made)))
                else:
                    bench.put(made)
                    answers.append((made, None))
                for _ in range(turns):  # let the writer go on for some steps
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
    assert bench.queue.count == bench.queue.bytes == 0


@pytest.mark.parametrize(
    "error", [StoreError("another version"), ValueError("a bug")], ids=["StoreError", "a bug"]
)
async def test_no_error_of_the_store_ends_the_writer_or_loses_operations(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingStore([3])
    store.error = error
    bench = Bench(store)
    bench.put(numbered(2))
    done = bench.submit(numbered(1, first=3))
    async with bench.writing():
        with pytest.raises(StoreUnavailableError, match=str(error)):
            await done
        assert str(error) in (bench.health.trouble or "")
    assert bench.store.log == numbered(3)
    assert bench.health.trouble is None
    assert bench.adds_up()
    told = [record for record in caplog.records if record.exc_info]
    assert len(told) == (not isinstance(error, StoreError))

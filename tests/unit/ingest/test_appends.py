"""A store that hangs: the agent says so, and no request waits without end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oplogd.errors import NotConfirmedError, StoreUnavailableError, TransactionConflictError
from oplogd.ingest.appends import ANSWER_SECONDS, HANGING_SECONDS, MAX_WAITING, Appends
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.writer import Writer
from oplogd.store import Store
from oplogd.topics.publish import MessageWriter
from oplogd.watch.health import Health
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.unit.ingest.writing import HUGE, FailingStore, submit
from tests.unit.topics.publishing import NAME
from tests.unit.topics.publishing import Bench as TopicBench

LATE = "a write failed after its request was answered"


def pass_seconds(time: VirtualClock, appends: Appends, seconds: float) -> None:
    while seconds > 0:
        time.move(min(seconds, 1.0))
        appends.look()
        seconds -= 1.0


class Hanging:
    """A writer whose store keeps an append until ``store.gate`` is set."""

    def __init__(self) -> None:
        self.time = VirtualClock()
        self.store = FailingStore()
        self.store.gate.clear()
        self.queue = IngestQueue(HUGE, HUGE)
        self.counters = IngestCounters()
        self.health = Health()
        self.appends = Appends(self.health, self.time.clock)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        store, clock = cast(Store, self.store), self.time.clock
        writer = Writer(
            store, self.queue, self.counters, self.health, clock=clock, appends=self.appends
        )
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            task = group.create_task(writer.run())
            await self.store.arrived.wait()
            yield
            self.store.gate.set()
            await self.queue.emptied()
            task.cancel()

    def pass_seconds(self, seconds: float) -> None:
        pass_seconds(self.time, self.appends, seconds)


async def test_an_append_that_hangs_is_a_trouble_with_one_line_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = Hanging()
    done = submit(bench.queue, numbered(1))
    async with bench.writing():
        bench.pass_seconds(HANGING_SECONDS - 0.1)
        assert bench.health.trouble is None
        bench.pass_seconds(0.1)
        assert bench.health.trouble == "the store has not confirmed an append for 8 s"
        bench.pass_seconds(10)
        assert not done.done()
    await done
    bench.appends.look()
    assert bench.health.trouble is None
    assert [record.message for record in caplog.records] == [
        "append: the store has not confirmed an append for 8 s",
        "append: the store confirms appends again",
    ]


async def test_the_time_for_which_the_process_was_stopped_does_not_count() -> None:
    bench = Hanging()
    done = submit(bench.queue, numbered(1))
    async with bench.writing():
        bench.time.move(3600)
        bench.appends.look()
        assert (bench.health.trouble, done.done()) == (None, False)
    await done


async def test_requests_of_a_hanging_append_are_answered_and_its_operations_are_stored_later() -> (
    None
):
    bench = Hanging()
    written = submit(bench.queue, numbered(1))
    async with bench.writing():
        waiting = submit(bench.queue, numbered(1, first=2))
        bench.queue.put(numbered(1, first=3))  # a datagram: no request waits
        bench.pass_seconds(ANSWER_SECONDS)
        with pytest.raises(NotConfirmedError, match="not confirmed an append within 30 s"):
            await written
        with pytest.raises(StoreUnavailableError) as dropped:
            await waiting
        assert dropped.type is StoreUnavailableError, "it has left the queue"
        later = submit(bench.queue, numbered(1, first=4))
        bench.pass_seconds(1)
        with pytest.raises(StoreUnavailableError):
            await later
    assert bench.store.log == [*numbered(1), *numbered(1, first=3)]
    assert (bench.counters.ingested, bench.counters.discarded) == (2, 2)
    assert bench.queue.count == bench.queue.bytes == 0


async def test_publishes_that_wait_for_a_hanging_append_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, bench = VirtualClock(), TopicBench()
    appends = Appends(bench.health, time.clock)
    arrived, gate = asyncio.Event(), asyncio.Event()
    append = bench.topics.append

    async def hanging(batches: object) -> object:
        arrived.set()
        await gate.wait()
        return await append(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.topics, "append", hanging)
    await bench.topics.create(NAME, None)
    writer = MessageWriter(bench.topics, bench.queue, bench.health, appends=appends)
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        written = bench.publishing("written")
        await arrived.wait()
        waiting = bench.publishing("waiting")
        while bench.queue.count < 2:
            await asyncio.sleep(0)
        pass_seconds(time, appends, ANSWER_SECONDS)
        with pytest.raises(NotConfirmedError):
            await written
        with pytest.raises(StoreUnavailableError) as dropped:
            await waiting
        assert dropped.type is StoreUnavailableError
        assert bench.health.trouble is not None
        gate.set()
        await bench.queue.emptied()
        task.cancel()
    assert await bench.stored() == ['{"payload":"written"}']


async def test_a_commit_that_hangs_is_answered_and_goes_on() -> None:
    time = VirtualClock()
    appends = Appends(health := Health(), time.clock)
    gate, done = asyncio.Event(), asyncio.Event()

    async def commit() -> str:
        await gate.wait()
        done.set()
        return "committed"

    request = asyncio.create_task(appends.confirmed(commit()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pass_seconds(time, appends, ANSWER_SECONDS)
    with pytest.raises(NotConfirmedError):
        await request
    appends.look()
    assert health.trouble is not None, "the commit still hangs"
    gate.set()
    await done.wait()
    await asyncio.sleep(0)
    appends.look()
    assert health.trouble is None
    assert await appends.confirmed(commit()) == "committed"


async def test_what_hung_and_then_failed_is_not_said_to_be_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    time = VirtualClock()
    appends = Appends(Health(), time.clock)
    broken = asyncio.get_running_loop().create_future()
    request = asyncio.create_task(appends.confirmed(asyncio.wait_for(broken, None)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pass_seconds(time, appends, HANGING_SECONDS)
    broken.set_exception(StoreUnavailableError("the connection broke"))
    with pytest.raises(StoreUnavailableError):
        await request
    appends.look()
    assert [record.message for record in caplog.records] == [
        "append: the store has not confirmed an append for 8 s",
        "append: the appends that hung have failed",
    ]


async def test_requests_that_come_when_others_got_no_answer_are_refused_and_not_begun() -> None:
    """Clients that give up and come again would fill the memory: nothing ends their work."""
    time = VirtualClock()
    appends = Appends(Health(), time.clock)
    with appends.step(lambda error: None):
        pass_seconds(time, appends, ANSWER_SECONDS)
        with pytest.raises(StoreUnavailableError) as refused:
            await appends.confirmed(fail("the work has begun"))
        assert refused.type is StoreUnavailableError
    assert await appends.confirmed(asyncio.sleep(0, "stored")) == "stored"


async def test_while_the_store_hangs_only_so_many_requests_wait_for_it() -> None:
    time = VirtualClock()
    appends = Appends(Health(), time.clock)
    gate = asyncio.Event()
    waiting = [asyncio.create_task(appends.confirmed(gate.wait())) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pass_seconds(time, appends, HANGING_SECONDS)
    with pytest.raises(StoreUnavailableError):
        await appends.confirmed(fail("the work has begun"))
    gate.set()
    assert await asyncio.gather(*waiting) == [True] * (MAX_WAITING + 1), "a load is no hang"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (StoreUnavailableError("the disk is gone"), [f"{LATE}: the disk is gone"]),
        (ValueError("a fault"), ["a write failed", f"{LATE}: ValueError('a fault')"]),
        (TransactionConflictError("it is decided"), []),
    ],
)
async def test_failures_whose_requests_have_their_answers_are_logged_once(
    caplog: pytest.LogCaptureFixture, error: Exception, lines: list[str]
) -> None:
    time = VirtualClock()
    appends = Appends(Health(), time.clock)
    gate = asyncio.Event()

    async def commit() -> None:
        await gate.wait()
        raise error

    requests = [asyncio.create_task(appends.confirmed(commit())) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pass_seconds(time, appends, ANSWER_SECONDS)
    for request in requests:
        with pytest.raises(NotConfirmedError):
            await request
    gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [record.message for record in caplog.records[1:]] == lines


async def fail(reason: str) -> None:
    pytest.fail(reason)

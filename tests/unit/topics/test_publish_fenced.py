"""Publishing with a fence: judged with the append, for each request by its own fence."""

import asyncio

import pytest

from oplogd.errors import StaleFenceError, TopicNotFoundError
from oplogd.model.lease import Fence
from oplogd.model.message import of_payload
from oplogd.store.leases import LeaseRequest
from oplogd.store.topics import MessageBatch
from oplogd.topics.known import KnownTopics
from oplogd.topics.publish import PublishService
from oplogd.watch.lease_counters import LeaseCounters
from tests.unit.topics.publishing import NAME, Bench, data, errors_of, queued

OLD, NEW = Fence("l", 1), Fence("l", 2)


class FencedBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.leases = LeaseCounters()
        known = KnownTopics(self.topics)
        self.publisher = PublishService(known, self.queue, self.counters, self.leases)

    async def acquire(self) -> None:
        await self.topics.leases.poll(LeaseRequest("l", "h", 60_000, refresh=True))

    def fenced(self, fence: Fence | None, *payloads: str) -> "asyncio.Task[None]":
        messages = [of_payload(each.encode()) for each in payloads]
        return asyncio.create_task(self.publisher.publish(NAME, messages, fence))


async def test_each_request_of_a_commit_is_judged_by_its_own_fence() -> None:
    bench = FencedBench()
    await bench.topics.create(NAME, None)
    await bench.acquire()
    await bench.acquire()
    tasks = [
        bench.fenced(OLD, "never", "never"),
        bench.fenced(None, "a"),
        bench.fenced(NEW, "b"),
        bench.fenced(None, "c"),
        bench.fenced(NEW, "d"),
    ]
    await queued(bench, 6)
    async with bench.writing():
        assert await errors_of(tasks) == [StaleFenceError, *[None] * 4]
    (batches,) = bench.topics.appends
    messages = [[of_payload(each.encode()) for each in group] for group in ("ac", "bd")]
    assert batches[1:] == [MessageBatch(1, messages[0]), MessageBatch(1, messages[1], NEW)]
    assert await bench.stored() == data("a", "c", "b", "d")
    assert bench.acknowledged == [(1, 2), (1, 4)]
    assert bench.leases.counts.stale_publishes == 1
    assert bench.counters.counts.messages_refused == 2
    assert bench.counters.counts.messages_published == 4


async def test_a_term_that_ends_before_the_append_stores_nothing() -> None:
    bench = FencedBench()
    await bench.topics.create(NAME, None)
    await bench.acquire()
    bench.topics.gate.clear()
    async with bench.writing():
        late = bench.fenced(OLD, "late")
        await bench.topics.arrived.wait()
        await bench.acquire()
        bench.topics.gate.set()
        with pytest.raises(StaleFenceError, match="term 1 of the lease l is over"):
            await late
    assert await bench.stored() == []


async def test_a_deleted_topic_is_not_found_whatever_the_fence() -> None:
    bench = FencedBench()
    await bench.topics.create(NAME, None)
    await bench.acquire()
    async with bench.writing():
        await bench.fenced(OLD, "a")
        await bench.topics.delete(NAME)
        assert await errors_of([bench.fenced(OLD, "b")]) == [TopicNotFoundError]

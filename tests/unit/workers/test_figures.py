"""The figures of two workers on one store: any of them answers for both."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from oplogd.agent import Agent
from oplogd.config.settings import Settings
from oplogd.ingest.queue import Intake
from oplogd.model.names import TopicName
from oplogd.store.leases import Lease
from oplogd.store.sqlite import SqliteStore
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.ring.filters import Filter
from oplogd.topics.counters import OTHER
from oplogd.watch.bounded import QUEUE_OF_A_WORKER, THE_QUEUE
from oplogd.web.figures.metrics import METRICS, render
from oplogd.web.figures.status import Shown, StatusReport
from oplogd.web.figures.worker import Told
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered

_T = TypeVar("_T")

TOPIC = TopicName("ns", "t")


class Bench:
    """Two agents that are workers of one. Time passes only when the test moves it."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.clock = VirtualClock()
        self.workers = Workers(count, monotonic=self.clock.monotonic)
        self.settings = Settings(store=folder / "s.db")
        self.agents: list[Agent] = []
        self.reports: list[StatusReport] = []
        self._pids = itertools.count(101)

    async def begin(self, number: int) -> None:
        """Begin a worker, also in the place of an earlier one."""
        store = SqliteStore(self.settings.store, clock=self.clock.clock)
        agent = Agent(self.settings, store, [], self.clock.clock, Worker(self.workers, number))
        self.agents[number:] = [agent, *self.agents[number + 1 :]]
        self.reports[number:] = [StatusReport(agent, ()), *self.reports[number + 1 :]]
        self.workers.began(number, next(self._pids))
        await store.open()
        await agent.start()

    async def end(self, number: int) -> None:
        await self.agents[number].stop()
        await self.agents[number].store.close()

    async def put(self, number: int, count: int) -> None:
        """Store operations."""
        await self._intake(number).submit(numbered(count))

    def receive(self, number: int, count: int) -> None:
        """Put operations into the queue. They are not stored before the next turn of the loop."""
        self._intake(number).submit(numbered(count)).cancel()

    async def connect(self, number: int, name: str = "") -> StreamConsumer:
        return await self.agents[number].hub.connect(
            None, Filter(), checkpoints=False, address="192.0.2.1:1", name=name
        )

    async def status(self, number: int = 0, *, private: bool = False) -> dict[str, Any]:
        return await self.reports[number].members(Shown.ALL if private else Shown.PUBLIC)

    async def metrics(self, number: int = 0) -> dict[tuple[str, str], float]:
        """Return the samples by name and by the value of their first label."""
        text = render(await self.reports[number].figures(Shown.PUBLIC)).decode()
        return {
            (sample.name, next(iter(sample.labels.values()), "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def passing(self, work: Awaitable[_T]) -> _T:
        """Let time pass until a work ends that waits for a silent worker."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            self.clock.move(0.25)
        return task.result()

    def _intake(self, number: int) -> Intake:
        agent = self.agents[number]
        return Intake(agent.queue, agent.fenced, agent.counters, agent.health.part("writer"))


def balance(status: dict[str, Any]) -> int:
    """Return 0 if every operation is counted in one place."""
    came = status["events_received"] + status["events_recovered"]
    counted = ("ingested", "error", "discarded", "stale")
    went: int = sum(status[f"events_{name}"] for name in counted)
    return int(came - went - status["queue_size"] - status["spool"]["operations"])


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    for number in range(2):
        await bench.begin(number)
    yield bench
    for number in range(2):
        await bench.end(number)
    bench.workers.close()


async def test_each_worker_tells_the_sums_of_both(bench: Bench) -> None:
    await bench.put(0, 3)
    await bench.put(1, 4)
    for number in (0, 1, 1):
        await bench.connect(number)
    bench.agents[0].counters.commit_seconds.observe(2.0)
    bench.clock.move(5)
    for number in range(2):
        status = await bench.status(number)
        assert (status["status"], status["uptime_seconds"]) == ("OK", 5.0)
        assert (status["events_received"], status["events_ingested"]) == (7, 7)
        assert (status["clients"], status["connections"]) == (3, 3)
        assert status["commit_seconds"]["count"] == 3
        assert status["commit_seconds"]["buckets"]["+Inf"] == 3
        assert status["queue_max_size"] == 2 * bench.settings.max_queued_events
        assert status["ring"]["max_operations"] == 2 * bench.settings.ring_size
        assert status["store"]["ops"] == 7
        found = [
            (each["number"], each["pid"], each["silent"], each["clients"], each["events_ingested"])
            for each in status["workers"]
        ]
        assert found == [(0, 101, False, 1, 3), (1, 102, False, 2, 4)]


async def test_the_operations_in_the_queues_belong_to_the_counters_of_the_same_moment(
    bench: Bench,
) -> None:
    async def load() -> None:
        while True:
            for number in range(2):
                bench.receive(number, 3)
            await asyncio.sleep(0)

    loading = asyncio.create_task(load())
    queued = 0
    for _ in range(20):
        status = await bench.status()
        queued += status["queue_size"]
        assert balance(status) == 0
    loading.cancel()
    assert queued > 0  # or there was nothing to test


async def test_a_lease_with_a_holder_at_both_workers_counts_once(bench: Bench) -> None:
    leases = [agent.leases for agent in bench.agents]
    for number, name, term in ((0, "a", 1), (1, "a", 1), (1, "b", 1), (0, "a", 2), (1, "a", 2)):
        leases[number].add_poll("holder", Lease(name, "holder", term, 60_000, ""))
        await bench.status(1 - number)  # the other one has heard of it
    counts = {"polls": 5, "terms": 3, "stale_publishes": 0}
    assert (await bench.status())["leases"] == {"held": 2, **counts}
    leases[1].add_release("a")
    await bench.status(0)
    assert (await bench.status())["leases"] == {"held": 1, **counts}


async def test_a_notice_of_an_earlier_term_that_comes_late_is_ignored(bench: Bench) -> None:
    leases = [agent.leases for agent in bench.agents]
    leases[1].add_poll("holder", Lease("a", "holder", 1, 60_000, ""))
    leases[0].add_poll("holder", Lease("a", "holder", 2, 60_000, ""))
    await bench.status(1)  # both have heard of the other's term
    leases[0].add_poll("holder", Lease("a", "holder", 2, 60_000, ""))
    assert (await bench.status())["leases"]["terms"] == 2


async def test_a_successor_learns_the_leases_that_another_worker_knows(bench: Bench) -> None:
    held = Lease("a", "holder", 1, 60_000, "")
    bench.agents[1].leases.add_poll("holder", held)
    await bench.status(0)
    bench.agents[1].leases.add_poll("other", Lease("b", "other", 1, 0, ""))  # it ends at once
    await bench.status(0)
    await bench.end(1)
    bench.workers.settle(1)
    await bench.begin(1)
    assert [*bench.agents[1].leases.held] == ["a"]
    bench.agents[1].leases.add_poll("holder", held)
    assert (await bench.status())["leases"] == {
        "held": 1,
        "polls": 3,
        "terms": 2,
        "stale_publishes": 0,
    }


async def test_consumers_of_one_name_count_together_with_their_largest_lag(bench: Bench) -> None:
    for number, name in ((0, "search"), (1, "search"), (1, "copy")):
        await bench.connect(number, name)
    samples = await bench.metrics(1)
    assert samples["oplog_named_consumers", "search"] == 2
    assert samples["oplog_named_consumers", "copy"] == 1
    assert samples["oplog_consumer_names_left_out", ""] == 0


async def test_consumers_and_refused_datagrams_of_both_name_their_workers(bench: Bench) -> None:
    await bench.connect(0, "fast")
    await bench.connect(1, "slow")
    for number, ms in ((0, 1000), (1, 3000), (0, 2000)):
        bench.agents[number].udp.refused.add(ms, ("192.0.2.1", 1), "reason", b"x")
    private = await bench.status(0, private=True)
    assert {(each["name"], each["worker"]) for each in private["consumers"]} == {
        ("fast", 0),
        ("slow", 1),
    }
    assert private["consumers_left_out"] == 0
    assert [each["worker"] for each in private["refused_datagrams"]] == [1, 0, 0]
    assert [each["time"][17:19] for each in private["refused_datagrams"]] == ["03", "02", "01"]
    assert private["datagrams_refused"] == 3
    assert "consumers" not in await bench.status(0)


async def test_messages_by_topic_are_those_of_both(bench: Bench) -> None:
    for number, count in ((0, 2), (1, 5)):
        bench.agents[number].topics.counters.add_published(TOPIC, count)
        bench.agents[number].topics.counters.add_polled(TOPIC, 10 * count)
    samples = await bench.metrics()
    assert samples["oplog_topic_messages_published_total", "ns/t"] == 7
    assert samples["oplog_topic_messages_polled_total", "ns/t"] == 70
    assert samples["oplog_topic_messages_published_total", OTHER] == 0
    assert (await bench.status(1))["topics"]["messages_published"] == 7


async def test_a_trouble_of_one_worker_names_it_and_a_trouble_of_both_does_not(
    bench: Bench,
) -> None:
    bench.agents[1].health.part("writer").bad("the disk is slow")
    status = await bench.status(0)
    assert (status["status"], status["reason"]) == ("DEGRADED", "the disk is slow (worker 1)")
    assert (await bench.metrics(0))["oplog_store_up", ""] == 0
    bench.agents[0].health.part("writer").bad("the disk is slow")
    assert (await bench.status(1))["reason"] == "the disk is slow"


async def test_a_silent_worker_is_named_and_its_counters_still_count(bench: Bench) -> None:
    await bench.put(1, 4)
    await bench.connect(1)
    bench.agents[1].topics.counters.add_published(TOPIC, 5)
    bench.agents[1].topics.counters.save()
    await bench.agents[1].inbox.stop()
    await bench.put(1, 2)
    status = await bench.passing(bench.status(0))
    assert (status["status"], status["reason"]) == ("DEGRADED", "worker 1 does not answer")
    assert (status["events_received"], status["events_ingested"]) == (6, 6)
    assert (status["clients"], status["connections"]) == (0, 1)
    silent = status["workers"][1]
    assert (silent["silent"], silent["clients"], silent["queue_size"]) == (True, None, None)
    assert (silent["pid"], silent["events_ingested"]) == (102, 6)
    samples = await bench.passing(bench.metrics(0))
    assert (samples["oplog_worker_up", "0"], samples["oplog_worker_up", "1"]) == (1, 0)
    assert ("oplog_worker_clients", "1") not in samples
    assert samples["oplog_worker_events_received_total", "1"] == 6
    assert samples["oplog_topic_messages_published_total", "ns/t"] == 5
    assert samples["oplog_store_up", ""] == 1


async def test_a_killed_worker_is_not_asked_and_its_successor_continues_its_counters(
    bench: Bench,
) -> None:
    await bench.put(1, 4)
    bench.receive(1, 3)  # it dies before it stores them
    before = bench.workers.tallies[1].ingest
    assert before.in_queues == 3
    await bench.end(1)
    bench.workers.settle(1)
    status = await bench.status(0)  # no time passes: a wait would not end
    assert status["reason"] == "worker 1 does not answer"
    assert (status["events_ingested"], status["events_discarded"], balance(status)) == (4, 3, 0)
    assert (status["workers"][1]["pid"], status["workers"][1]["uptime_seconds"]) == (None, None)
    bench.workers.settle(1)  # its successor dies before it serves
    assert (await bench.status(0))["workers"][1]["restarts"] == 2
    bench.clock.move(2)
    await bench.begin(1)
    await bench.put(1, 1)
    status = await bench.status(0)
    assert (status["status"], status["events_received"], balance(status)) == ("OK", 8, 0)
    assert [(await bench.status(n))["uptime_seconds"] for n in range(2)] == [2.0, 2.0]
    successor = status["workers"][1]
    assert (successor["pid"], successor["restarts"]) == (103, 2)
    assert (successor["events_received"], successor["uptime_seconds"]) == (8, 0.0)


@pytest.mark.parametrize("asked", range(2))
async def test_the_figures_of_the_store_and_its_disk_are_those_of_the_worker_in_trouble(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """Worker 1 is two operations behind, and takes nothing."""
    figures = bench.reports[1]._own
    tell = figures.tell

    async def behind(*, private: bool) -> Told:
        told = await tell(private=private)
        return msgspec.structs.replace(told, head=told.head - 2, intake_stopped=True)

    await bench.put(0, 3)
    before = await bench.status(asked)
    while before["store"]["lag"]["follower"]:  # no follower has a deadline
        before = await bench.status(asked)
    monkeypatch.setattr(figures, "tell", behind)
    after = await bench.status(asked)
    assert after["store"]["lag"]["follower"] == 2
    assert [each["disk"]["intake_stopped"] for each in (before, after)] == [False, True]


async def test_datagrams_that_the_kernel_dropped_before_count_for_a_successor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    bench.workers.tallies[1].datagrams.dropped = 5
    for drops in (0, 7):
        monkeypatch.setattr(bench.agents[1].udp, "kernel_drops", lambda drops=drops: drops)
        told.append((await bench.status(0))["events_dropped_kernel"])
    assert told == [5, 7]


@pytest.mark.parametrize(("count", "name"), [(1, THE_QUEUE), (2, QUEUE_OF_A_WORKER)])
async def test_a_request_that_can_never_fit_is_told_that_the_queue_is_that_of_a_worker(
    tmp_path: Path, count: int, name: str
) -> None:
    workers = Workers(count)
    store = SqliteStore(tmp_path / "s.db")
    agent = Agent(Settings(store=tmp_path / "s.db"), store, [], worker=Worker(workers, 0))
    queues = (agent.queue, agent.fenced, agent.topics.queue)
    assert [each.name for each in queues] == [name] * 3
    workers.close()


async def test_requests_at_the_same_time_share_one_question(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    ask = bench.agents[0].inbox.ask

    async def counted(*args: Any) -> dict[int, bytes]:
        nonlocal asked
        asked += 1
        return await ask(*args)

    monkeypatch.setattr(bench.agents[0].inbox, "ask", counted)
    statuses = await asyncio.gather(*(bench.status(0) for _ in range(10)))
    assert asked == 1
    await bench.put(1, 1)
    assert (await bench.status(0))["events_ingested"] == 1
    assert asked == 2
    assert all(len(each["workers"]) == 2 for each in statuses)


async def test_every_metric_of_a_worker_is_exported(bench: Bench) -> None:
    exported = {name for name, _ in await bench.metrics()}
    declared = {each.sample for each in METRICS if each.labels == ("worker",)}
    assert len(declared) == 13
    assert declared <= exported


async def test_a_worker_alone_has_no_figures_by_worker(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1)
    await bench.begin(0)
    await bench.connect(0)
    bench.agents[0].udp.refused.add(1000, ("192.0.2.1", 1), "reason", b"x")
    status = await bench.status(private=True)
    assert "workers" not in status
    for each in (*status["consumers"], *status["refused_datagrams"]):
        assert "worker" not in each
    assert not any(name.startswith("oplog_worker_") for name, _ in await bench.metrics())
    await bench.end(0)

"""Counters that outlive a worker, and the settlement of a dead one."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogd.clock import SYSTEM
from oplogd.host.descriptors import Descriptors
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.spool import Spool
from oplogd.model.names import TopicName
from oplogd.store import BatchId
from oplogd.topics.counters import (
    LABELS,
    OTHER,
    PAGE_BYTES,
    ByTopic,
    TopicCounters,
    saved_in,
)
from oplogd.watch.health import Health
from oplogd.watch.turns import Turns
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2, monotonic=VirtualClock(seconds=100.0).monotonic)
    yield workers
    workers.close()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_counters_of_a_killed_worker_stay_and_its_queue_counts_as_discarded(
    workers: Workers,
) -> None:
    def count(worker: Worker) -> None:
        counters = worker.tallies.ingest
        counters.received += 10
        counters.ingested += 4
        counters.error += 1
        counters.in_spool += 2
        Descriptors(worker.tallies.requests_refused.cell("connections")).admits(1 << 40)
        topics = TopicCounters(worker.tallies.topics, worker.page)
        topics.add_published(TopicName("ns", "t"), 5)
        topics.save()

    for total in (1, 2):
        if not (pid := os.fork()):
            try:
                count(Worker(workers, 1))
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        workers.began(1, pid)
        os.waitpid(pid, 0)
        workers.settle(1)
        assert workers.tallies[1].ingest == IngestCounters(
            received=10 * total,
            ingested=4 * total,
            error=total,
            in_spool=2 * total,
            discarded=3 * total,
        )
        assert workers.tallies[1].ingest.in_queues == 0
        assert workers.tallies[1].requests_refused.connections == total
        assert saved_in(workers.pages[1]).published == {"ns/t": 5 * total, OTHER: 0}
    assert workers.tallies[0].ingest == IngestCounters()
    assert (workers.lives[1].starts, workers.lives[1].deaths) == (2, 2)


def test_a_worker_is_alive_from_its_begin_until_it_is_settled(workers: Workers) -> None:
    assert not workers.is_alive(0)
    for pid in (11, 12):
        workers.began(0, pid)
        assert workers.is_alive(0)
        assert (workers.lives[0].pid, workers.lives[0].began) == (pid, 100.0)
        workers.settle(0)
        assert not workers.is_alive(0)


def test_a_worker_that_dies_before_it_serves_is_dead_and_counts(workers: Workers) -> None:
    for deaths in (1, 2):
        workers.settle(1)
        assert not workers.is_alive(1)
        assert (workers.lives[1].starts, workers.lives[1].deaths) == (0, deaths)
    assert workers.lives[0].deaths == 0


def test_a_successor_gets_no_message_to_the_worker_before(workers: Workers) -> None:
    boxes = workers.mailboxes
    for number in range(2):
        for _ in range(3):
            boxes.sending(number).send(b"a message")
    workers.settle(1)
    with pytest.raises(BlockingIOError):
        boxes.receiving(1).recv(1)
    assert [boxes.receiving(0).recv(100) for _ in range(3)] == 3 * [b"a message"]


def test_a_worker_that_died_before_it_took_operations_out_of_the_spool_loses_no_balance(
    workers: Workers,
) -> None:
    """The operations were stored, and their rows are still in the file: they are found again."""
    counters = workers.tallies[0].ingest
    counters.received = counters.in_spool = counters.ingested = 3
    workers.settle(0)
    assert counters == IngestCounters(received=3, in_spool=3, ingested=3, recovered=3)


@pytest.mark.parametrize(
    ("counted", "recovered", "discarded"),
    [(0, 5, 0), (3, 2, 0), (5, 0, 0), (7, 0, 2)],
    ids=["an earlier agent", "put and not counted", "all counted", "the file lost some"],
)
async def test_a_successor_does_not_count_operations_in_the_spool_twice(
    counted: int, recovered: int, discarded: int, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "s.db", 1 << 20, Health())
    assert await spool.put(numbered(5), BatchId("w", 0)) == 5
    await spool.close()
    counters = IngestCounters(received=counted, in_spool=counted)
    successor = Spool(tmp_path / "s.db", 1 << 20, Health(), counters)
    await successor.open()
    assert counters == IngestCounters(
        received=counted, in_spool=5, recovered=recovered, discarded=discarded
    )
    assert counters.in_queues == 0
    await successor.close()


def test_the_turns_of_a_loop_continue_those_of_the_worker_before(workers: Workers) -> None:
    counted = workers.tallies[0].loop
    for cpu, seconds, longest in ((2.0, 2.0, 1.0), (0.5, 2.5, 1.0)):
        turns = Turns(counted)
        turns.begin(0.0, cpu - (1.05 if cpu > 1 else 0.0))
        turns.tick(2.0, cpu)
        assert (counted.cpu_seconds, round(turns.longest, 6)) == (seconds, longest)


def test_the_figures_of_all_labels_fit_in_the_page(workers: Workers) -> None:
    counters = TopicCounters(page=workers.pages[0])
    for number in range(LABELS + 1):
        name = TopicName("n" * 249, f"{number:04}".ljust(249, "t"))
        counters.add_published(name, 2**62)
        counters.add_polled(name, 2**62)
    counters.save()
    assert len(saved_in(workers.pages[0]).published) == LABELS + 1
    assert len(workers.pages[0].read()) < PAGE_BYTES / 2


def test_with_other_workers_a_topic_keeps_its_label_so_that_no_sum_decreases(
    workers: Workers,
) -> None:
    counters = TopicCounters(page=workers.pages[0])
    for number in range(LABELS):
        counters.add_published(TopicName("ns", f"t{number}"), 1)
    counters.add_published(TopicName("ns", "busy"), 1000)
    shown = counters.published.shown()
    assert (len(shown), shown["ns/t0"], shown[OTHER]) == (LABELS + 1, 1, 1000)


def test_a_successor_counts_messages_that_were_not_saved_by_topic_as_those_of_other_topics(
    workers: Workers,
) -> None:
    worker, name = Worker(workers, 0), TopicName("ns", "t")

    def begin() -> TopicCounters:
        return TopicCounters(worker.tallies.topics, worker.page)

    first = begin()
    first.add_published(name, 5)
    first.add_polled(name, 50)
    first.save()
    first.add_published(name, 2)
    first.add_polled(name, 20)
    for _ in range(2):  # the second one dies before it saves
        successor = begin()
        assert successor.published.shown() == {"ns/t": 5, OTHER: 2}
        assert successor.polled.shown() == {"ns/t": 50, OTHER: 20}
    successor.add_published(name, 1)
    successor.save()
    assert saved_in(workers.pages[0]) == ByTopic({"ns/t": 6, OTHER: 2}, {"ns/t": 50, OTHER: 20})
    assert begin().published.shown() == {"ns/t": 6, OTHER: 2}


async def test_figures_by_topic_are_saved_once_per_second(workers: Workers) -> None:
    import asyncio

    clock = VirtualClock()
    counters = TopicCounters(page=workers.pages[0])
    saving = asyncio.create_task(counters.keep_saved(clock.clock))
    counters.add_polled(TopicName("ns", "t"), 4)
    await asyncio.sleep(0)
    assert saved_in(workers.pages[0]).polled == {}
    clock.move(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert saved_in(workers.pages[0]).polled == {"ns/t": 4, OTHER: 0}
    saving.cancel()


def test_alone_there_is_nothing_to_share() -> None:
    worker = Worker.alone()
    assert (worker.page, worker.workers.pages) == (None, [])
    assert SYSTEM.monotonic() >= worker.workers.started

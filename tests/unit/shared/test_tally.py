"""Counters with fixed places in memory."""

import mmap

from oplogd.ingest.counters import IngestCounters
from oplogd.watch.turns import LoopTally
from oplogd.workers.tallies import Tallies


def test_counters_in_one_memory_are_the_same_ones() -> None:
    memory = mmap.mmap(-1, 4096)
    one, other = IngestCounters.from_buffer(memory), IngestCounters.from_buffer(memory)
    one.received += 3
    one["error"] += 1
    one.commit_seconds.observe(0.2)
    cell = one.cell("stale")
    cell.value += 7
    assert other == IngestCounters(received=3, error=1, stale=7)
    assert other.commit_seconds.count == 1
    assert repr(other) == "IngestCounters(received=3, error=1, stale=7)"


def test_all_counters_are_summed_and_the_longest_turn_is_the_longest_of_both() -> None:
    one, other = Tallies(), Tallies()
    for each, times in ((one, 1), (other, 10)):
        each.ingest.received = times
        each.ingest.commit_seconds.observe(0.2 * times)
        each.requests_refused.bodies.no_room = 2 * times
        each.loop = LoopTally(1.5 * times, 7.0 / times)
    one.include(other)
    assert one.ingest.received == 11
    assert one.ingest.commit_seconds.buckets()["+Inf"] == 2
    assert one.ingest.commit_seconds.buckets()["0.25"] == 1
    assert round(one.ingest.commit_seconds.sum, 6) == 2.2
    assert one.requests_refused.bodies.no_room == 22
    assert (one.loop.cpu_seconds, one.loop.longest_turn_seconds) == (16.5, 7.0)
    assert other.ingest.received == 10

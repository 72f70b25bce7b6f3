"""The figures of leases: what an agent knows from the polls that it answers."""

from oplogd.store.leases import Lease
from oplogd.watch.lease_counters import LeaseCounters, LeaseCounts

TTL_MS = 10_000


def lease(holder: str | None, term: int, name: str = "l") -> Lease:
    return Lease(name, holder, term, TTL_MS, "")


class Bench:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.counters = LeaseCounters(lambda: self.seconds)

    def poll(self, holder: str, found: Lease) -> None:
        self.counters.add_poll(holder, found)


def test_a_lease_is_held_until_it_expires_or_is_released() -> None:
    bench = Bench()
    for name in ("a", "b", "c"):
        bench.poll("h", lease("h", 1, name))
        bench.seconds += 4
    assert bench.counters.counts == LeaseCounts(2, 3, 3, 0)
    bench.poll("h", lease("h", 1, "b"))
    bench.seconds += 9
    assert bench.counters.counts.held == 1
    bench.counters.add_release("b")
    bench.counters.add_release("unknown")
    assert bench.counters.counts == LeaseCounts(0, 4, 3, 0)


def test_each_term_of_a_holder_counts_once() -> None:
    bench = Bench()
    for term in (1, 1, 2, 2, 1, 2):
        bench.poll("h", lease("h", term))
    assert bench.counters.counts.terms == 4
    bench.poll("other", lease("h", 9))
    bench.poll("h", lease(None, 9))
    assert bench.counters.counts == LeaseCounts(1, 8, 4, 0)


def test_a_refused_publish_counts() -> None:
    bench = Bench()
    bench.counters.add_stale_publish()
    assert bench.counters.counts == LeaseCounts(0, 0, 0, 1)

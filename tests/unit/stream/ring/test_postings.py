"""Postings without a view are kept for consumers that come back, up to a number and a size."""

import tracemalloc
from collections.abc import Iterable

from oplogd.model.event_id import Mark
from oplogd.stream.ring import postings
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.ring import Ring
from tests.kits.models.operations import operation
from tests.unit.stream.rings import follow_on, make_ring

KB = 1024


def visit(ring: Ring, parents: Iterable[str], types: Iterable[str] = ()) -> None:
    """Connect a consumer with this filter and disconnect it."""
    ring.release(ring.view(Filter(frozenset(types), frozenset(parents))))


def kept(ring: Ring) -> set[str]:
    return {posting.key[1] for posting in ring.index.idle}


def test_many_short_names_are_kept() -> None:
    ring = make_ring()
    for number in range(1_000):
        visit(ring, [f"parent-{number}"])
    assert len(kept(ring)) == 1_000


def test_the_oldest_of_too_many_names_are_forgotten() -> None:
    ring = make_ring()
    for number in range(postings.MAX_IDLE + 3):
        visit(ring, [str(number)])
    assert len(ring.index.idle) == postings.MAX_IDLE
    assert kept(ring).isdisjoint({"0", "1", "2"})


def test_long_names_are_kept_up_to_a_size() -> None:
    ring = make_ring()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2_000):
            visit(ring, [f"{number:060000}"])
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0 < len(ring.index.idle) < 2_000
    assert f"{1_999:060000}" in kept(ring)
    assert taken < postings.MAX_IDLE_BYTES * 1.1


def test_names_of_several_bytes_per_character_count_by_their_memory() -> None:
    ring = make_ring()
    for number in range(300):
        visit(ring, [f"{number:09000}\N{OCTOPUS}"])
    assert 36_000 * len(ring.index.idle) < postings.MAX_IDLE_BYTES


def test_a_consumer_that_comes_back_makes_room() -> None:
    ring = make_ring()
    long = ["x" * 60 * KB, "y" * 60 * KB]
    for _ in range(1_000):
        visit(ring, long, ["video"])
    assert ring.index.idle_bytes < 200 * KB
    for parent in long:
        ring.view(Filter(frozenset({"video"}), frozenset({parent})))
    assert ring.index.idle_bytes == 0


def test_a_restart_forgets_what_is_idle() -> None:
    ring = make_ring()
    visit(ring, ["x" * 60 * KB])
    ring.restart(Mark(7, 7))
    assert (len(ring.index.idle), ring.index.idle_bytes) == (0, 0)


def test_a_posting_that_is_kept_finds_what_came_meanwhile() -> None:
    ring = make_ring()
    visit(ring, ["a"])
    visit(ring, ["x" * 60 * KB])
    follow_on(ring, [operation(parents=["a"])])
    assert ring.view(Filter(parents=frozenset({"a"}))).remaining(0)[0] == 1

"""The ring's bound in bytes counts the memory of its entries, for every kind of entry."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from tests.kits.models.operations import entry, operation

# Many views of few entries take as much as many entries.
BYTES = {"with many listed parents": 600_000}
PARENTS = [f"p{number}" for number in range(1000)]

SHAPES: dict[str, tuple[Callable[[int], Operation], Filter]] = {
    "short": (lambda n: operation(id_=str(n)), Filter()),
    "of a listed type": (lambda n: operation(id_=str(n)), Filter(frozenset({"video"}))),
    "with a listed parent": (
        lambda n: operation(id_=str(n), parents=["p1"]),
        Filter(parents=frozenset({"p1"})),
    ),
    "long": (lambda n: operation(id_=str(n), parents=["x" * 20_000]), Filter()),
    "with many parents": (
        lambda n: operation(id_=str(n), parents=PARENTS),
        Filter(frozenset({"video"})),
    ),
    "with many listed parents": (
        lambda n: operation(id_=str(n), parents=PARENTS),
        Filter(frozenset({"video"}), frozenset(PARENTS)),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_the_ring_takes_no_more_memory_than_it_counts(shape: str) -> None:
    make, filter_ = SHAPES[shape]
    most = BYTES.get(shape, 200_000)
    ring = Ring(Framer().route, 10**9, most, lambda waiters: None)
    ring.restart(Mark(0, 0))
    ring.view(filter_)
    offset = 0
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        counted = 0
        while (
            counted < ring.window.size or offset < 100
        ):  # until it drops the first entries, and then as much again
            counted = ring.window.size
            for _ in range(max(1, offset // 2)):
                offset += 1
                ring.append([entry(offset, 1_700_000_000_000 + offset, make(offset))])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert most // 2 < ring.window.size <= most
    assert len(ring.window) < offset, "nothing was dropped"
    assert ring.window.size // 2 < taken <= ring.window.size * 1.05

"""Postings without a view are kept for consumers that come back, up to a number and a size."""

import tracemalloc
from collections.abc import Iterable

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation, decode_data
from oplogd.stream.ring import index
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.keys import is_posted_whole, keys_of
from oplogd.stream.ring.ring import Ring
from tests.kits.models.operations import operation
from tests.unit.stream.rings import follow_on, make_ring

KB = 1024


def visit(ring: Ring, parents: Iterable[str], types: Iterable[str] = ()) -> None:
    """Connect a consumer with this filter and disconnect it."""
    ring.release(ring.view(Filter(frozenset(types), frozenset(parents))))


def kept(ring: Ring) -> set[str]:
    return {parent for posting in ring.index.idle for parent in posting.key.parents}


def test_many_short_names_are_kept() -> None:
    ring = make_ring()
    for number in range(1_000):
        visit(ring, [f"parent-{number}"])
    assert len(kept(ring)) == 1_000


def test_the_oldest_of_too_many_names_are_forgotten() -> None:
    ring = make_ring()
    for number in range(index.MAX_IDLE + 3):
        visit(ring, [str(number)])
    assert len(ring.index.idle) == index.MAX_IDLE
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
    assert taken < index.MAX_IDLE_BYTES * 1.1


def test_names_of_several_bytes_per_character_count_by_their_memory() -> None:
    ring = make_ring()
    for number in range(300):
        visit(ring, [f"{number:09000}\N{OCTOPUS}"])
    assert 36_000 * len(ring.index.idle) < index.MAX_IDLE_BYTES


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


@pytest.mark.parametrize(
    "other",
    [
        operation("update", "a", "1", ["x", "y"]),
        operation("insert", "b", "1", ["x", "y"]),
        operation("insert", "a", "2", ["x", "y"]),
        operation("insert", "a", "1", ["x"]),
        operation("insert", "a", "1", ["y", "z"]),
    ],
)
def test_an_operation_that_lacks_one_value_touches_no_posting(other: Operation) -> None:
    """Consumers cost nothing for an operation of others, whichever set tells it apart."""
    ring = make_ring()
    sets = {
        "types": frozenset("a"),
        "parents": frozenset("x"),
        "within": frozenset("y"),
        "ids": frozenset("1"),
        "events": frozenset({"insert"}),
    }
    whole = Filter(**sets)  # type: ignore[arg-type]
    views = [ring.view(whole)]
    for left_out in sets:
        partial = whole._replace(**{left_out: frozenset()})  # type: ignore[arg-type]
        data = decode_data(other.data.decode())
        if not partial.matches(other.event, data):
            views.append(ring.view(partial))
    follow_on(ring, [other])
    assert [posting for view in views for posting in view.postings if posting.offsets] == []
    assert len(views) >= 4
    follow_on(ring, [operation("insert", "a", "1", ["z", "y", "x"])])
    assert all(view.take(0, 10_000).entries == 1 for view in views)


def test_two_sets_with_the_same_parent_are_posted_by_it_once() -> None:
    sets = {"parents": frozenset("xy"), "within": frozenset("yz")}
    found = {key.parents for key in keys_of(Filter(**sets))}  # type: ignore[arg-type]
    assert found == {("x", "y"), ("x", "z"), ("y",), ("y", "z")}


def test_with_too_many_combinations_the_most_selective_set_is_posted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.ring.keys._MAX_PAIRS", 5)
    two, three = frozenset("ab"), frozenset("abc")
    every = Filter(types=two, parents=three, within=two, ids=two, events=frozenset({"delete"}))
    assert {(key.id, key.parents) for key in keys_of(every)} == {
        ("a", ("a",)), ("a", ("b",)), ("b", ("a",)), ("b", ("b",)),
    }  # fmt: skip
    assert {key.event for key in keys_of(every)} == {"delete"}
    assert not is_posted_whole(every)
    assert is_posted_whole(every._replace(types=frozenset(), parents=frozenset()))


def test_no_entry_of_an_index_outlives_its_postings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.stream.ring.index.MAX_IDLE", 0)
    ring = make_ring()
    one, two = frozenset("a"), frozenset("ab")
    views = [
        ring.view(Filter(one, two, within=frozenset("c"), ids=one, events=frozenset({"delete"}))),
        ring.view(Filter(one, two)),
        ring.view(Filter(ids=one)),
    ]
    for view in views:
        ring.release(view)
    assert ring.index._roots == {}


def test_a_posting_that_is_kept_finds_what_came_meanwhile() -> None:
    ring = make_ring()
    visit(ring, ["a"])
    visit(ring, ["x" * 60 * KB])
    follow_on(ring, [operation(parents=["a"])])
    assert ring.view(Filter(parents=frozenset({"a"}))).remaining(0)[0] == 1

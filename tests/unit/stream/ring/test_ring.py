"""The ring: views, bounds, shared slices and postings."""

import gc

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.postings import Posting
from oplogd.stream.ring.window import ENTRY_BYTES
from tests.kits.models.operations import entry, numbered, operation
from tests.unit.stream.rings import HUGE, Sleeper, drain, follow_on, frame, make_ring


def test_a_take_holds_at_least_one_operation_however_long() -> None:
    ring = make_ring()
    view = ring.view(Filter())
    entries = follow_on(ring, [operation(id_="x" * 1000), operation()])
    assert view.take(0, 1) == (frame(entries[0]), 1, Mark(1, 1001))


def test_a_take_past_the_last_passing_operation_reaches_the_head() -> None:
    ring = make_ring()
    view = ring.view(Filter(frozenset({"rare"})))
    (rare, *_) = follow_on(ring, [operation(type_="rare"), *numbered(5)])
    assert view.take(0, HUGE) == (frame(rare), 1, Mark(6, 1006))


def test_a_view_made_late_reads_what_the_ring_already_held() -> None:
    ring = make_ring()
    entries = follow_on(ring, numbered(3))
    view = ring.view(Filter(frozenset({"video"})))
    entries += follow_on(ring, numbered(3, first=4))
    assert drain(view, 0, max_bytes=1) == b"".join(map(frame, entries))


def test_a_view_of_rare_operations_reaches_further_back_than_the_ring() -> None:
    ring = make_ring(max_entries=4)
    view = ring.view(Filter(frozenset({"rare"})))
    follow_on(ring, numbered(100))
    assert ring.base == 96
    assert view.covers(0)
    assert view.take(0, HUGE) == (b"", 0, Mark(100, 1100))


def test_the_entries_before_a_damaged_one_are_held() -> None:
    ring = make_ring()
    view = ring.view(Filter(frozenset({"video"})))
    entries = [entry(number, 1000 + number, each) for number, each in enumerate(numbered(5), 1)]
    entries[3] = entries[3]._replace(data="{")
    with pytest.raises(StoreUnavailableError, match="damaged"):
        ring.append(entries)
    assert ring.head == Mark(3, 1003)
    assert drain(view, 0, max_bytes=HUGE) == b"".join(map(frame, entries[:3]))


def test_the_bounds_hold_in_operations() -> None:
    ring = make_ring(max_entries=16)
    for number in range(100):
        follow_on(ring, numbered(1, first=number))
        assert len(ring.window) <= 16


def test_the_bounds_hold_in_bytes_to_the_byte() -> None:
    size = len(frame(entry(1, 1001, numbered(1, first=1000)[0]))) + ENTRY_BYTES
    ring = make_ring(max_bytes=8 * size)
    for number in range(100):
        follow_on(ring, numbered(1, first=1000 + number))
        assert ring.window.size <= 8 * size
    follow_on(ring, numbered(20, first=2000))
    assert ring.window.size == 8 * size


def test_the_last_operation_stays_even_if_it_is_over_the_bound() -> None:
    ring = make_ring(max_bytes=10)
    view = ring.view(Filter())
    entries = follow_on(ring, numbered(3))
    assert ring.base == 2
    assert view.take(2, 1) == (frame(entries[2]), 1, Mark(3, 1003))


def test_consumers_with_equal_filters_share_a_view_and_its_bytes() -> None:
    ring = make_ring()
    view = ring.view(Filter(frozenset({"video"})))
    assert ring.view(Filter(frozenset({"video"}))) is view
    assert ring.view(Filter()) is not view
    follow_on(ring, numbered(10))
    assert view.take(0, HUGE)[0] is view.take(0, HUGE)[0]


def test_a_shared_slice_holds_new_operations_and_nothing_of_another_log() -> None:
    ring = make_ring()
    view = ring.view(Filter())
    ring.view(Filter())
    [first] = follow_on(ring, numbered(1, 0))
    assert view.take(0, HUGE)[0] == frame(first)
    [second] = follow_on(ring, numbered(1, 1))
    assert view.take(0, HUGE) == (frame(first) + frame(second), 2, ring.head)
    ring.restart(Mark(0, 0))
    assert view.take(0, HUGE) == (b"", 0, ring.head)


def test_consumers_that_catch_up_at_different_places_keep_few_joined_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.ring.view._CACHED_BYTES", 10_000)
    ring = make_ring()
    types = [frozenset({"video"}), frozenset({"video", "rare"})]
    views = [ring.view(Filter(types[number % 2])) for number in range(4)]
    follow_on(ring, numbered(200))
    for after in range(200):
        for view in views:
            view.take(after, 1000)
    kept = list(ring.slices)
    assert sum(len(taken.chunk) + 256 for taken in kept) == ring.slices.size
    assert 5_000 < ring.slices.size <= 10_000


def test_a_consumer_alone_keeps_no_joined_slices() -> None:
    ring = make_ring()
    view = ring.view(Filter())
    follow_on(ring, numbered(10))
    view.take(0, HUGE)
    assert not len(ring.slices)


def test_a_restart_wakes_every_consumer_and_covers_no_earlier_entry() -> None:
    ring = make_ring()
    follow_on(ring, numbered(5))
    view = ring.view(Filter(frozenset({"rare"})))
    sleeper = Sleeper()
    view.waiting[sleeper] = None
    epoch = ring.epoch
    ring.restart(Mark(9, 2000))
    assert sleeper.woken == 1
    assert ring.epoch == epoch + 1
    assert not view.covers(8)
    assert view.covers(9)


def test_each_sleeper_is_woken_once_for_a_batch() -> None:
    ring = make_ring()
    both = ring.view(Filter(parents=frozenset({"x", "y"})))
    sleeper = Sleeper()
    both.waiting[sleeper] = None
    entries = follow_on(
        ring, [operation(parents=["x", "y"]), operation(parents=["y"]), operation()]
    )
    assert sleeper.woken == 1
    assert drain(both, 0) == b"".join(map(frame, entries[:2]))


def test_an_operation_that_names_a_parent_twice_is_taken_once() -> None:
    ring = make_ring()
    view = ring.view(Filter(parents=frozenset({"x", "y"})))
    [made] = follow_on(ring, [operation(parents=["x", "x", "y", "x"])])
    assert drain(view, 0) == frame(made)
    assert view.remaining(0) == (1, 1001)


def test_a_consumer_that_comes_back_finds_its_values_still_posted() -> None:
    ring = make_ring()
    rare = Filter(frozenset({"rare"}), frozenset({"x"}))
    ring.release(ring.view(rare))
    entries = follow_on(ring, [*numbered(5), operation(type_="rare", parents=["x"])])
    view = ring.view(rare)
    assert view.start == 0, "it would have to look at every operation since"
    assert view.take(0, HUGE) == (frame(entries[5]), 1, ring.head)


def test_postings_without_a_consumer_are_dropped_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.ring.index.MAX_IDLE", 2)
    ring = make_ring()
    for name in ("a", "b", "c", "d"):
        ring.release(ring.view(Filter(frozenset({name}))))
    stays = ring.view(Filter(frozenset({"c"})))
    assert [posting.key.type for posting in ring.index] == ["c", "d"]
    assert next(iter(stays.postings)).views


def test_a_dropped_posting_leaves_nothing_to_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.ring.index.MAX_IDLE", 0)
    ring = make_ring()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(object_, Posting) for object_ in gc.get_objects())
        ring.release(ring.view(Filter(frozenset({"a"}), frozenset({"x", "y"}))))
        assert sum(isinstance(object_, Posting) for object_ in gc.get_objects()) == before
    finally:
        gc.enable()


def test_an_operation_costs_the_same_for_any_number_of_filters_that_list_its_type() -> None:
    """Counts the postings that an append changes; measures no time."""
    for filters_ in (1, 1000):
        ring = make_ring()
        views = [
            ring.view(Filter(frozenset({"video", f"own{number}"}))) for number in range(filters_)
        ]
        follow_on(ring, numbered(10))
        assert [posting.key.type for posting in ring.index if posting.offsets] == ["video"]
        assert (
            len({id(posting) for view in views for posting in view.postings if posting.offsets})
            == 1
        )
        assert all(drain(view, 0).count(b"\n\n") == 10 for view in views)

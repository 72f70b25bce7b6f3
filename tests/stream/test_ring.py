"""The ring against a plain list: whoever takes and takes again gets exactly what passes, whenever they came."""

import gc
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.event_id import Mark
from oplogd.operation import Operation, decode_data
from oplogd.store import Entry
from oplogd.stream.filters import Filter
from oplogd.stream.frames import Framer
from oplogd.stream.postings import MAX_IDLE, Posting, is_posted_whole
from oplogd.stream.ring import Ring, View, Waiter
from oplogd.stream.window import ENTRY_BYTES
from tests.operations import entry, numbered, operation, operations
from tests.properties import examples

HUGE = 10**9


def wake_all(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


def make_ring(max_entries: int = HUGE, max_bytes: int = HUGE, head: Mark = Mark(0, 0)) -> Ring:
    ring = Ring(Framer(), max_entries, max_bytes, wake_all)
    ring.restart(head)
    return ring


def follow_on(ring: Ring, made: list[Operation]) -> list[Entry]:
    """Append these as the next entries of the log."""
    first = ring.head.offset + 1
    entries = [entry(offset, 1000 + offset, op) for offset, op in enumerate(made, first)]
    ring.append(entries)
    return entries


def frame(given_: Entry) -> bytes:
    return Framer().entry(given_, decode_data(given_.data))


def passing(entries: list[Entry], filter_: Filter, after: int = 0) -> list[bytes]:
    return [frame(e) for e in entries if e.offset > after and filter_.matches(decode_data(e.data))]


def drain(view: View, after: int, max_bytes: int = HUGE) -> bytes:
    """Take until the head is reached."""
    taken = b""
    head = view.ring.head.offset
    while after < head:
        chunk, count, reached = view.take(after, max_bytes)
        assert reached.offset > after
        assert chunk.count(b"\n\n") == count
        assert count <= 1 or len(chunk) <= max_bytes
        taken += chunk
        after = reached.offset
    return taken


class Sleeper:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Reader(NamedTuple):
    """A consumer of the model: ``got`` is all that it was given since ``start``."""

    view: View
    start: int
    place: list[int]
    got: list[bytes]
    sleeper: Sleeper


class Append(NamedTuple):
    operations: list[Operation]


class Join(NamedTuple):
    """A reader from somewhere between the ring's base (0) and the head (1)."""

    filter: Filter
    at: float


class Leave(NamedTuple):
    reader: int


class Take(NamedTuple):
    reader: int
    max_bytes: int


class Restart(NamedTuple):
    skipped: int


filters = st.builds(
    Filter,
    st.sampled_from([frozenset[str](), frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"})]),
    st.sampled_from(
        [
            frozenset[str](),
            frozenset[str](),
            frozenset({"x"}),
            frozenset({"x", "y"}),
            frozenset({"y", "z"}),
        ]
    ),
)
appends = st.builds(Append, st.lists(operations(), max_size=6))
takes = st.builds(Take, st.integers(0, 9), st.sampled_from([1, 150, 400, 1000, HUGE]))
Action = Append | Join | Leave | Take | Restart
actions: st.SearchStrategy[Action] = st.one_of(
    appends,
    appends,
    takes,
    takes,
    st.builds(Join, filters, st.floats(0, 1)),
    st.builds(Leave, st.integers(0, 9)),
    st.builds(Restart, st.integers(0, 3)),
)


class Model:
    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.ring = make_ring(max_entries, max_bytes)
        self.log: list[Entry] = []
        self.readers: list[Reader] = []

    def act(self, action: Action) -> None:
        if isinstance(action, Append):
            self.append(action.operations)
        elif isinstance(action, Join):
            base, head = self.ring.base, self.ring.head.offset
            start = base + round(action.at * (head - base))
            self.readers.append(
                Reader(self.ring.view(action.filter), start, [start], [], Sleeper())
            )
        elif isinstance(action, Restart):
            head = self.ring.head.offset + action.skipped
            self.ring.restart(Mark(head, 1000 + head))
            self.log = []
            for reader in self.readers:
                self.ring.release(reader.view)
            self.readers = []
        elif self.readers:
            number = action.reader % len(self.readers)
            if isinstance(action, Leave):
                self.ring.release(self.readers.pop(number).view)
            else:
                self.take(self.readers[number], action.max_bytes)

    def append(self, made: list[Operation]) -> None:
        for reader in self.readers:
            reader.view.waiting[reader.sleeper] = None
            reader.sleeper.woken = 0
        entries = follow_on(self.ring, made)
        self.log += entries
        for reader in self.readers:
            concerned = bool(passing(entries, reader.view.filter))
            if is_posted_whole(reader.view.filter):
                assert reader.sleeper.woken == concerned, (
                    "wakes those whom an operation concerns, and once"
                )
            assert concerned <= reader.sleeper.woken <= 1
            reader.view.waiting.pop(reader.sleeper, None)

    def take(self, reader: Reader, max_bytes: int) -> None:
        place = reader.place[0]
        if not reader.view.covers(place):
            assert place < self.ring.base
            return
        if place == self.ring.head.offset:
            return
        expected = passing(self.log, reader.view.filter, place)
        chunk, count, reached = reader.view.take(place, max_bytes)
        assert chunk == b"".join(expected[:count]), "not what comes next"
        assert count <= 1 or len(chunk) <= max_bytes
        assert place < reached.offset <= self.ring.head.offset
        assert (
            passing([e for e in self.log if e.offset <= reached.offset], reader.view.filter, place)
            == expected[:count]
        )
        if reached.offset < self.ring.head.offset:
            assert reached.ms == 1000 + reached.offset
        reader.place[0] = reached.offset
        reader.got.extend(expected[:count])

    def check(self) -> None:
        ring = self.ring
        window = ring.window
        held = len(window)
        indices = range(window.after(0), window.end)
        assert [window.mark(index).offset for index in indices] == list(
            range(ring.base + 1, ring.head.offset + 1)
        )
        assert held == len(indices)
        assert held <= ring.max_entries
        frames = sum(len(window.frames[index]) for index in indices)
        assert window.size >= frames + held * ENTRY_BYTES
        assert window.size <= ring.max_bytes or held == 1
        posted = {offset for posting in ring._index for offset in posting.run(posting.first)}
        assert all(offset > ring.base for offset in posted), "postings leave with their entries"
        for reader in self.readers:
            for after in range(ring.head.offset + 1):
                covered = reader.view.covers(after)
                assert covered or after < ring.base, "what is in the ring is covered"
                if covered and ring.head.offset - len(self.log) <= after:
                    expected = b"".join(passing(self.log, reader.view.filter, after))
                    assert drain(reader.view, after) == expected, (
                        "covered, but not all of it is there"
                    )
                    self.check_missing(reader.view, after)

    def check_missing(self, view: View, after: int) -> None:
        left = [
            e for e in self.log if e.offset > after and view.filter.matches(decode_data(e.data))
        ]
        count, ms = view.missing(after)
        if after >= view.start and is_posted_whole(view.filter):
            assert (count, ms) == (len(left), left[0].ms if left else 0)
        else:
            assert len(left) <= count <= len(self.log)
        assert not left or view.last >= left[-1].offset


class Limits(NamedTuple):
    """When the ring goes another way to the same result: 0 means always or never."""

    cheap: int
    """Entries looked at one by one for each posting before the postings are merged."""
    piece: int
    pairs: int
    idle: int
    cached: int

    def set(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("oplogd.stream.ring._CHEAP", self.cheap)
        patch.setattr("oplogd.stream.ring._PIECE", self.piece)
        patch.setattr("oplogd.stream.ring._CACHED_BYTES", self.cached)
        patch.setattr("oplogd.stream.postings._MAX_PAIRS", self.pairs)
        patch.setattr("oplogd.stream.postings.MAX_IDLE", self.idle)
        for module in ("postings", "window"):
            patch.setattr(f"oplogd.stream.{module}._COMPACT", 2)


@examples(8)
@given(
    st.sampled_from([1, 2, 5, 8, 16, HUGE]),
    st.sampled_from([1, 600, 2000, HUGE]),
    st.builds(
        Limits,
        cheap=st.sampled_from([0, 1, 8]),
        piece=st.sampled_from([1, 3, HUGE]),
        pairs=st.sampled_from([0, 2, HUGE]),
        idle=st.sampled_from([0, 1, HUGE]),
        cached=st.sampled_from([0, 600, HUGE]),
    ),
    st.lists(actions, max_size=40),
)
def test_repeated_takes_give_what_passes_of_a_plain_list(
    max_entries: int, max_bytes: int, limits: Limits, plan: list[Action]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limits.set(patch)
        play(Model(max_entries, max_bytes), plan)


def play(model: Model, plan: list[Action]) -> None:
    for action in plan:
        model.act(action)
    model.check()
    for reader in model.readers:
        while reader.view.covers(reader.place[0]) and reader.place[0] < model.ring.head.offset:
            model.take(reader, 300)
        if reader.view.covers(reader.place[0]):
            assert reader.got == passing(model.log, reader.view.filter, reader.start)
        model.ring.release(reader.view)
    assert not model.ring._views
    postings = list(model.ring._index)
    assert not any(posting.views for posting in postings)
    assert set(postings) == set(model.ring._index._idle)
    assert len(postings) <= MAX_IDLE


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


def test_a_shared_slice_holds_what_was_appended_since_and_nothing_of_another_log() -> None:
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
    monkeypatch.setattr("oplogd.stream.ring._CACHED_BYTES", 10_000)
    ring = make_ring()
    types = [frozenset({"video"}), frozenset({"video", "rare"})]
    views = [ring.view(Filter(types[number % 2])) for number in range(4)]
    follow_on(ring, numbered(200))
    for after in range(200):
        for view in views:
            view.take(after, 1000)
    kept = ring.slices._taken
    assert sum(len(taken.chunk) for taken in kept.values()) == ring.slices._bytes - len(kept) * 256
    assert 5_000 < ring.slices._bytes <= 10_000


def test_a_consumer_alone_keeps_no_joined_slices() -> None:
    ring = make_ring()
    view = ring.view(Filter())
    follow_on(ring, numbered(10))
    view.take(0, HUGE)
    assert not len(ring.slices)


def test_a_restart_wakes_everyone_and_covers_nothing_of_before() -> None:
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
    assert view.missing(0) == (1, 1001)


def test_a_consumer_that_comes_back_finds_its_values_still_posted() -> None:
    ring = make_ring()
    rare = Filter(frozenset({"rare"}), frozenset({"x"}))
    ring.release(ring.view(rare))
    entries = follow_on(ring, [*numbered(5), operation(type_="rare", parents=["x"])])
    view = ring.view(rare)
    assert view.start == 0, "it would have to look at every operation since"
    assert view.take(0, HUGE) == (frame(entries[5]), 1, ring.head)


def test_values_that_nobody_lists_any_more_are_forgotten_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.postings.MAX_IDLE", 2)
    ring = make_ring()
    for name in ("a", "b", "c", "d"):
        ring.release(ring.view(Filter(frozenset({name}))))
    stays = ring.view(Filter(frozenset({"c"})))
    assert [posting.key[0] for posting in ring._index] == ["c", "d"]
    assert next(iter(stays.postings)).views


def test_a_value_that_is_forgotten_leaves_nothing_to_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.postings.MAX_IDLE", 0)
    ring = make_ring()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(object_, Posting) for object_ in gc.get_objects())
        ring.release(ring.view(Filter(frozenset({"a"}), frozenset({"x", "y"}))))
        assert sum(isinstance(object_, Posting) for object_ in gc.get_objects()) == before
    finally:
        gc.enable()


def test_an_operation_costs_the_same_however_many_filters_list_its_type() -> None:
    """The postings that an append changes are counted, no time is measured."""
    for filters_ in (1, 1000):
        ring = make_ring()
        views = [
            ring.view(Filter(frozenset({"video", f"own{number}"}))) for number in range(filters_)
        ]
        follow_on(ring, numbered(10))
        assert [posting.key[0] for posting in ring._index if posting.offsets] == ["video"]
        assert (
            len({id(posting) for view in views for posting in view.postings if posting.offsets})
            == 1
        )
        assert all(drain(view, 0).count(b"\n\n") == 10 for view in views)

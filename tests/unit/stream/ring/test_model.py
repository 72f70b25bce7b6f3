"""The ring against a plain list: any number of takes returns exactly the entries that pass."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import TooManyShardsError
from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation, decode_data
from oplogd.store import Entry
from oplogd.stream.ring import index
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.keys import is_posted_whole
from oplogd.stream.ring.view import View
from oplogd.stream.ring.window import ENTRY_BYTES
from tests.kits.models.operations import operations
from tests.kits.models.properties import examples
from tests.kits.models.shards import MOST, shards
from tests.unit.stream.rings import HUGE, Sleeper, drain, follow_on, make_ring, passing


class Reader(NamedTuple):
    """A consumer of the model. ``got``: everything taken since ``start``."""

    view: View
    start: int
    place: list[int]
    got: list[bytes]
    sleeper: Sleeper


class Append(NamedTuple):
    operations: list[Operation]


class Join(NamedTuple):
    """Add a reader at a place between the ring's base (0) and its head (1)."""

    filter: Filter
    at: float


class Leave(NamedTuple):
    reader: int


class Take(NamedTuple):
    reader: int
    max_bytes: int


class Restart(NamedTuple):
    skipped: int


def subsets(*values: str) -> st.SearchStrategy[frozenset[str]]:
    """Return empty sets, half of the time, and others."""
    return st.just(frozenset[str]()) | st.frozensets(st.sampled_from(values), max_size=2)


filters = st.builds(
    Filter,
    subsets("a", "b"),
    subsets("x", "y", "z"),
    committed=st.just(False),
    within=subsets("x", "y", "z"),
    ids=subsets("1", "2"),
    events=subsets("insert", "update", "delete"),
    shard=shards,
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
    def __init__(self, max_entries: int, max_bytes: int, totals: int) -> None:
        self.totals = totals
        self.ring = make_ring(max_entries, max_bytes)
        self.log: list[Entry] = []
        self.readers: list[Reader] = []

    def act(self, action: Action) -> None:
        if isinstance(action, Append):
            self.append(action.operations)
        elif isinstance(action, Join):
            base, head = self.ring.base, self.ring.head.offset
            start = base + round(action.at * (head - base))
            try:
                view = self.ring.view(action.filter)
            except TooManyShardsError:
                self.check_full(action.filter)
            else:
                self.readers.append(Reader(view, start, [start], [], Sleeper()))
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

    def check_full(self, filter_: Filter) -> None:
        totals = {each.view.filter.shard.total for each in self.readers if each.view.filter.shard}
        assert len(totals) == self.totals
        assert filter_.shard
        assert filter_.shard.total not in totals

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
                    "wakes consumers of the operations once, and no others"
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
        assert chunk == b"".join(expected[:count]), "not the next operations"
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
        posted = {offset for posting in ring.index for offset in posting.run(posting.first)}
        assert all(offset > ring.base for offset in posted), "a posting of an entry that has left"
        for reader in self.readers:
            for after in range(ring.head.offset + 1):
                covered = reader.view.covers(after)
                assert covered or after < ring.base, "the ring is not covered"
                if covered and ring.head.offset - len(self.log) <= after:
                    expected = b"".join(passing(self.log, reader.view.filter, after))
                    assert drain(reader.view, after) == expected, (
                        "covered, but not all of it is there"
                    )
                    self.check_remaining(reader.view, after)

    def check_remaining(self, view: View, after: int) -> None:
        left = [
            e
            for e in self.log
            if e.offset > after and view.filter.matches(e.event, decode_data(e.data))
        ]
        count, ms = view.remaining(after)
        if after >= view.start and is_posted_whole(view.filter):
            assert (count, ms) == (len(left), left[0].ms if left else 0)
        else:
            assert len(left) <= count <= len(self.log)
        assert not left or view.last >= left[-1].offset


class Limits(NamedTuple):
    """The limits at which the ring takes another way to the same result."""

    # Entries looked at one by one for each posting before the postings are merged.
    cheap: int
    piece: int
    pairs: int
    idle: int
    cached: int
    totals: int

    def set(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("oplogd.stream.ring.view.CHEAP", self.cheap)
        patch.setattr("oplogd.stream.ring.view.PIECE", self.piece)
        patch.setattr("oplogd.stream.ring.view._CACHED_BYTES", self.cached)
        patch.setattr("oplogd.stream.ring.keys._MAX_PAIRS", self.pairs)
        patch.setattr("oplogd.stream.ring.index.MAX_IDLE", self.idle)
        patch.setattr("oplogd.stream.ring.index.MAX_TOTALS", self.totals)
        for module in ("postings", "window"):
            patch.setattr(f"oplogd.stream.ring.{module}._COMPACT", 2)


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
        totals=st.sampled_from([MOST, 2, 1]),
    ),
    st.lists(actions, max_size=40),
)
def test_repeated_takes_return_the_entries_of_a_plain_list_that_pass(
    max_entries: int, max_bytes: int, limits: Limits, plan: list[Action]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limits.set(patch)
        play(Model(max_entries, max_bytes, limits.totals), plan)


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
    assert not model.ring.views
    postings = list(model.ring.index)
    assert not any(posting.views for posting in postings)
    assert set(postings) == set(model.ring.index.idle)
    assert len(postings) <= index.MAX_IDLE

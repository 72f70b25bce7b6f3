"""A ring with entries of pointers: what each kind of reader takes, against a plain list."""

import gc
import tracemalloc
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId, stamp
from oplogd.model.pointer import MAX_POINTER, Voided, encode_voided
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.pointers import runs_of
from oplogd.store.topics import EntryKind, TopicEntry, TopicRecord
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import message_frame, record_frames
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from oplogd.stream.ring.view import View
from oplogd.stream.topic_feed import Peeked, messages_after
from tests.kits.models.properties import examples
from tests.kits.stream.topic_worlds import wake_all

HUGE = 10**9
START = Mark(10, 1 << 41, 7)
BOTH = (Filter(), Filter(committed=True))


class Do(NamedTuple):
    """``who``: one of the pointers that are open. ``in_ring``: a PUBLISH entry whose blocks the
    ring gets. ``share``: of a rollback, the places of its entries among those of the pointer.
    """

    what: Literal["message", "direct", "publish", "commit", "abort", "rollback", "void", "drop"]
    who: int = 0
    in_ring: bool = True
    share: float = 1.0


@dataclass
class Row:
    """An entry as the model has it. ``verdict``: of committed readers; None: its pointer is open.

    ``blocks``: of a message or of its records; none: it has none for anybody.
    """

    entry: TopicEntry
    blocks: list[bytes] = field(default_factory=list)
    from_store: bool = False
    verdict: bool | None = True

    @property
    def is_publish(self) -> bool:
        return self.entry.event == EntryKind.PUBLISH

    def is_held(self, view: View) -> bool:
        return view.filter.committed and self.verdict is None

    def seen(self, view: View) -> list[bytes]:
        return [] if view.filter.committed and self.verdict is False else self.blocks

    def share(self, view: View) -> int:
        """Return the number by which the entry counts in a lag."""
        if self.is_publish or (view.filter.committed and self.entry.pointer is not None):
            return len(self.seen(view))
        return 1

    def must_be_read(self, view: View) -> bool:
        return self.from_store and bool(self.seen(view))


class Model:
    """A ring and the list of the entries that it was given."""

    def __init__(self) -> None:
        self.ring = TopicRing(SharedParts(wake_all, lambda: 0), None)
        self.ring.restart(START)
        self.rows: list[Row] = []
        self._blocks: dict[int, bytes] = {}
        self.new: list[TopicEntry] = []
        self._generation = [0] * 3

    def do(self, doing: Do) -> None:
        what = doing.what
        who = doing.who
        pointer = MAX_POINTER - 3 * self._generation[who] - who
        if what == "message":
            self._message(EntryKind.MESSAGE, None)
        elif what == "direct":
            self._message(EntryKind.DIRECT, pointer)
        elif what == "publish":
            self._publish(pointer, doing)
        elif what == "rollback":
            self._roll_back(pointer, doing.share)
        elif what in ("commit", "abort"):
            self._generation[who] += 1
            kind = EntryKind.COMMIT if what == "commit" else EntryKind.ABORT
            self._append(kind, encode_marker(Marker(str(pointer))), None)
            for row in self.rows:
                if row.entry.pointer == pointer and row.verdict is None:
                    row.verdict = what == "commit"

    def append(self) -> None:
        """Give the new entries to the ring."""
        self.ring.append(self.new, self._blocks)
        self.new.clear()

    def void(self, share: float) -> None:
        """Void an entry as its own time to live does."""
        if self.rows:
            row = self.rows[int(share * (len(self.rows) - 1))]
            if row.entry.event in (EntryKind.MESSAGE, EntryKind.DIRECT):
                self.ring.void(row.entry.offset)
                self._empty(row)

    def _message(self, kind: EntryKind, pointer: int | None) -> None:
        row = self._append(kind, f'{{"payload":"{len(self.rows)}"}}', pointer)
        row.blocks = [message_frame(row.entry)]
        row.verdict = None if pointer is not None else True

    def _publish(self, pointer: int, doing: Do) -> None:
        count = 1 + int(doing.share * 3)
        numbers = [stamp(START.ms, len(self.rows) * 10 + k) for k in range(count)]
        data = encode_marker(Marker(str(pointer), count, numbers[-1]))
        row = self._append(EntryKind.PUBLISH, data, pointer)
        records = [TopicRecord(number, f'{{"payload":"s{number}"}}', 0) for number in numbers]
        row.blocks = record_frames(row.entry, records, numbers[-1])
        row.verdict, row.from_store = None, not doing.in_ring
        if doing.in_ring:
            self._blocks[row.entry.offset] = b"".join(row.blocks)

    def _roll_back(self, pointer: int, share: float) -> None:
        own = [row for row in self.rows if row.entry.pointer == pointer]
        gone = own[: round(share * len(own))]
        runs = runs_of([row.entry.offset for row in gone])
        self._append(EntryKind.VOID, encode_voided(Voided(str(pointer), runs)), None)
        for row in gone:
            self._empty(row)

    def _empty(self, row: Row) -> None:
        row.blocks, row.verdict, row.from_store = [], True, False

    def _append(self, kind: EntryKind, data: str, pointer: int | None) -> Row:
        offset = START.offset + len(self.rows) + 1
        ms = START.ms + offset // 3
        row = Row(TopicEntry(offset, ms, kind, data, offset, 0, pointer))
        self.rows.append(row)
        self.new.append(row.entry)
        return row

    # --- Checks ---

    def check(self, view: View, max_bytes: int) -> None:
        kept = [row for row in self.rows if row.entry.offset > self.ring.base]
        for after in range(self.ring.base, self.ring.head.offset + 1):
            rest = [row for row in kept if row.entry.offset > after]
            self._check_counts(view, after, rest)
            self._check_taken(view, after, rest, max_bytes)
        for each in kept:
            self._check_found(view, each.entry)

    def _check_counts(self, view: View, after: int, rest: list[Row]) -> None:
        shares = [row.share(view) for row in rest]
        first = next((r.entry.ms for r, share in zip(rest, shares, strict=True) if share), 0)
        assert view.remaining(after) == (sum(shares), first)
        held = bool(rest) and rest[0].is_held(view)
        assert view.held_by(after) == (rest[0].entry.pointer if held else None)
        must_read = bool(rest) and not held and rest[0].must_be_read(view)
        assert view.expansion_after(after) == (len(rest[0].blocks) if must_read else None)

    def _check_taken(self, view: View, after: int, rest: list[Row], max_bytes: int) -> None:
        stops = (row.is_held(view) or row.must_be_read(view) for row in rest)
        stop = next((k for k, is_stop in enumerate(stops) if is_stop), len(rest))
        place, got, count = after, b"", 0
        while place < after + stop:
            assert view.held_by(place) is view.expansion_after(place) is None
            chunk, events, reached = view.take(place, max_bytes)
            assert place < reached.offset <= after + stop
            place, got, count = reached.offset, got + chunk, count + events
        blocks = [block for row in rest[:stop] for block in row.seen(view)]
        assert (got, count) == (b"".join(blocks), len(blocks))

    def _check_found(self, view: View, at: TopicEntry) -> None:
        """Compare the messages that a poll finds in memory with the list."""
        for limit in (1, 3, 100):
            found: list[tuple[MessageId, str]] = []
            expected: Peeked | None = Peeked(found)
            for row in self.rows[at.offset - START.offset :]:
                if len(found) == limit:
                    break
                if row.is_held(view):
                    expected = Peeked(found, row.entry.pointer)
                    break
                if row.is_publish and row.seen(view):
                    expected = None
                    break
                if row.seen(view):
                    found.append((MessageId(row.entry.ms, row.entry.sequence), row.entry.data))
            committed = view.filter.committed
            peeked = messages_after(self.ring, at.ms, at.sequence, limit, HUGE, committed=committed)
            assert peeked == expected


whos = st.integers(0, 2)
doings = st.one_of(
    st.just(Do("message")),
    st.builds(Do, st.just("direct"), whos),
    st.builds(Do, st.just("publish"), whos, st.booleans(), st.floats(0, 1)),
    st.builds(Do, st.sampled_from(["commit", "abort"]), whos),
    st.builds(Do, st.just("rollback"), whos, st.just(True), st.floats(0, 1)),
    st.builds(Do, st.sampled_from(["void", "drop"]), share=st.floats(0, 1)),
)


def play(model: Model, doing: Do) -> None:
    """Do one thing: something new waits for ``append``, the rest changes what is there."""
    if doing.what == "void":
        model.append()
        model.void(doing.share)
    elif doing.what == "drop":
        model.append()
        for _ in range(round(doing.share * len(model.ring.window) / 2)):
            model.ring.drop()
    else:
        model.do(doing)


@examples(1)
@given(
    st.lists(st.lists(doings, min_size=1, max_size=6), min_size=1, max_size=6),
    st.sampled_from([1, 130, 400, HUGE]),
)
def test_readers_take_what_a_plain_list_has_for_them(
    batches: list[list[Do]], max_bytes: int
) -> None:
    model = Model()
    # Two users of each view: they share the slices.
    views = [model.ring.view(filter_) for filter_ in BOTH for _ in range(2)][::2]
    for batch in batches:
        for doing in batch:
            play(model, doing)
        model.append()
        for view in views:
            model.check(view, max_bytes)
    while len(model.ring.window):
        model.ring.drop()
    assert model.ring.window.size == 0


@pytest.mark.thorough
def test_entries_of_open_pointers_are_counted_with_their_memory() -> None:
    def taken_by(doing: Do, count: int) -> tuple[int, int]:
        model = Model()
        ring = model.ring
        for _ in range(100):
            model.do(doing)
        model.append()
        before = ring.window.size
        for _ in range(count):
            model.do(doing)
        entries = model.new[:]
        gc.collect()
        tracemalloc.start()
        try:
            for first in range(0, count, 500):
                ring.append(entries[first : first + 500])
            gc.collect()
            return tracemalloc.get_traced_memory()[0], ring.window.size - before
        finally:
            tracemalloc.stop()

    for doing in (Do("direct"), Do("publish", in_ring=False)):
        taken, counted = taken_by(doing, 5_000)
        assert counted // 2 < taken <= counted * 1.05, doing

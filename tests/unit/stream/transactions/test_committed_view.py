"""A ring with transactions: what each kind of reader takes, against a plain list of entries."""

import gc
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import FIRST_ID, Marker, encode_marker
from oplogd.store.topics import EntryKind, TopicEntry, TopicRecord
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import message_frame, record_frames
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from oplogd.stream.ring.view import View
from oplogd.stream.topic_feed import Peeked, messages_after
from tests.kits.models.properties import examples
from tests.kits.stream.topic_worlds import wake_all

HUGE = 10**9
START = Mark(10, 1000, 7)
COMMITTED = Filter(committed=True)
# Kinds with a builder of their own, and those of pointers: see test_pointer_views.py.
OTHERS = (EntryKind.COMMIT, EntryKind.DIRECT, EntryKind.PUBLISH)


class Held(NamedTuple):
    """An entry as the model has it. ``committed``: its blocks for committed readers.

    ``from_store``: those readers must ask the store for them.
    """

    entry: TopicEntry
    uncommitted: bytes
    committed: Sequence[bytes]
    from_store: bool

    @property
    def id(self) -> MessageId:
        return MessageId(self.entry.ms, self.entry.sequence)


_DIFFERING = (EntryKind.DEFERRED, EntryKind.COMMIT, EntryKind.LATE)


class Kind(NamedTuple):
    """``records``: of a commit. ``in_ring``: they were read when it was appended."""

    event: EntryKind
    records: int = 0
    in_ring: bool = True


def make_ring() -> TopicRing:
    ring = TopicRing(SharedParts(wake_all, lambda: 0), None)
    ring.restart(START)
    return ring


def held(offset: int, kind: Kind) -> Held:
    ms = START.ms + offset // 3
    data = f'{{"payload":"{offset}"}}'
    if kind.event == EntryKind.COMMIT:
        data = encode_marker(Marker(str(FIRST_ID), kind.records, kind.records - 1))
    elif kind.event == EntryKind.ABORT:
        data = encode_marker(Marker(str(FIRST_ID)))
    elif kind.event == EntryKind.VOID:
        data = ""
    entry = TopicEntry(offset, ms, kind.event, data, offset, 0)
    records = [TopicRecord(lsn, f'{{"payload":"r{lsn}"}}', 0) for lsn in range(kind.records)]
    blocks = record_frames(entry, records, kind.records - 1)
    plain = message_frame(entry)
    if kind.event in (EntryKind.MESSAGE, EntryKind.LATE):
        blocks = [plain]
    if kind.event == EntryKind.LATE:
        plain = b""
    from_store = kind.event == EntryKind.COMMIT and kind.records > 0 and not kind.in_ring
    return Held(entry, plain, blocks, from_store)


def append(ring: TopicRing, made: Sequence[Held]) -> None:
    commits = {
        each.entry.offset: b"".join(each.committed)
        for each in made
        if each.entry.event == EntryKind.COMMIT and not each.from_store and each.committed
    }
    ring.append([each.entry for each in made], commits)


kinds = st.one_of(
    st.sampled_from([Kind(each) for each in EntryKind if each not in OTHERS]),
    st.builds(Kind, st.just(EntryKind.COMMIT), st.integers(0, 3), st.booleans()),
)


@examples(2)
@given(
    st.lists(st.lists(kinds, max_size=12), max_size=6),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from([1, 130, 400, HUGE]),
    st.booleans(),
)
def test_both_kinds_of_readers_take_the_entries_of_a_plain_list(
    batches: list[list[Kind]], drops: list[int], max_bytes: int, early: bool
) -> None:
    ring = make_ring()
    views = [ring.view(Filter()), ring.view(COMMITTED)] if early else []
    log: list[Held] = []
    for number, batch in enumerate(batches):
        made = [held(START.offset + len(log) + k, kind) for k, kind in enumerate(batch, 1)]
        append(ring, made)
        log += made
        for _ in range(min(drops[number] if number < len(drops) else 0, len(ring.window))):
            ring.drop()
    views = views or [ring.view(Filter()), ring.view(COMMITTED)]
    kept = [each for each in log if each.entry.offset > ring.base]
    for after in range(ring.base, ring.head.offset + 1):
        rest = [each for each in kept if each.entry.offset > after]
        check_view(views[0], after, [[e.uncommitted] if e.uncommitted else [] for e in rest], rest)
        check_committed(views[1], after, rest, max_bytes)
        check_found(ring, after, kept)
    while len(ring.window):
        ring.drop()
    assert ring.window.size == 0


def check_view(
    view: View, after: int, blocks: Sequence[Sequence[bytes]], rest: Sequence[Held]
) -> None:
    chunk, count, reached = view.take(after, HUGE)
    assert chunk == b"".join(block for each in blocks for block in each)
    assert count == sum(map(len, blocks))
    assert reached == view.ring.head
    assert view.expansion_after(after) is None
    assert view.remaining(after) == (len(rest), rest[0].entry.ms if rest else 0)


def check_committed(view: View, after: int, rest: Sequence[Held], max_bytes: int) -> None:
    assert view.covers(after)
    differing = [e for e in rest if e.entry.event in _DIFFERING]
    # Entries that are nobody's count until they are passed, as for uncommitted readers.
    shares = [
        len(e.committed) if e in differing and (e.committed or e.uncommitted) else 1 for e in rest
    ]
    first = next((e.entry.ms for e, share in zip(rest, shares, strict=True) if share), 0)
    assert view.remaining(after) == (sum(shares), first)
    if rest and rest[0].from_store:
        assert view.expansion_after(after) == len(rest[0].committed)
        return
    assert view.expansion_after(after) is None
    place, got = after, []
    while place < view.ring.head.offset and view.expansion_after(place) is None:
        chunk, count, reached = view.take(place, max_bytes)
        taken = [each for each in rest if place < each.entry.offset <= reached.offset]
        blocks = [block for each in taken for block in each.committed]
        assert (chunk, count) == (b"".join(blocks), len(blocks))
        assert len(chunk) <= max_bytes or sum(bool(each.committed) for each in taken) == 1
        assert reached.offset > place
        place = reached.offset
        got += taken
    stop = next((k for k, each in enumerate(rest) if each.from_store), len(rest))
    assert got == list(rest[:stop])


def check_found(ring: TopicRing, after: int, kept: Sequence[Held]) -> None:
    """Compare the messages that a poll finds in memory with the list."""
    start = next((each.id for each in kept if each.entry.offset == after), None)
    if start is None:
        return
    rest = [each for each in kept if each.entry.offset > after]
    for limit in (1, 3, 100):
        found = messages_after(ring, start.ms, start.sequence, limit, HUGE, committed=True)
        expected: list[tuple[MessageId, str]] = []
        is_known = True
        for each in rest:
            if len(expected) == limit:
                break
            if each.entry.event in (EntryKind.COMMIT, EntryKind.LATE) and each.committed:
                is_known = False
                break
            if each.committed:
                expected.append((each.id, each.entry.data))
        assert found == (Peeked(expected) if is_known else None)


@pytest.mark.thorough
def test_entries_of_transactions_are_counted_with_their_memory() -> None:
    def taken_by(kind: Kind, count: int) -> tuple[int, int]:
        ring = make_ring()
        append(ring, [held(11 + k, kind) for k in range(100)])
        before = ring.window.size
        gc.collect()
        tracemalloc.start()
        try:
            for first in range(111, 111 + count, 500):
                append(ring, [held(first + k, kind) for k in range(500)])
            gc.collect()
            return tracemalloc.get_traced_memory()[0], ring.window.size - before
        finally:
            tracemalloc.stop()

    for kind in (Kind(EntryKind.DEFERRED), Kind(EntryKind.COMMIT, 3)):
        taken, counted = taken_by(kind, 2_000)
        assert counted // 2 < taken <= counted * 1.05, kind

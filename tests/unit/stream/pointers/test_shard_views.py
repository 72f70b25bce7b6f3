"""A ring with entries of pointers: what readers of one shard take, against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.shard import Shard, hash_of
from oplogd.store.topics import EntryKind
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import message_frame
from oplogd.stream.ring.view import View
from tests.kits.models.properties import examples
from tests.unit.stream.pointers.test_views import (
    BOTH,
    HUGE,
    START,
    Do,
    Model,
    Row,
    doings,
    play,
)

# The readers of the first number of shards come before the first entry, if at all.
EARLY, LATE = 2, 3


def is_in(shard: Shard, block: bytes) -> bool:
    return shard.has(hash_of(block[4:44].decode()))


def of_shards(total: int) -> list[Filter]:
    return [
        filter_._replace(shard=Shard(number, total)) for filter_ in BOTH for number in range(total)
    ]


class ShardModel(Model):
    """``piece``: the most entries of its shard that a view looks at in one ``take``."""

    def __init__(self, piece: int) -> None:
        super().__init__()
        self.piece = piece

    def is_posted(self, row: Row, shard: Shard) -> bool:
        """Return whether the entry is of the shard, or its records may be."""
        kind = row.entry.event
        if kind in (EntryKind.MESSAGE, EntryKind.DIRECT):
            return is_in(shard, message_frame(row.entry))
        return kind in (EntryKind.PUBLISH, EntryKind.COMMIT)

    def check_shard(self, view: View, max_bytes: int) -> int:
        """Return the number of events that the view has after the base."""
        shard, base, counted = view.filter.shard, self.ring.base, 0
        assert shard
        for after in range(START.offset, self.ring.head.offset + 1):
            passed = [row for row in self.rows if after < row.entry.offset <= base]
            if not view.covers(after):
                assert any(self.is_posted(row, shard) or row.entry.offset <= view.start
                           for row in passed)  # fmt: skip
                continue
            assert not any(self.is_posted(row, shard) for row in passed)
            rest = [row for row in self.rows if row.entry.offset > max(after, base)]
            if after >= base:
                self._check_lag(view, after, rest)
            counted = max(counted, self._check_blocks(view, after, rest, max_bytes))
        return counted

    def _holds(self, row: Row, view: View) -> bool:
        assert view.filter.shard
        return row.is_held(view) and self.is_posted(row, view.filter.shard)

    def _check_lag(self, view: View, after: int, rest: list[Row]) -> None:
        shard = view.filter.shard
        assert shard
        ours = [r for r in rest if r.entry.offset <= view.start or self.is_posted(r, shard)]
        count = sum(row.share(view) for row in ours)
        assert view.remaining(after) == (count, ours[0].entry.ms if count else 0)
        held = bool(rest) and self._holds(rest[0], view)
        assert view.held_by(after) == (rest[0].entry.pointer if held else None)

    def _check_blocks(self, view: View, after: int, rest: list[Row], max_bytes: int) -> int:
        shard = view.filter.shard
        assert shard
        stops = (
            self._holds(row, view) or (not row.is_held(view) and row.must_be_read(view))
            for row in rest
        )
        stop = next((k for k, is_stop in enumerate(stops) if is_stop), len(rest))
        end = max(after, self.ring.base) + stop
        place, got, count = after, b"", 0
        while place < end:
            assert view.held_by(place) is view.expansion_after(place) is None
            chunk, events, reached = view.take(place, max_bytes)
            assert place < reached.offset <= end
            passed = [r for r in rest if place < r.entry.offset <= reached.offset]
            assert sum(self.is_posted(row, shard) for row in passed) <= self.piece
            assert reached.ms == (START.ms + reached.offset // 3 if self.rows else START.ms)
            largest = max((sum(map(len, row.blocks)) for row in rest), default=0)
            assert len(chunk) <= max(max_bytes, largest)
            place, got, count = reached.offset, got + chunk, count + events
        blocks = [b for row in rest[:stop] for b in row.seen(view) if is_in(shard, b)]
        assert (got, count) == (b"".join(blocks), len(blocks))
        return count


@pytest.mark.parametrize(("piece", "cheap"), [(8_192, 8), (2, 0), (3, 8_192)])
def test_readers_of_a_shard_take_what_a_plain_list_has_for_them(
    piece: int, cheap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.ring.topic_view.PIECE", piece)
    monkeypatch.setattr("oplogd.stream.ring.topic_view.CHEAP", cheap)

    @examples(0.7)
    @given(
        st.lists(st.lists(doings, min_size=1, max_size=6), min_size=1, max_size=6),
        st.sampled_from([1, 130, 400, HUGE]),
        st.booleans(),
        st.integers(0, 5),
    )
    def compare(batches: list[list[Do]], max_bytes: int, early: bool, joined: int) -> None:
        model = ShardModel(piece)
        views = [model.ring.view(each) for each in of_shards(EARLY)] if early else []
        for number, batch in enumerate(batches):
            for doing in batch:
                play(model, doing)
            if number == joined:
                views += [model.ring.view(each) for each in of_shards(LATE)]
            model.append()
            for view in views:
                model.check_shard(view, max_bytes)
        while len(model.ring.window):
            model.ring.drop()
        assert model.ring.window.size == 0

    compare()

"""The entries of a topic's ring, and those of one of its shards. No I/O."""

from collections.abc import Iterator

from oplogd.model.event_id import Mark
from oplogd.stream.ring.cuts import Cuts
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.index import Index
from oplogd.stream.ring.substitutes import Substitutes
from oplogd.stream.ring.view import CHEAP, MAX_COUNTED, PIECE, Taken, View, Viewed


class TopicView(View):
    """A COMMIT or PUBLISH entry stands for its records. Committed readers wait at entries whose
    pointers are not decided, and skip records before their commit.
    """

    __slots__ = ()

    @property
    def _substitutes(self) -> Substitutes | None:
        window = self.ring.window
        return window.committed if self.filter.committed else window.uncommitted

    def held_by(self, after: int) -> int | None:
        """See ``View.held_by``."""
        undecided = self.ring.window.undecided if self.filter.committed else None
        return undecided.pointers.get(after + 1) if undecided is not None else None

    def expansion_after(self, after: int) -> int | None:
        """See ``View.expansion_after``."""
        substitutes = self._substitutes
        index = substitutes.at(after + 1) if substitutes is not None else None
        if substitutes is None or index is None or substitutes.frames[index] is not None:
            return None
        return None if self.held_by(after) is not None else substitutes.counts[index]

    def remaining(self, after: int) -> tuple[int, int]:
        """See ``View.remaining``. Counts records, also those behind a hold."""
        window, substitutes = self.ring.window, self._substitutes
        count, ms = window.remaining(after)
        if substitutes is None or not count:
            return count, ms
        first, end = substitutes.after(after), len(substitutes.offsets)
        count += substitutes.records(first, end) - (end - first)
        if not count:
            return 0, 0
        return count, window.times[window.after(after) + substitutes.skipped(after + 1)]

    def _take(self, after: int, max_bytes: int) -> Taken:
        window, substitutes = self.ring.window, self._substitutes
        if substitutes is None:
            return super()._take(after, max_bytes)
        at, last = substitutes.after(after), len(substitutes.offsets)
        if at == last:
            return super()._take(after, max_bytes)
        undecided = window.undecided.pointers if window.undecided is not None else {}
        holds = self.filter.committed and bool(undecided)
        first = window.after(after)
        until = min(window.end, first + PIECE)
        frames: list[bytes] = []
        count = size = 0
        for index in range(first, until):
            frame: bytes | None = window.frames[index]
            events = 1
            if at < last and window.index(substitutes.offsets[at]) == index:
                frame, events = substitutes.frames[at], substitutes.counts[at]
                if holds and substitutes.offsets[at] in undecided:
                    until = index
                    break
                at += 1
            if not frame and frame is not None:
                continue
            size += len(frame or b"")
            if frame is None or (frames and size > max_bytes):
                until = index
                break
            frames.append(frame)
            count += events
        return Taken(b"".join(frames), count, self._mark(until))


class ShardView(TopicView):
    """The entries of one shard. A COMMIT or PUBLISH entry is posted in every shard."""

    __slots__ = ("_cuts", "_shard")

    def __init__(self, ring: Viewed, filter_: Filter, index: Index, cuts: Cuts) -> None:
        super().__init__(ring, filter_, index)
        assert filter_.shard is not None
        self._shard = filter_.shard
        self._cuts = cuts

    def held_by(self, after: int) -> int | None:
        """See ``View.held_by``. A message of another shard holds no reader."""
        pointer = super().held_by(after)
        return None if pointer is None or not self._may_have(after + 1) else pointer

    def remaining(self, after: int) -> tuple[int, int]:
        """See ``View.remaining``. Records of other shards count, too, up to MAX_COUNTED entries."""
        count, ms = View.remaining(self, after)
        substitutes = self._substitutes
        if substitutes is not None and count:
            at, last = substitutes.after(after), len(substitutes.offsets)
            if last - at <= MAX_COUNTED:
                for index in range(at, last):
                    offset = substitutes.offsets[index]
                    if offset <= self.start or self._is_posted(offset):
                        count += substitutes.counts[index] - 1
        return (count, ms) if count else (0, 0)

    def _is_posted(self, offset: int) -> bool:
        window = self.ring.window
        return not self.postings.isdisjoint(window.postings[window.index(offset)])

    def _may_have(self, offset: int) -> bool:
        """Return whether an undecided entry is in the shard, or some of its records may be."""
        if offset > self.start:
            return self._is_posted(offset)
        frame = self.ring.window.frames[self.ring.window.index(offset)]
        return not frame or bool(self._cuts.cut(frame, self._shard).block)

    def _offsets(self, after: int) -> Iterator[int]:
        """Return the offsets of the entries past one that may be in the shard."""
        window = self.ring.window
        first = max(after, window.base) + 1
        if after < self.start:
            return iter(range(first, self.start + 1))
        (posting,) = self.postings
        end = self.ring.head.offset + 1
        if end - first <= CHEAP:
            return (offset for offset in range(first, end) if self._is_posted(offset))
        return posting.run(posting.after(after))

    def _take(self, after: int, max_bytes: int) -> Taken:
        window, substitutes = self.ring.window, self._substitutes
        undecided = window.undecided.pointers if window.undecided is not None else {}
        until = window.after(self.start) if after < self.start else window.end
        frames: list[bytes] = []
        count = size = 0
        for looked_at, offset in enumerate(self._offsets(after)):
            index = window.index(offset)
            if looked_at == PIECE:
                until = index
                break
            frame: bytes | None = window.frames[index]
            at = substitutes.at(offset) if substitutes is not None else None
            if substitutes is not None and at is not None:
                frame = substitutes.frames[at]
                is_held = self.filter.committed and offset in undecided
                if frame is None or (is_held and self._may_have(offset)):
                    until = index
                    break
            if not frame:
                continue
            events = 1
            if at is not None or offset <= self.start:
                frame, events = self._cuts.cut(frame, self._shard)
            size += len(frame)
            if frames and size > max_bytes:
                until = index
                break
            if events:
                frames.append(frame)
                count += events
        return Taken(b"".join(frames), count, self._mark(until))

    def _mark(self, until: int) -> Mark:
        """See ``View``. Entries before the window may be known to be of other shards."""
        window = self.ring.window
        if window.after(window.base) == until < window.end:
            return window.base_mark
        return super()._mark(until)

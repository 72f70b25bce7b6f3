"""The entries of a topic's ring as the readers of one isolation see them. No I/O."""

from oplogd.stream.ring.substitutes import Substitutes
from oplogd.stream.ring.view import Taken, View

# Most entries looked at in one ``take``: as many records may wait for their commit.
_PIECE = 8_192


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
        until = min(window.end, first + _PIECE)
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

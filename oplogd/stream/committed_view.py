"""The entries of a topic's ring as committed readers see them. No I/O."""

from oplogd.stream.view import Taken, View

# Most entries looked at in one ``take``: as many records may wait for their commit.
_PIECE = 8_192


class CommittedView(View):
    """A commit stands for its records; records before their commit have no block."""

    __slots__ = ()

    def commit_after(self, after: int) -> int | None:
        """See ``View.commit_after``."""
        substitutes = self.ring.window.substitutes
        index = substitutes.at(after + 1) if substitutes is not None else None
        if substitutes is None or index is None or substitutes.frames[index] is not None:
            return None
        return substitutes.records(index, index + 1)

    def remaining(self, after: int) -> tuple[int, int]:
        """See ``View.remaining``. Counts records."""
        window = self.ring.window
        substitutes = window.substitutes
        count, ms = window.remaining(after)
        if substitutes is None or not count:
            return count, ms
        first, end = substitutes.after(after), len(substitutes.offsets)
        count += substitutes.records(first, end) - (end - first)
        if not count:
            return 0, 0
        return count, window.times[window.after(after) + substitutes.skipped(after + 1)]

    def _take(self, after: int, max_bytes: int) -> Taken:
        window = self.ring.window
        substitutes = window.substitutes
        if substitutes is None:
            return super()._take(after, max_bytes)
        at, last = substitutes.after(after), len(substitutes.offsets)
        if at == last:
            return super()._take(after, max_bytes)
        first = window.after(after)
        until = min(window.end, first + _PIECE)
        frames: list[bytes] = []
        count = size = 0
        for index in range(first, until):
            frame: bytes | None = window.frames[index]
            events = 1
            if at < last and window.index(substitutes.offsets[at]) == index:
                frame, events = substitutes.frames[at], substitutes.records(at, at + 1)
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

"""How far a sink is in the commit log, between its own thread and that of the keeper."""

import threading
from collections.abc import Callable, Mapping

from oplog_pipe.commitlog.offsets import WHOLE_SINCE
from oplog_pipe.wholeness import Wholeness


class Place:
    """Any thread may read it.

    - ``offset``: the last acknowledged one; -1: none. ``flushed``: the one on disk.
    - ``ready_at``: at this offset the sink is ready. ``changed``: called once it is.
    """

    def __init__(
        self,
        offset: int,
        wholeness: Wholeness,
        *,
        ready_at: int = -1,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.offset = self.flushed = self._seen = offset
        self._wholeness = wholeness
        self._ready_at = ready_at
        self._changed = changed
        self._lock = threading.Lock()
        self._unflushed: dict[str, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the sink has been through the backlog that it had at the start."""
        return self._seen >= self._ready_at

    @property
    def not_whole(self) -> list[str]:
        """The sources whose last copy was not whole, sorted."""
        return sorted(self._wholeness.not_whole)

    def acknowledge(self, offset: int, keys: Mapping[str, int], missed: int | None = None) -> None:
        """Count all entries up to an offset as done.

        ``keys``: their newest offset per key. ``missed``: of an entry that the sink never gets.
        """
        with self._lock:
            self.offset = offset
            self._unflushed.update(keys)
            if missed is not None:
                self._wholeness.miss(missed)
                self._unflushed[WHOLE_SINCE] = self._wholeness.since
        self.see(offset)

    def see(self, offset: int) -> None:
        """Note that the sink has tried all messages up to an offset."""
        was_ready = self.is_ready
        self._seen = max(self._seen, offset)
        if not was_ready and self.is_ready:
            self._changed()

    def end_copy(self, source: str, begin: int) -> bool:
        """Return whether a copy that ends is whole. ``begin``: offset of its entry ``reset``."""
        with self._lock:
            return self._wholeness.end(source, begin)

    def take_unflushed(self) -> dict[str, int]:
        """Return what has changed in the offset log since the last call, by its keys."""
        with self._lock:
            taken, self._unflushed = self._unflushed, {}
        return taken

    def flush(self, offsets: Mapping[str, int]) -> None:
        """Note that these are on disk."""
        self.flushed = max(self.flushed, *offsets.values())

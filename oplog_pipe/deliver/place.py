"""How far a sink is in the commit log, between its own thread and the keeper's."""

import threading
from collections.abc import Callable, Mapping

from oplog_pipe.commitlog.offsets import COPY_DUE, WHOLE_SINCE, newest
from oplog_pipe.model.wholeness import Wholeness


class SinkPlace:
    """Any thread may read it.

    - ``offset``: the last acknowledged one; -1: none. ``flushed``: the one on disk.
    - ``copy_due``: up to this offset the sink has given up its place; -1: it needs no copy.
    - ``ready_at``: at this offset the sink is ready. ``wholeness``: None: of a sink without a past.
    - ``changed``: called once it is ready, or can take the copy.
    """

    def __init__(
        self,
        offset: int,
        wholeness: Wholeness | None = None,
        *,
        copy_due: int = -1,
        ready_at: int = -1,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.offset = self.flushed = self._seen = offset
        self._wholeness = wholeness or Wholeness(offset)
        self._ready_at = ready_at
        self._changed = changed
        self.copy_due = self._given_up = copy_due
        self._has_returned = False
        self._lock = threading.Lock()
        self._unflushed: dict[str, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the sink has been through the backlog it had at the start."""
        return self._seen >= self._ready_at

    @property
    def wants_copy(self) -> bool:
        """Whether the sink has given up its place, and has written a message or a copy since."""
        return self.copy_due >= 0 and self._has_returned

    @property
    def not_whole(self) -> list[str]:
        """The sources whose last copy was not whole, sorted."""
        return sorted(self._wholeness.not_whole)

    def acknowledge(self, offset: int, keys: Mapping[str, int], missed: int | None = None) -> None:
        """Count all entries up to an offset as done, unless it has been given up.

        ``keys``: their newest offset per key. ``missed``: of an entry the sink never gets.
        """
        with self._lock:
            if offset <= self.offset:
                return
            self.offset = offset
            self._unflushed.update(keys)
            if missed is not None:
                self._wholeness.miss(missed)
                self._unflushed[WHOLE_SINCE] = self._wholeness.since
        self.see(offset)

    def see(self, offset: int) -> None:
        """Note the offset up to which the sink has tried all messages."""
        was_ready = self.is_ready
        self._seen = max(self._seen, offset)
        if not was_ready and self.is_ready:
            self._changed()

    def wrote(self) -> None:
        """Note written messages, or a complete copy."""
        if self.copy_due >= 0 and not self._has_returned:
            self._has_returned = True
            self._changed()

    def give_up(self, offset: int) -> bool:
        """Pass over all entries up to an offset; a copy is due.

        Returns False if the sink is already behind the offset: nothing has changed then.
        """
        with self._lock:
            if offset <= self.offset:
                return False
            self._wholeness.miss(offset)
            self.offset = self.copy_due = self._given_up = offset
            self._has_returned = False
            marks = {WHOLE_SINCE: self._wholeness.since, COPY_DUE: offset}
            self._unflushed |= {"": offset, **marks}
        self.see(offset)
        return True

    def begin_copy(self, due: int) -> None:
        """Note a coming copy, unless the place has been given up again since ``due``."""
        with self._lock:
            if self.copy_due == due:
                self.copy_due = -1
                self._unflushed[COPY_DUE] = -1

    def end_copy(self, source: str, begin: int) -> bool:
        """Return whether an ending copy is whole. ``begin``: offset of its entry ``reset``."""
        with self._lock:
            return self._wholeness.end(source, begin)

    def is_followed(self, begin: int) -> bool:
        """Return whether another copy follows the one from an offset."""
        return begin <= self._given_up

    def take_unflushed(self) -> dict[str, int]:
        """Return what has changed in the offset log since the last call, by its keys."""
        with self._lock:
            taken, self._unflushed = self._unflushed, {}
        return taken

    def flush(self, offsets: Mapping[str, int]) -> None:
        """Note what is on disk."""
        self.flushed = max(self.flushed, newest(offsets))

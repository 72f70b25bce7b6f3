"""The present state of a source. No I/O."""

from collections.abc import Callable
from typing import Literal

from oplog_pipe.follow.checkpoints import SourceCheckpoint
from oplog_pipe.follow.streams import START, is_oplog, is_replicated
from oplog_pipe.message import namespace_filter
from oplog_pipe.model.settings import SourceSettings
from oplog_pipe.model.status import SourceStatus

Phase = Literal["copy", "changes", "sync"]


class Track:
    """The state of a source behind its last entry on disk, and its figures since the start.

    The recorder's thread changes it, and the source ``error``, ``connected``, ``copy_total`` and
    ``witness``. Any thread may read it.

    - ``copy``: offset at which the present copy began; None: there is none.
    - ``last_copy``: the same of the last one, under way or complete; -1: not known.
    """

    def __init__(self, settings: SourceSettings, found: SourceCheckpoint) -> None:
        self.name = settings.name
        self.log = settings.log
        self.matches = namespace_filter(settings.namespace)
        self.received = 0
        self.filtered = 0
        self.newest_ms: int | None = None
        self.connected: Callable[[], bool] = lambda: False
        self.error: str | None = None
        self.begin(found)

    def begin(self, found: SourceCheckpoint) -> None:
        """Continue from this state."""
        self.position = found.position
        self.copy = found.copy
        self.last_copy = -1 if found.copy is None else found.copy
        self.copied = found.copied
        self.copy_total = found.copy_total
        self.is_live = not is_replicated(found.position)
        self.store = found.store
        self.witness = found.witness

    def adopt(self, store: str) -> None:
        """Note the store the position belongs to."""
        self.store = store

    def restart(self, store: str | None) -> None:
        """Continue from the beginning of this store."""
        self.begin(SourceCheckpoint(self.log, START, 0, store=store))

    def has_copy(self, since: int) -> bool:
        """Return whether the last copy began behind an offset, or one is about to begin."""
        begins = self.copy is None and self.position == START
        return begins or self.last_copy > since

    def checkpoint(self, end: int) -> SourceCheckpoint:
        witness = self.witness
        if witness is not None and witness.is_reached(self.position):
            witness = None
        figures = self.copy, self.copied, self.copy_total
        return SourceCheckpoint(self.log, self.position, end, *figures, self.store, witness)

    def status(self) -> SourceStatus:
        connected = self.connected()
        return SourceStatus(
            name=self.name,
            log=self.log,
            phase=self._phase(),
            connected=connected,
            position=self.position,
            received=self.received,
            filtered=self.filtered,
            copied=self.copied,
            copy_total=self.copy_total,
            newest_ms=self.newest_ms,
            error=None if connected else self.error,
        )

    def _phase(self) -> Phase:
        if not is_oplog(self.log):
            return "sync"
        if self.copy is not None or self.position == START:
            return "copy"
        return "sync" if self.is_live else "changes"

"""The acknowledged rows of a term, on their way out of the table."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from oplog_relay.leader.end import wait
from oplog_relay.leader.flow import Flow
from oplog_relay.model.bindings import Purged
from oplog_relay.model.row import Row

_log = logging.getLogger("oplog_relay")

# Pause before rows locked in the database are purged again.
_LOCKED_S = 0.5


class Purges:
    """Chooses the rows of each purge. ``wake``: set it when there may be more of them."""

    def __init__(self, flow: Flow, clock: Callable[[], float]) -> None:
        self.wake = asyncio.Event()
        self._flow = flow
        self._clock = clock
        self._purging: list[Row] = []
        # Acknowledged rows locked in the database, and when they are purged again.
        self._locked: list[Row] = []
        self._retry_at = 0.0
        # The database keeps purged rows: logged once.
        self._has_kept = False

    def begin(self) -> list[Row]:
        """Return the rows of the next purge. ``settle`` follows unless there is none."""
        self._purging = rows = self._flow.to_purge()
        if self._locked and self._clock() >= self._retry_at:
            rows += self._locked
            self._locked = []
        return rows

    def settle(self, rows: Sequence[Row], purged: Purged) -> int:
        """Free the keys of purged rows. Return the number of these rows."""
        locked = {*purged.locked}
        done = [row for row in rows if row.id not in locked]
        if locked:
            self._locked += [row for row in rows if row.id in locked]
            self._retry_at = self._clock() + _LOCKED_S
        if purged.kept and not self._has_kept:
            self._has_kept = True
            _log.warning(
                "the purge of %d rows left %d in the table: a trigger or a policy of the database"
                " keeps them; they are sent again in the next term, out of order",
                len(rows),
                purged.kept,
            )
        self._flow.purged(done, self._clock())
        self._purging = []
        return len(done)

    def rest(self) -> list[Row]:
        """Return the rows left at the end of the term."""
        return [*self._purging, *self._locked, *self._flow.to_purge()]

    async def wait(self) -> None:
        """Wait until there may be rows to purge."""
        self.wake.clear()
        await wait(self.wake, self._retry_at - self._clock() if self._locked else None)

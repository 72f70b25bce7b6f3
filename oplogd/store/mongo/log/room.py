"""Room in a capped log: no entry may leave it before it is in the states."""

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.layout import ENTRY_OVERHEAD, Numbered
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log

_ASK_SECONDS = 0.05


class LogRoom:
    """Divides operations into fitting chunks, and lets writers wait for the fold.

    A plain log needs no room: it is trimmed only behind the checkpoint.
    """

    def __init__(self, link: Link, log: Log, lease: FoldLease) -> None:
        self._link = link
        self._log = log
        self._lease = lease
        # Mean size of the entries written here. Rises immediately, decays slowly: overestimates
        # the space needed.
        self._entry_bytes = 2.0 * ENTRY_OVERHEAD

    async def chunk(self, todo: list[Numbered]) -> list[Numbered]:
        """Return the first operations, at most a tenth of the cap, once there is room for them.

        Raises StoreUnavailableError if the fold makes no progress meanwhile.
        """
        most_operations = self._link.quirks.inserts_per_command
        if not self._log.known.capped_bytes:
            return todo[:most_operations]
        most_bytes = max(self._log.known.capped_bytes // 10, 1)
        size = count = 0
        for _, operation in todo[:most_operations]:
            size += len(operation.data) + len(operation.key) + ENTRY_OVERHEAD
            if count and size > most_bytes:
                break
            count += 1
        mean = size / count
        self._entry_bytes = max(mean, self._entry_bytes + (mean - self._entry_bytes) / 8)
        if self.is_crowded():
            await self._wait()
        return todo[:count]

    def is_crowded(self) -> bool:
        """Return whether unfolded entries fill more than half of the cap."""
        known = self._log.known
        unfolded = known.head.offset - known.folded
        return unfolded * self._entry_bytes > known.capped_bytes / 2

    async def _wait(self) -> None:
        known = self._log.known
        await self._log.newest()  # the head seen here may be of a log that is gone
        await self._log.row()
        folded, moved = known.folded, self._link.clock.monotonic()
        while self.is_crowded():
            await self._link.clock.sleep(_ASK_SECONDS)
            await self._log.row()
            now = self._link.clock.monotonic()
            if known.folded != folded:
                folded, moved = known.folded, now
            elif now - moved > self._lease.stall_seconds:
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.hosts}: no agent folds the log (offset {folded} of"
                    f" {known.head.offset}), and entries that are not folded fill half of its cap;"
                    " is the agent that holds the lease stuck?"
                )

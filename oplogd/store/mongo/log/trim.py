"""Trimming a plain log to its cap."""

from collections import deque

from oplogd.store.mongo.link.layout import LOG
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log

# A plain log is trimmed after each twentieth of its cap.
_TRIM_SHARE = 20

_FOREIGN_ENTRIES = 1_000


class Trimmer:
    """``seconds``: how long an entry stays after it was folded, see ``Timing.trim_seconds``."""

    def __init__(self, link: Link, log: Log, seconds: float) -> None:
        self._link = link
        self._log = log
        self._seconds = seconds
        self._due_at = 0
        # Offsets of the checkpoint with their monotonic times: all of the last ``seconds``, and one
        # before.
        self._folded: deque[tuple[float, int]] = deque()

    def is_due(self, folded: int) -> bool:
        """Return whether enough entries were added, by the offset of the checkpoint."""
        return folded >= self._due_at

    async def trim(self, folded: int) -> None:
        """Delete the oldest entries of a plain log larger than its cap.

        Only entries folded ``seconds`` ago go, and the last one stays. The number is computed from
        the mean size of all entries, so the log meets its cap on average. ``folded``: offset of the
        checkpoint.
        """
        folded_before = self._folded_before(folded)
        cap = (await self._log.row()).max_bytes
        stats = await self._link.database.command("collStats", LOG)
        count, size = int(stats.get("count", 0)), int(stats.get("size", 0))
        if not count or not size:
            return
        mean = size / count
        self._due_at = folded + max(1, int(cap / _TRIM_SHARE / mean))
        if size <= cap:
            return
        oldest = (await self._log.locate(0)).oldest
        if oldest is None:
            return
        upto = min(oldest.offset + int((size - cap) / mean), folded_before - 1)
        if upto >= oldest.offset:
            await self._link.log.delete_many({"n": {"$gt": 0, "$lte": upto}})
            await self._remove_foreign(upto)

    def _folded_before(self, folded: int) -> int:
        """Note the checkpoint. Return its offset of ``seconds`` ago, or 0 if that is unknown."""
        now, times = self._link.clock.monotonic(), self._folded
        if times and times[-1][1] > folded:  # it went back
            times.clear()
        if not times or times[-1][1] < folded:
            times.append((now, folded))
        while len(times) > 1 and times[1][0] <= now - self._seconds:
            times.popleft()
        return times[0][1] if times[0][0] <= now - self._seconds else 0

    async def _remove_foreign(self, upto: int) -> None:
        """Delete entries of other programs that are older than the first entry past ``upto``."""
        log = self._link.log
        first = await log.find_one({"n": {"$gt": upto}}, {"_id": 1}, sort=[("n", 1)])
        if first is None:
            return
        foreign = {"n": None, "_id": {"$lt": first["_id"]}}
        found = await log.find(foreign, {"_id": 1}).limit(_FOREIGN_ENTRIES).to_list()
        if found:
            ids = [each["_id"] for each in found]
            await log.delete_many({"n": None, "_id": {"$in": ids}})

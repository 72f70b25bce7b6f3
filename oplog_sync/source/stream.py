"""Streaming reads.

A micro-batch is the operations after one id, up to and including another. A repeated batch reads
the same from the log.
"""

import itertools
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from oplog_sync.arrow import rare_collections
from oplog_sync.errors import OptionError, SyncError, UnreachableError
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.origin import Origin, ToArrow
from oplog_sync.source.patience import Patience, patiently
from oplog_sync.source.place import Placed
from oplog_sync.source.positions import Offset
from oplogd.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1: a query stopped in a batch then ends after it
        SupportsTriggerAvailableNow = object

# How long an unchanged position counts as the newest. Spark asks an idle stream every 10 ms.
HOLD_SECONDS = 1.0

# Another agent may know less for a moment.
_SURE_AFTER = 2

# Each query of a store's newest position opens a new connection. A client of MongoDB would need an
# event loop between the queries.


class StreamReader(Placed, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        options: SourceOptions,
        origin: Origin,
        to_arrow: ToArrow,
    ) -> None:
        super().__init__(options)
        if options.end in ("now", "latest"):
            raise OptionError(
                "option end: a stream ends at an id or a time; for all that there is now use the "
                "trigger availableNow"
            )
        self._options = options
        self._origin = origin
        self._to_arrow = to_arrow
        # Last position of a query for the present operations only.
        self._target: Offset | None = None
        self._initial: Offset | None = None
        self._latest: Offset | None = None
        self._head: tuple[float, Offset] | None = None
        self._held_until = 0.0

    def initialOffset(self) -> Offset:
        # Spark asks again at the first batch: then "now" would be after its operations.
        if self._initial is None:
            found = patiently(lambda: self._origin.start("now"), self._options.retry_for)
            if self._options.start in (None, "now", "latest"):
                # The first batch is empty, and puts the position into the checkpoint.
                found |= {"start": "now"}
            self._initial = found
        return self._initial

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Return the end of the next batch, the start while no agent and no store answers.

        A query for the present operations fails after ``retryFor`` instead.
        """
        # Spark 4.1 passes neither argument: there is no limit then.
        after = start or self._latest or self.initialOffset()
        if not isinstance(after, dict) or "id" not in after:
            raise SyncError(f"position {after} is not of an oplog: it is of another source")
        if "start" in after:
            self._latest = {name: after[name] for name in after if name != "start"}
            return self._latest
        if monotonic() < self._held_until and after["id"] == (self._latest or {}).get("id"):
            return after
        latest = self._next(after, getattr(limit, "max_rows", None))
        self._held_until = monotonic() + HOLD_SECONDS if latest is after else 0.0
        self._latest = latest
        return latest

    def reportLatestOffset(self) -> Offset | None:
        """Return the newest position for the query's progress: the lag is the rest."""
        now = monotonic()
        # A query that waits for operations asks once per second, and this is its answer.
        if self._head is None or now - self._head[0] >= 2 * HOLD_SECONDS:
            try:
                self._head = now, self._origin.head()
            except (UnreachableError, StoreUnavailableError):
                return None
        head, latest = self._head[1], self._latest
        return latest if latest is not None and self._origin.is_past(latest, head) else head

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = patiently(self._origin.head, self._options.retry_for)

    def getDefaultReadLimit(self) -> Any:
        # Not in Spark 4.1.
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limit = self._options.max_operations
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if "start" in start or (start["id"] == end["id"] and "first" not in start):
            return []
        if start == self._initial and self._origin.is_past(start, end) and "copy" not in end:
            return []  # planned before its operations left the log: the next batch tells
        return patiently(lambda: self._origin.plan(start, end), self._options.retry_for)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self.check_place()
        with rare_collections():
            for rows in self._origin.rows(partition):
                yield self._to_arrow(rows)

    def stop(self) -> None:
        self._origin.close()

    def _next(self, after: Offset, limit: int | None) -> Offset:
        """Return the end of the next batch, ``after`` itself if there is nothing to read."""
        target = self._target
        if target is None:
            try:
                latest = self._latest_of(after, limit)
            except (UnreachableError, StoreUnavailableError):
                return after
            if limit is None or latest is after:
                self._head = monotonic(), latest
            return latest
        is_unread = "first" in after and after["id"] == target["id"]
        if not is_unread and not self._origin.is_past(target, after):
            # Raises an error if the position is of another history of the log.
            found = patiently(lambda: self._origin.latest(after, limit), self._options.retry_for)
            if "copy" in found:
                return self._copied(found, after)
            return found if found["id"] == after["id"] and _is_news(found, after) else after
        patience = Patience(self._options.retry_for)
        for looks in itertools.count():
            try:
                latest = self._latest_of(after, limit)
            except (UnreachableError, StoreUnavailableError) as error:
                patience.wait(error)
                continue
            if "copy" in latest and latest is not after:
                return self._copied(latest, after)
            if latest is not after:
                return {**latest, **target} if self._origin.is_past(latest, target) else latest
            if looks >= _SURE_AFTER and self._origin.has_left(target):
                return target  # reading it tells of the gap
            ends = f"the log ends at {after['id']}, before {target['id']}, where it ended before"
            patience.wait(SyncError(ends))
        raise AssertionError("the wait raises in the end")

    def _copied(self, end: Offset, after: Offset) -> Offset:
        """Return the end of a copy. A query for the present operations ends there at the latest.

        In the log of another store its target does not count.
        """
        is_other = end["base"] != after["base"]
        if self._target is not None and (is_other or self._origin.is_past(end, self._target)):
            self._target = end
        return end

    def _latest_of(self, after: Offset, limit: int | None) -> Offset:
        latest = self._origin.latest(after, limit)
        return latest if _is_news(latest, after) else after


def _is_news(latest: Offset, after: Offset) -> bool:
    """Return whether a batch ends there. It is empty if only the store is known now."""
    is_same = latest["id"] == after["id"] and latest.get("store") == after.get("store")
    return not is_same or "first" in after

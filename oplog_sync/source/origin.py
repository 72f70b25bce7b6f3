"""Where rows come from: a store, its agents, or a topic."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from oplog_sync.errors import OptionError
from oplog_sync.source.positions import Bound, Instant, Offset, bound
from oplogd.model.event_id import EventId

ADVICE = "start the query with a new checkpoint, or set the option onGap to states or copy"

START_ANEW = (
    "and the states do not show which objects were deleted since; "
    "empty the query's tables and start it with a new checkpoint"
)


# Makes a batch of the rows of an origin.
ToArrow = Callable[[Any], pa.RecordBatch]


class Origin(Protocol):
    """Plans and reads ranges of one log. Spark pickles it for its workers.

    Raises UnreachableError and StoreUnavailableError if a later attempt may succeed.
    """

    def start(self, default: Bound) -> Offset:
        """Return where a query begins. ``default``: without the option ``start``."""

    def latest(self, after: Offset, limit: int | None) -> Offset:
        """Return the end of the batch after a position, of at most ``limit`` operations."""

    def head(self) -> Offset:
        """Return the newest position."""

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks for the operations after ``start``, up to and including ``end``."""

    def rows(self, part: InputPartition) -> Iterator[Sequence[Any]]: ...

    def is_past(self, position: Offset, other: Offset) -> bool:
        """Return whether a position is later in the log than another."""

    def has_left(self, position: Offset) -> bool:
        """Return whether there is nothing left of the log up to a position that it had."""

    def close(self) -> None: ...


def end_of(text: str) -> EventId | Instant | None:
    """Return the option ``end``. None: the newest operation."""
    end = bound("end", text)
    if end == "now":
        return None
    if isinstance(end, str) or (isinstance(end, EventId) and end.millis > 999):
        raise OptionError("option end: must be now, an event id of an oplog or a time")
    return end

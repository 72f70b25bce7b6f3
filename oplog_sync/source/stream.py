"""Streaming reads of operations.

Spark's offsets are ``{"id": <event id>}``: the last operation of a batch. A micro-batch is the
operations after one id, up to and including another. A repeated batch reads the same from the log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from oplog_sync.backend import Range, StoreRow, Wanted, split
from oplog_sync.errors import OptionError, SyncError
from oplog_sync.source.agent import AgentStream, is_past
from oplog_sync.source.columns import arrow_batch
from oplog_sync.source.options import SourceOptions
from oplogd.errors import PositionError
from oplogd.model.event_id import EventId, Mark, Millis, format_id, parse_position

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1: a query stopped in a batch then ends after it
        SupportsTriggerAvailableNow = object

# How long an unchanged position counts as the newest. Spark asks an idle stream every 10 ms.
HOLD_SECONDS = 1.0

# Each query of the newest position opens a new connection. A client of MongoDB would need an event
# loop between the queries, and an agent sends its position only when a stream begins.

_ADVICE = "start the query with a new checkpoint, or set the option onGap to states"

_START_ANEW = (
    "and the states do not show which objects were deleted since; "
    "empty the query's tables and start it with a new checkpoint"
)


@dataclass
class LogPart(InputPartition):
    """Operations of the log. None may be missing."""

    rows: Range


@dataclass
class StatePart(InputPartition):
    """States in place of missed operations: since ``since_ms``, with offsets up to ``upto``."""

    rows: Range
    since_ms: int
    upto: int


@dataclass
class AgentPart(InputPartition):
    start: str
    end: str


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._source = StoreSource(options) if options.agent is None else AgentSource(options)
        # Last position of a query for the present operations only.
        self._target: str | None = None
        self._initial: str | None = None
        self._latest = ""
        self._held_until = 0.0

    def initialOffset(self) -> dict[str, str]:
        # Spark asks again at the first batch: then "now" would be after its operations.
        if self._initial is None:
            self._initial = self._source.start()
        return {"id": self._initial}

    def latestOffset(
        self, start: dict[str, str] | None = None, limit: Any = None
    ) -> dict[str, str]:
        # Spark 4.1 passes neither argument: there is no limit then.
        after = start["id"] if start else ""
        if monotonic() < self._held_until and after in ("", self._latest):
            return {"id": self._latest}
        latest = self._source.latest(after, getattr(limit, "max_rows", None))
        self._held_until = monotonic() + HOLD_SECONDS if latest == (after or self._latest) else 0.0
        self._latest = latest
        target = self._target
        if target is not None and is_past(parse_position(latest), parse_position(target)):
            latest = target
        return {"id": latest}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._source.latest("", None)

    def getDefaultReadLimit(self) -> Any:
        # Not in Spark 4.1.
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limit = self._options.max_operations
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return self._source.plan(start["id"], end["id"]) if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._source.rows(partition):
            yield arrow_batch(rows, self._schema)


class StoreSource:
    """Reads the store, with any number of tasks per batch. Positions are event ids."""

    def __init__(self, options: SourceOptions) -> None:
        self._backend = options.backend()
        self._options = options

    def start(self) -> str:
        self._backend.check()
        located = self._backend.locate(0)
        if self._options.start == "now":
            return format_id(located.head)
        if self._options.start == "oldest":
            oldest = located.oldest
            return format_id(Mark(oldest.offset - 1, oldest.ms) if oldest else located.head)
        position = _position(self._options.start)
        if isinstance(position, Millis):
            raise OptionError(
                "option start: a store's stream starts at now, oldest or an id of 24 digits"
            )
        return self._options.start

    def latest(self, after: str, limit: int | None) -> str:
        """Return the newest position, at most ``limit`` operations after ``after``."""
        head = self._backend.locate(0).head
        if limit is not None and after and (last := _event_id(after).offset + limit) < head.offset:
            at_ms = self._backend.locate(last).at_ms
            if at_ms is not None:
                return format_id(Mark(last, at_ms))
        return format_id(head)

    def plan(self, start: str, end: str) -> Sequence[InputPartition]:
        first, last = _event_id(start), _event_id(end)
        located = self._backend.locate(first.offset)
        foreign = first.offset > located.head.offset or located.at_ms not in (None, first.ms)
        oldest = located.oldest.offset if located.oldest else located.head.offset + 1
        if not foreign and first.offset + 1 >= oldest:
            whole = (first.offset, last.offset)
            return [LogPart(part) for part in split(whole, self._options.partition_rows)]
        left = f"has left the log, whose oldest offset is {oldest}"
        reason = "belongs to another log" if foreign else left
        if self._options.on_gap == "fail":
            raise SyncError(f"position {start} {reason}; {_ADVICE}")
        known_from = max(located.created_ms, located.purged_ms)
        if foreign or first.offset + 1 < located.first_offset or first.ms < known_from:
            raise SyncError(f"position {start} {reason}, {_START_ANEW}")
        self._backend.settle()
        since = first.ms - first.ms % 1000
        ranges = self._backend.state_ranges(self._options.partition_rows)
        return [StatePart(part, since, last.offset) for part in ranges]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        if isinstance(part, StatePart):
            wanted = Wanted(ms=(part.since_ms, None), offset=(None, part.upto))
            yield from self._backend.states(part.rows, wanted)
            return
        assert isinstance(part, LogPart)
        expected = part.rows[0] + 1
        for rows in self._backend.operations(part.rows, Wanted()):
            if rows[0].offset != expected or rows[-1].offset - expected != len(rows) - 1:
                break
            yield rows
            expected = rows[-1].offset + 1
        if expected != part.rows[1] + 1:
            left = f"the operations from offset {expected} on have left the log during the read"
            raise SyncError(f"{left}; {_ADVICE}")


class AgentSource:
    """Reads an agent's event stream, one task per batch."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.agent is not None
        self._agent = AgentStream(options.agent, options.password)
        self._start = options.start
        self._bridge_gaps = options.on_gap == "states"
        if options.max_operations is not None:
            raise OptionError(
                "option maxOperationsPerTrigger: a stream from an agent cannot be limited; read "
                "from the store"
            )

    def start(self) -> str:
        if self._start == "now":
            return self._agent.position()
        if self._start == "oldest":
            raise OptionError(
                "option start: an agent's stream starts at now, at 0 "
                "(every object), or at an event id"
            )
        _position(self._start)
        return self._start

    def latest(self, after: str, limit: int | None) -> str:
        return self._agent.position()

    def plan(self, start: str, end: str) -> Sequence[InputPartition]:
        return [AgentPart(start, end)]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        assert isinstance(part, AgentPart)
        asked_for_states = isinstance(_position(part.start), Millis)
        for kind, rows in self._agent.read(part.start, part.end):
            if kind != "operations" and not asked_for_states and not self._bridge_gaps:
                left = f"position {part.start} has left the log of the agent, or was never in it"
                raise SyncError(f"{left}; {_ADVICE}")
            if kind == "reset" and not asked_for_states:
                raise SyncError(f"position {part.start} is unknown to the agent, {_START_ANEW}")
            if rows:
                yield rows


def _position(text: str) -> EventId | Millis:
    try:
        return parse_position(text)
    except PositionError as error:
        raise OptionError(f"option start: {error}") from None


def _event_id(text: str) -> EventId:
    position = parse_position(text)
    if isinstance(position, Millis):
        raise SyncError(
            f"position {text} is not an event id: was the checkpoint made with the option agent?"
        )
    return position

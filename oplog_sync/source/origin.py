"""Where the operations come from: a store, or its agents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import Range, StoreRow, Wanted, split
from oplog_sync.errors import OptionError, SyncError
from oplog_sync.source.agent import AgentLog, AgentPart
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.positions import Bound, Instant, Offset, bound, is_past, offset
from oplogd.model.event_id import EventId, Mark, Millis, format_id, parse_position
from oplogd.store import LogBounds

_ADVICE = "start the query with a new checkpoint, or set the option onGap to states"

_START_ANEW = (
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

    def close(self) -> None: ...


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


def make_origin(options: SourceOptions) -> Origin:
    return AgentOrigin(options) if options.agent else StoreOrigin(options)


class StoreOrigin:
    """Reads the store, with any number of tasks per batch. Positions are event ids."""

    def __init__(self, options: SourceOptions) -> None:
        self._backend = options.backend()
        self._options = options
        self._wanted = options.wanted()
        self._end = None if options.end is None else _end(options.end)

    def start(self, default: Bound) -> Offset:
        self._backend.check()
        located = self._backend.locate(0)
        given = default if self._options.start is None else bound("start", self._options.start)
        if isinstance(given, EventId):
            return offset(format_id(Mark(given.offset, given.ms)))
        oldest = located.oldest
        if given == "now" or oldest is None:
            return offset(format_id(located.head))
        if isinstance(given, Instant):
            before = self._backend.seek(given.ms - 1) if given.ms > 0 else Mark(0, 0)
            if before.offset >= oldest.offset:
                return offset(format_id(before))
            if oldest.offset > max(1, located.first_offset) and self._options.on_gap == "fail":
                raise OptionError(
                    f"option start: operations since {self._options.start} have left the log, "
                    f"whose oldest is {format_id(oldest)}; start at oldest"
                )
        if given == "everything":
            raise OptionError(
                "option start: 0, every object first, is for streams from agents; from a store "
                "read the table states first"
            )
        return offset(format_id(Mark(oldest.offset - 1, oldest.ms)))

    def latest(self, after: Offset, limit: int | None) -> Offset:
        head = self._last(self._backend.locate(0).head)
        first = _event_id(after["id"]).offset
        if head.offset <= first:
            return after
        if limit is not None and (last := first + limit) < head.offset:
            at_ms = self._backend.locate(last).at_ms
            if at_ms is not None:
                return offset(format_id(Mark(last, at_ms)))
        return offset(format_id(head))

    def head(self) -> Offset:
        return offset(format_id(self._last(self._backend.locate(0).head)))

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = _event_id(start["id"]), _event_id(end["id"])
        located = self._backend.locate(first.offset)
        foreign = first.offset > located.head.offset or located.at_ms not in (None, first.ms)
        oldest = located.oldest.offset if located.oldest else located.head.offset + 1
        if not foreign and first.offset + 1 >= oldest:
            whole = (first.offset, last.offset)
            return [LogPart(part) for part in split(whole, self._options.partition_rows)]
        left = f"has left the log, whose oldest offset is {oldest}"
        reason = "belongs to another log" if foreign else left
        if self._options.on_gap == "fail":
            raise SyncError(f"position {start['id']} {reason}; {_ADVICE}")
        if foreign or not _states_bridge(first, located):
            raise SyncError(f"position {start['id']} {reason}, {_START_ANEW}")
        self._backend.settle()
        since = first.ms - first.ms % 1000
        ranges = self._backend.state_ranges(self._options.partition_rows)
        return [StatePart(part, since, last.offset) for part in ranges]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        if isinstance(part, StatePart):
            wanted = self._wanted._replace(ms=(part.since_ms, None), offset=(None, part.upto))
            yield from self._backend.states(part.rows, wanted)
            return
        assert isinstance(part, LogPart)
        if self._wanted == Wanted():
            yield from self._whole(part)
            return
        yield from self._backend.operations(part.rows, self._wanted)
        # Rows left out look like rows that are gone. Rows leave from the oldest on.
        oldest = self._backend.locate(0).oldest
        if oldest is None or oldest.offset > part.rows[0] + 1:
            raise _left(part.rows[0] + 1)

    def is_past(self, position: Offset, other: Offset) -> bool:
        return is_past(position["id"], other["id"])

    def close(self) -> None:
        pass

    def _whole(self, part: LogPart) -> Iterator[list[StoreRow]]:
        expected = part.rows[0] + 1
        for rows in self._backend.operations(part.rows, Wanted()):
            if rows[0].offset != expected or rows[-1].offset - expected != len(rows) - 1:
                break
            yield rows
            expected = rows[-1].offset + 1
        if expected != part.rows[1] + 1:
            raise _left(expected)

    def _last(self, head: Mark) -> Mark:
        """Return the last entry that the option ``end`` allows."""
        end = self._end
        if isinstance(end, Instant) and head.ms >= end.ms:
            return self._backend.seek(end.ms - 1)
        if isinstance(end, EventId) and end.offset < head.offset:
            return Mark(end.offset, end.ms)
        return head


class AgentOrigin:
    """Reads the log of agents, one task per batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._log = AgentLog(options.agents(), options.retry_for)
        self._options = options
        self._wanted = options.wanted()
        self._start = None if options.start is None else bound("start", options.start)
        self._end = None if options.end is None else _end(options.end)

    def start(self, default: Bound) -> Offset:
        given = self._start or default
        if given == "now":
            return self.head()
        if given == "everything":
            return offset("0")
        if isinstance(given, EventId):
            return offset(format_id(Mark(given.offset, given.ms)))
        first = given.ms if isinstance(given, Instant) else None
        found = self._log.poll(first, inclusive=True, limit=1)
        if found.gap and self._options.on_gap == "fail":
            raise OptionError(
                f"option start: operations since {self._options.start} have left the log; "
                "start at oldest"
            )
        return offset(found.operations[0].id, first=True) if found.operations else self.head()

    def latest(self, after: Offset, limit: int | None) -> Offset:
        if isinstance(parse_position(after["id"]), Millis):
            # "0": every object is still to be read. Any other: the log was empty.
            is_idle = after["id"] != "0" and not self._log.poll(None, inclusive=True, limit=1)[0]
            return after if is_idle else self.head()
        end = after
        inclusive, left = "first" in after, limit or 1
        while left:
            found = self._log.poll(end["id"], inclusive=inclusive, limit=left).operations
            if not found:
                break
            end = offset(found[-1].id)
            inclusive, left = False, left - len(found)
        if limit is None and end is not after:
            end = self.head()
        return self._bounded(end, after)

    def head(self) -> Offset:
        head = offset(self._log.position())
        return self._bounded(head, head)

    def _bounded(self, end: Offset, after: Offset) -> Offset:
        """Return the end, at most the option ``end``. ``after``: a batch may begin behind it."""
        if not isinstance(self._end, EventId):
            return end
        last = format_id(Mark(self._end.offset, self._end.ms))
        if not is_past(end["id"], last):
            return end
        return after if after is not end and is_past(after["id"], last) else offset(last)

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from_ms = self._start.ms if isinstance(self._start, Instant) else None
        before_ms = self._end.ms if isinstance(self._end, Instant) else None
        return [AgentPart(start["id"], end["id"], "first" in start, from_ms, before_ms)]

    def copy(self) -> Sequence[InputPartition]:
        """Return the task that reads every live object."""
        return [AgentPart("0", self.head()["id"], copy=True)]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        assert isinstance(part, AgentPart)
        asked_for_states = isinstance(parse_position(part.start), Millis)
        bridge_gaps = self._options.on_gap == "states"
        with closing(self._log):
            for kind, rows in self._log.read(part, self._wanted):
                if kind != "operations" and not asked_for_states and not bridge_gaps:
                    left = f"position {part.start} has left the log of the agent"
                    raise SyncError(f"{left}, or was never in it; {_ADVICE}")
                if kind == "reset" and not asked_for_states:
                    raise SyncError(f"position {part.start} is unknown to the agent, {_START_ANEW}")
                if rows:
                    yield rows

    def is_past(self, position: Offset, other: Offset) -> bool:
        return is_past(position["id"], other["id"])

    def close(self) -> None:
        self._log.close()


def _end(text: str) -> EventId | Instant | None:
    """Return the option ``end``. None: the newest operation."""
    end = bound("end", text)
    if end == "now":
        return None
    if isinstance(end, str):
        raise OptionError("option end: must be now, an event id of 24 digits or a time")
    return end


def _states_bridge(first: EventId, located: LogBounds) -> bool:
    """Return whether the states show all changes since a position that has left the log."""
    known_from = max(located.created_ms, located.purged_ms)
    return first.offset + 1 >= located.first_offset and first.ms >= known_from


def _left(offset_: int) -> SyncError:
    left = f"the operations from offset {offset_} on have left the log during the read"
    return SyncError(f"{left}; {_ADVICE}")


def _event_id(text: str) -> EventId:
    position = parse_position(text)
    if isinstance(position, Millis):
        raise SyncError(
            f"position {text} is not an event id: was the checkpoint made with the option agent?"
        )
    return position

"""Reads of a store, by any number of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import Range, StoreRow, Wanted, split
from oplog_sync.errors import GapError, OptionError, SyncError
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.origin import ADVICE, START_ANEW, end_of
from oplog_sync.source.positions import Bound, Instant, Offset, bound, is_past, offset, position_of
from oplogd.model.event_id import EventId, Mark, Millis, format_id
from oplogd.store import LogBounds


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
class CopiedStates(InputPartition):
    """All states, as they were after an offset or later."""

    rows: Range
    fresh: int


class StoreOrigin:
    """Reads the store, with any number of tasks per batch. Positions are event ids."""

    def __init__(self, options: SourceOptions) -> None:
        self._backend = options.backend()
        self._options = options
        self._wanted = options.wanted()
        self._end = None if options.end is None else end_of(options.end)

    def start(self, default: Bound) -> Offset:
        self._backend.check()
        given = default if self._options.start is None else bound("start", self._options.start)
        if given == "everything" and self._options.is_mirror:
            return offset("0")
        if given == "everything":
            raise OptionError(
                "option start: 0, every object first, is for streams from agents; from a store "
                "read the table states first"
            )
        located = self._backend.locate(0)
        if isinstance(given, EventId):
            return offset(self._options.start or "")
        oldest = located.oldest
        if given == "now" or oldest is None:
            return offset(format_id(located.head))
        if isinstance(given, Instant):
            before = self._backend.seek(given.ms - 1) if given.ms > 0 else Mark(0, 0)
            if before.offset >= oldest.offset:
                return offset(format_id(before))
            if oldest.offset > max(1, located.first_offset) and self._options.on_gap != "states":
                left = f"operations since {self._options.start} have left the log"
                if self._options.is_mirror:
                    raise GapError(left)
                raise OptionError(
                    f"option start: {left}, whose oldest is {format_id(oldest)}; start at oldest"
                )
        return offset(format_id(Mark(oldest.offset - 1, oldest.ms)))

    def latest(self, after: Offset, limit: int | None) -> Offset:
        first = _event_id(after)
        located = self._backend.locate(first.offset)
        if _is_foreign(first, located):
            raise self._refused(after["id"], "belongs to another log")
        head = self._last(located.head)
        if head.offset <= first.offset:
            return after
        if limit is not None and (last := first.offset + limit) < head.offset:
            at_ms = self._backend.locate(last).at_ms
            if at_ms is not None:
                return offset(format_id(Mark(last, at_ms)))
        return offset(format_id(head))

    def head(self) -> Offset:
        return offset(format_id(self._last(self._backend.locate(0).head)))

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = _event_id(start), _event_id(end)
        located = self._backend.locate(first.offset)
        oldest = located.oldest.offset if located.oldest else located.head.offset + 1
        is_foreign = _is_foreign(first, located)
        if not is_foreign and first.offset + 1 >= oldest:
            whole = (first.offset, last.offset)
            return [LogPart(part) for part in split(whole, self._options.partition_rows)]
        left = f"has left the log, whose oldest offset is {oldest}"
        reason = "belongs to another log" if is_foreign else left
        if self._options.on_gap != "states" or is_foreign or not _states_bridge(first, located):
            raise self._refused(start["id"], reason)
        self._backend.settle()
        since = first.ms - first.ms % 1000
        ranges = self._backend.state_ranges(self._options.partition_rows)
        return [StatePart(part, since, last.offset) for part in ranges]

    def copy(self, end: Offset) -> Sequence[InputPartition]:
        self._backend.settle()
        ranges = self._backend.state_ranges(self._options.partition_rows)
        return [CopiedStates(part, end["offset"]) for part in ranges]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        if isinstance(part, StatePart):
            wanted = self._wanted.of_states()
            wanted = wanted._replace(ms=(part.since_ms, None), offset=(None, part.upto))
            yield from self._backend.states(part.rows, wanted)
            return
        if isinstance(part, CopiedStates):
            yield from self._backend.states(part.rows, self._wanted._replace(fresh=part.fresh))
            return
        assert isinstance(part, LogPart)
        if self._wanted == Wanted():
            yield from self._whole(part)
            return
        yield from self._backend.operations(part.rows, self._wanted)
        # Rows left out look like rows that are gone. Rows leave from the oldest on.
        oldest = self._backend.locate(0).oldest
        if oldest is None or oldest.offset > part.rows[0] + 1:
            raise self._left(part.rows[0] + 1)

    def is_past(self, position: Offset, other: Offset) -> bool:
        return is_past(position["id"], other["id"])

    def has_left(self, position: Offset) -> bool:
        return False  # a log keeps its newest operation

    def close(self) -> None:
        pass

    def _refused(self, position: str, reason: str) -> GapError:
        if self._options.on_gap == "fail":
            return GapError(f"position {position} {reason}; {ADVICE}")
        return GapError(f"position {position} {reason}, {START_ANEW}")

    def _left(self, at: int) -> GapError:
        left = f"the operations from offset {at} on have left the log during the read"
        advice = ADVICE if self._options.on_gap == "fail" else "start the query again"
        return GapError(f"{left}; {advice}")

    def _whole(self, part: LogPart) -> Iterator[list[StoreRow]]:
        expected = part.rows[0] + 1
        for rows in self._backend.operations(part.rows, Wanted()):
            if rows[0].offset != expected or rows[-1].offset - expected != len(rows) - 1:
                break
            yield rows
            expected = rows[-1].offset + 1
        if expected != part.rows[1] + 1:
            raise self._left(expected)

    def _last(self, head: Mark) -> Mark:
        """Return the last entry that the option ``end`` allows."""
        end = self._end
        if isinstance(end, Instant) and head.ms >= end.ms:
            return self._backend.seek(end.ms - 1)
        if isinstance(end, EventId) and end.offset < head.offset:
            return Mark(end.offset, end.ms)
        return head


def _states_bridge(first: EventId, located: LogBounds) -> bool:
    """Return whether the states show all changes since a position that has left the log."""
    known_from = max(located.created_ms, located.purged_ms)
    return first.offset + 1 >= located.first_offset and first.ms >= known_from


def _is_foreign(position: EventId, located: LogBounds) -> bool:
    """Return whether no entry of this log has or had the position."""
    if position.offset > located.head.offset or located.at_ms not in (None, position.ms):
        return True
    if located.first_offset == 1 or position.offset >= located.first_offset:
        return False
    # Of an earlier epoch, unless the query began before the first entry of this one.
    spans = located.set_aside
    is_aside = any(after < position.ms < before for after, before in spans)
    return position.ms < located.created_ms or is_aside


def _event_id(found: Offset) -> EventId:
    position = position_of(found)
    if isinstance(position, Millis):
        raise SyncError(
            f"position {found['id']} is not an event id: was the checkpoint made with the option "
            "agent?"
        )
    return position

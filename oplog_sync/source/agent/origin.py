"""Reads through agents, by one task per batch."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import StoreRow
from oplog_sync.errors import GapError, OptionError
from oplog_sync.source.agent.log import AgentLog, AgentPart
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.origin import ADVICE, START_ANEW, end_of
from oplog_sync.source.positions import Bound, Instant, Offset, bound, is_past, offset, position_of
from oplogd.model.event_id import EventId, Mark, format_id

_LEFT = "has left the log of the agent, or was never in it"


class AgentOrigin:
    """Reads the log of agents, one task per batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._log = AgentLog(options.agents(), options.retry_for)
        self._options = options
        self._wanted = options.wanted()
        self._start = None if options.start is None else bound("start", options.start)
        self._end = None if options.end is None else end_of(options.end)
        self._last: str | None = None

    def start(self, default: Bound) -> Offset:
        given = self._start or default
        if given == "now":
            return offset(self._log.position())
        if given == "everything":
            return offset("0")
        if isinstance(given, EventId):
            return offset(self._options.start or "")
        first = given.ms if isinstance(given, Instant) else None
        found = self._log.poll(first, inclusive=True, limit=1)
        if first is not None and found.gap and self._options.on_gap != "states":
            left = f"operations since {self._options.start} have left the log"
            if self._options.is_mirror:
                raise GapError(left)
            raise OptionError(f"option start: {left}; start at oldest")
        if found.operations:
            return offset(found.operations[0].id, first=True)
        here = offset(self._log.position())
        return here if first is None else here | {"from": first}

    def latest(self, after: Offset, limit: int | None) -> Offset:
        begin, has_left = self._begin(after)
        if has_left:
            return self._past_gap(after)
        if begin is None:
            return after
        if begin["id"] == "0":
            return self.head()
        end = begin
        inclusive, left = "first" in begin, limit or 1
        while left:
            found = self._log.poll(end["id"], inclusive=inclusive, limit=left)
            if found.gap:
                return self._past_gap(after)
            if not found.operations:
                break
            end = offset(found.operations[-1].id)
            inclusive, left = False, left - len(found.operations)
        if end is begin:
            return after
        if limit is None:
            # Another agent may answer, and know less.
            head = offset(self._log.position())
            end = head if is_past(head["id"], end["id"]) else end
        return self._bounded(end, after)

    def head(self) -> Offset:
        head = offset(self._log.position())
        return self._bounded(head, head)

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin, has_left = self._begin(start)
        if has_left:
            self._past_gap(start)
            return [AgentPart(start["id"], end["id"])]
        if begin is None:
            return []
        return [AgentPart(begin["id"], end["id"], "first" in begin)]

    def _begin(self, after: Offset) -> tuple[Offset | None, bool]:
        """Return the position with an id from which operations can be asked for.

        None: there is no operation behind it yet. "0" stays: every object is still to be read.
        And whether operations behind the position have left the log.
        """
        position = position_of(after)
        if after["id"] == "0" or (isinstance(position, EventId) and "from" not in after):
            return after, False
        # The log was empty, or had nothing from the wanted time on.
        found = self._log.poll(after.get("from", position.ms), inclusive=True, limit=1)
        if not found.operations:
            return None, False
        return offset(found.operations[0].id, first=True), found.gap

    def _past_gap(self, after: Offset) -> Offset:
        """Return the end of a batch of states, after a position that is not in the log."""
        head = self.head()
        if self._options.on_gap != "states":
            raise GapError(f"position {after['id']} {_LEFT}; {ADVICE}")
        if not is_past(head["id"], after["id"]):
            raise GapError(f"position {after['id']} is unknown to the agent, {START_ANEW}")
        return head

    def _bounded(self, end: Offset, after: Offset) -> Offset:
        """Return the end, at most the option ``end``. ``after``: a batch may begin behind it."""
        if isinstance(self._end, EventId):
            last = format_id(Mark(self._end.offset, self._end.ms))
        elif self._end is None or end["ms"] < self._end.ms:
            return end
        else:
            self._last = self._log.last_before(self._end.ms) if self._last is None else self._last
            last = self._last or "0"
        if not is_past(end["id"], last):
            return end
        is_first = "first" in after and after["id"] == last
        is_behind = after is end or is_first or is_past(last, after["id"])
        return offset(last) if is_behind else after

    def copy(self, end: Offset | None = None) -> Sequence[InputPartition]:
        """Return the task that reads every live object."""
        return [AgentPart("0", self.head()["id"], copy=True)]

    def rows(self, part: InputPartition) -> Iterator[list[StoreRow]]:
        assert isinstance(part, AgentPart)
        asked_for_states = part.start == "0"
        bridge_gaps = self._options.on_gap == "states"
        with closing(self._log):
            for kind, rows in self._log.read(part, self._wanted):
                if kind != "operations" and not asked_for_states and not bridge_gaps:
                    raise GapError(f"position {part.start} {_LEFT}; {ADVICE}")
                if kind == "reset" and not asked_for_states:
                    raise GapError(f"position {part.start} is unknown to the agent, {START_ANEW}")
                if rows:
                    yield rows

    def is_past(self, position: Offset, other: Offset) -> bool:
        return is_past(position["id"], other["id"])

    def has_left(self, position: Offset) -> bool:
        return False  # a log keeps its newest operation

    def close(self) -> None:
        self._log.close()

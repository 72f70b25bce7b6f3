"""Read the oplog through its agents: positions by polls, rows from an event stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPResponse
from typing import Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import CHUNK_BYTES, CHUNK_ROWS, StoreRow, Wanted
from oplog_sync.errors import UnreachableError
from oplog_sync.source.http import Agents
from oplog_sync.source.patience import Patience, patiently
from oplogd.model.event_id import EventId, parse_position
from oplogd.store import decode_stored

# "reset": discard everything read before; the states that follow are complete.
ChunkKind = Literal["operations", "states", "reset"]

_POLL = "/v1/namespaces/system/topics/oplog/poll"
_ACCEPT = {"Accept": "text/event-stream"}
_READ_BYTES = 1 << 18
# Operations in the answer to a poll. An agent may send fewer.
_PAGE = 1000
_ID_DIGITS = 24
_OPERATIONS = ("insert", "update", "delete")


class Polled(msgspec.Struct):
    """An operation in the answer to a poll. ``payload``: JSON with the event first."""

    id: str
    payload: str


class PolledOperations(NamedTuple):
    """Operations from a position on. ``gap``: operations at the position are gone."""

    operations: list[Polled]
    gap: bool


class _Block(NamedTuple):
    id: str
    event: str
    data: str


@dataclass
class AgentPart(InputPartition):
    """Operations after ``start`` up to ``end``; ``first``: and the one at ``start``, too.

    ``start`` "0": every object first. ``copy``: stop when the states are complete.
    """

    start: str
    end: str
    first: bool = False
    copy: bool = False


class AgentLog:
    """The oplog behind agents. ``retry_for``: seconds without an answer after which reads fail."""

    def __init__(self, agents: Agents, retry_for: float) -> None:
        self._agents = agents
        self._retry_for = retry_for

    def position(self) -> str:
        """Return the id of the log's newest entry. Raises SyncError."""
        for block in self._blocks("checkpoint=1&name=oplog-sync", None):
            if not block.event:
                return block.id
        raise AssertionError("a stream that ends raises")

    def poll(self, start: str | int | None, *, inclusive: bool, limit: int) -> PolledOperations:
        """Return at most ``limit`` operations from an id or a time in ms on.

        An agent may return fewer, but at least one if there is any. Raises SyncError.
        """
        asked = {"startFrom": start, "inclusive": inclusive, "limit": limit}
        answer = self._agents.ask("POST", _POLL, asked)
        try:
            operations = msgspec.json.decode(answer.body, type=list[Polled])
        except msgspec.MsgspecError:
            what = "its answer to a poll is none of an agent"
            raise UnreachableError(f"agent {self._agents.answered}: {what}") from None
        return PolledOperations(operations, answer.headers.get("oplog-gap") == "1")

    def last_before(self, ms: int) -> str | None:
        """Return the id of the last operation logged before a time; empty if there is none.

        None: no operation was logged at or after it yet. Bisects, so it takes some 40 polls.
        """
        found = self.poll(ms, inclusive=True, limit=1).operations
        if not found:
            return None
        after = found[0].id

        def is_before(at: int) -> bool:
            """Return whether operations at or after ``at`` begin before that operation."""
            return self.poll(at, inclusive=True, limit=1).operations[0].id != after

        step, high = 1, ms
        while not is_before(low := max(0, ms - step)):
            if low == 0:
                return ""
            step, high = step * 2, low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_before(middle) else (low, middle)
        last, start = "", str(low)
        while True:
            for each in self._from(start):
                if each.id == after:
                    return last
                last = each.id
            start = last

    def _from(self, start: str) -> list[Polled]:
        """Return a page of operations from a time in ms on, or behind an id."""
        is_id = len(start) == _ID_DIGITS
        given = start if is_id else int(start)
        return self.poll(given, inclusive=not is_id, limit=_PAGE).operations

    def close(self) -> None:
        self._agents.close()

    def read(self, part: AgentPart, wanted: Wanted) -> Iterator[tuple[ChunkKind, list[StoreRow]]]:
        """Yield the rows of a part in chunks. A "reset" has no rows.

        After a break it continues behind the last row, at the next agent. Raises SyncError.
        """
        reading = _Reading(part, wanted)
        if part.first:
            row = self._operation(part.start)
            if row is not None:
                yield "operations", reading.passing(row) if _matches(row, wanted) else []
                if part.start == part.end:
                    return
        patience = Patience(self._retry_for)
        while True:
            try:
                for kind, rows in reading.chunks(self._blocks(_query(wanted), reading.position)):
                    patience.succeed()
                    yield kind, rows
                return
            except UnreachableError as error:
                if rows := reading.taken():
                    patience.succeed()
                    yield reading.kind, rows
                patience.wait(error)

    def _operation(self, id_: str) -> StoreRow | None:
        """Return the operation with this id, None if it has left the log."""

        def ask() -> PolledOperations:
            return self.poll(id_, inclusive=True, limit=1)

        found = patiently(ask, self._retry_for).operations
        if not found or found[0].id != id_:
            return None  # the stream sends the states changed since then
        payload = found[0].payload.encode()
        event, _, rest = payload.removeprefix(b'{"event":"').partition(b'",')
        return _row(_Block(id_, event.decode(), "{" + rest.decode()), int(id_[12:], 16))

    def _blocks(self, query: str, last_event_id: str | None) -> Iterator[_Block]:
        headers = _ACCEPT | ({} if last_event_id is None else {"Last-Event-ID": last_event_id})
        with self._agents.stream(f"/ops?{query}", headers) as response:
            yield from _parsed(response)
            raise UnreachableError("an agent ended its stream; it is stopping")


class _Reading:
    """The rows of a part that are read and not yet taken, and the position behind them."""

    def __init__(self, part: AgentPart, wanted: Wanted) -> None:
        self.position = part.start
        self.kind: ChunkKind = "operations"
        self._rows: list[StoreRow] = []
        self._bytes = 0
        self._part = part
        self._wanted = wanted
        end = parse_position(part.end)
        # None: the log was empty when the part was planned, and has only states.
        self._end = end.offset if isinstance(end, EventId) else None

    def taken(self) -> list[StoreRow]:
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows

    def passing(self, row: StoreRow) -> list[StoreRow]:
        """Return the row, or nothing if its event is not wanted. The agent filters the rest."""
        events = self._wanted.events if row.offset else self._wanted.of_states().events
        return [row] if events is None or row.event in events else []

    def chunks(self, blocks: Iterator[_Block]) -> Iterator[tuple[ChunkKind, list[StoreRow]]]:
        """Yield chunks up to the end of the part."""
        end = self._end
        for block in blocks:
            if block.event == "reset":
                yield "reset", []
                continue
            # 0: a replication id.
            offset = int(block.id[12:], 16) if len(block.id) == _ID_DIGITS else 0
            is_past = bool(offset) and end is not None and offset > end
            if block.event in _OPERATIONS:
                kind: ChunkKind = "operations" if offset else "states"
                if kind != self.kind and (rows := self.taken()):
                    yield self.kind, rows
                self.kind = kind
                if not is_past:
                    self._rows += self.passing(_row(block, offset))
                    self._bytes += len(block.data)
                    self.position = block.id
                if len(self._rows) >= CHUNK_ROWS or self._bytes >= CHUNK_BYTES:
                    yield kind, self.taken()
            elif len(block.id) == _ID_DIGITS and not is_past:
                self.position = block.id
            if is_past or self._is_end(block):
                break
        if rows := self.taken():
            yield self.kind, rows

    def _is_end(self, block: _Block) -> bool:
        """Return whether the agent has sent everything up to the end of the part."""
        is_id = len(block.id) == _ID_DIGITS
        if block.event == "live" and (self._part.copy or not is_id):
            return True  # a log that is empty has only states
        # An operation, `live` or a checkpoint.
        return is_id and not self._part.copy and (block.id == self._part.end or self._end is None)


def _matches(row: StoreRow, wanted: Wanted) -> bool:
    """Return whether an operation has one of the types, and one of the parents."""
    data = decode_stored(row.data)
    has_type = wanted.types is None or data.type in wanted.types
    return has_type and (wanted.parents is None or not wanted.parents.isdisjoint(data.parents))


def _query(wanted: Wanted) -> str:
    filters = [("checkpoint", "1"), ("name", "oplog-sync")]
    if wanted.types is not None:
        filters += [("types", each) for each in sorted(wanted.types)]
    if wanted.parents is not None:
        filters += [("parents", each) for each in sorted(wanted.parents)]
        if len(wanted.parents) == 1:
            filters.append(filters[-1])  # repeated: then a value may hold a comma
    return urlencode(filters)


def _parsed(response: HTTPResponse) -> Iterator[_Block]:
    """Yield the blocks of an event stream, with whatever has arrived."""
    rest = b""
    while data := response.read1(_READ_BYTES):
        *whole, rest = (rest + data).split(b"\n\n")
        for raw in whole:
            fields = {b"id": b"", b"event": b"", b"data": b""}
            for line in raw.split(b"\n"):
                name, _, value = line.partition(b": ")
                fields[name] = value
            if id_ := fields[b"id"]:
                yield _Block(id_.decode(), fields[b"event"].decode(), fields[b"data"].decode())


def _row(block: _Block, offset: int) -> StoreRow:
    data = decode_stored(block.data)
    ms = _ms(int(block.id[:12], 16)) if offset else int(block.id)
    return StoreRow(f"{data.type}/{data.id}", block.event, offset, ms, block.data)


@lru_cache(maxsize=64)
def _ms(digits: int) -> int:
    """Return the time in the first digits of an id."""
    return (digits >> 16) * 1000 + (digits & 0xFFFF)

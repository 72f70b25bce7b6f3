"""Streams that mirror the objects: after a gap they go on with a copy of all live objects.

Each row has a version. A target that writes nothing over a larger version, and removes what is
below the version of a row ``live``, is equal to the source after every batch with such a row.

    operation         base + its offset
    copied object     base + the offset of the batch's end, at which the copy is complete
    row ``live``      the same: everything with a smaller version was deleted at the source

So versions depend on Spark's offsets alone. They stay the same when a batch is repeated, whatever
the clock and the machine. A copy is at least as new as its version tells: what changed meanwhile
comes again as an operation, with a larger version. The base changes if the log does, for a store
that was replaced: then offsets may be smaller than before.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition

from oplog_sync.backend import StoreRow
from oplog_sync.errors import GapError, SyncError
from oplog_sync.source.columns import arrow_batch, full_schema
from oplog_sync.source.origin import Origin
from oplog_sync.source.positions import Bound, Offset, offset, position_of
from oplogd.clock import now_ms
from oplogd.model.event_id import EventId

VERSION = "version"
# The event of the row at the end of a copy.
LIVE = "live"

_PER_MS = 1 << 20
# Looks for a position past the end of the log, and seconds between them.
_LOOKS, _PAUSE = 20, 0.5


class Copying(Origin, Protocol):
    """An origin that can copy all live objects, and raises GapError."""

    def copy(self, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks that read the live objects, at least as new as a position.

        They may read deleted ones, too.
        """


class VersionedRows(NamedTuple):
    """``version``: of all rows. None: ``base`` plus the offset of each.

    ``is_end``: the only row is the end of a copy.
    """

    rows: Sequence[StoreRow]
    base: int
    version: int | None
    is_end: bool = False


@dataclass
class OperationsPart(InputPartition):
    """Operations of a batch up to ``end``. ``part``: of the origin."""

    part: InputPartition
    end: Offset


@dataclass
class CopyPart(InputPartition):
    """Live objects of a copy at ``end``. ``part``: of the origin, None for the end of the copy."""

    part: InputPartition | None
    end: Offset


class CopyingOrigin:
    """Adds versions and copies to an origin.

    Its offsets have one more member, ``base``, and ``copy`` at the end of a batch with a copy.
    """

    def __init__(
        self,
        origin: Copying,
        *,
        clock: Callable[[], int] = now_ms,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._origin = origin
        self._clock = clock
        self._sleep = sleep
        # The end of the last batch that this process has planned. It is in the log.
        self._latest: Offset | None = None

    def start(self, default: Bound) -> Offset:
        try:
            begin = self._origin.start(default)
        except GapError:
            begin = offset("0")
        return begin | {"base": self._clock() * _PER_MS}

    def latest(self, after: Offset, limit: int | None) -> Offset:
        self._latest = self._behind(after, limit)
        return self._latest

    def head(self) -> Offset:
        return self._origin.head()

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if self._is_readable(start, end):
            try:
                parts = self._origin.plan(_plain(start), _plain(end))
            except GapError:  # the batch was planned before its operations left the log
                pass
            else:
                return [OperationsPart(part, end) for part in parts]
        return [*(CopyPart(part, end) for part in self._origin.copy(end)), CopyPart(None, end)]

    def rows(self, part: InputPartition) -> Iterator[VersionedRows]:
        if isinstance(part, CopyPart):
            yield from self._copied(part)
            return
        assert isinstance(part, OperationsPart)
        try:
            for rows in self._origin.rows(part.part):
                yield VersionedRows(rows, _base(part.end), None)
        except GapError:  # they have left the log since the driver planned
            for each in (*self._origin.copy(part.end), None):
                yield from self._copied(CopyPart(each, part.end))

    def is_past(self, position: Offset, other: Offset) -> bool:
        return self._origin.is_past(position, other)

    def has_left(self, position: Offset) -> bool:
        return self._origin.has_left(position)

    def close(self) -> None:
        self._origin.close()

    def _behind(self, after: Offset, limit: int | None) -> Offset:
        if after["id"] == "0":
            return self._behind_copy(after)
        if not _is_event_id(after):
            # The log was empty. It does not tell whether it is still the same.
            head = self._origin.head()
            return after if head["id"] == after["id"] else self._behind_copy(after)
        try:
            latest = self._origin.latest(_plain(after), limit)
        except GapError:
            return self._behind_copy(after)
        is_unread = "first" in after
        if latest["id"] == after["id"] and not is_unread:
            return after
        return {**latest, "base": _base(after)}

    def _behind_copy(self, after: Offset) -> Offset:
        head = self._origin.head()
        base = _base(after)
        if head["offset"] <= after["offset"] and after["id"] != "0":
            base = _version(after) + 1  # the log of another store
        return {**head, "base": base, "copy": True}

    def _is_readable(self, start: Offset, end: Offset) -> bool:
        """Return whether a batch has operations, which may have left the log."""
        if "copy" in end or not _is_event_id(start):
            return False
        if end == self._latest:
            return True
        # It is repeated. A first batch whose begin was asked for again has another base: the begin
        # may be another one. The log may be an older copy of itself, which ends earlier.
        return _base(start) == _base(end) and self._has(end)

    def _has(self, end: Offset) -> bool:
        """Return whether the log has a position. An agent may get to know it a little later."""
        for _ in range(_LOOKS):
            if not self._origin.is_past(_plain(end), self._origin.head()):
                return True
            self._sleep(_PAUSE)
        return False

    def _copied(self, part: CopyPart) -> Iterator[VersionedRows]:
        version = _version(part.end)
        if part.part is None:
            yield VersionedRows([StoreRow("", LIVE, 0, 0, "")], 0, version, is_end=True)
            return
        for rows in self._origin.rows(part.part):
            live = [row for row in rows if row.event != "delete"]
            yield VersionedRows(live, 0, version)


def versioned_schema() -> T.StructType:
    return full_schema().add(VERSION, T.LongType())


def versioned_batch(found: VersionedRows, schema: T.StructType) -> pa.RecordBatch:
    """Return rows with their versions. The row at the end of a copy has only event and version."""
    fixed = found.version
    versions = [row.offset + found.base if fixed is None else fixed for row in found.rows]
    columns = {VERSION: pa.array(versions, pa.int64())}
    plain = T.StructType([field for field in schema.fields if field.name != VERSION])
    if plain.fields:
        batch = arrow_batch([] if found.is_end else found.rows, plain)
        if found.is_end:
            row: dict[str, Any] = dict.fromkeys(plain.names)
            given = {"event": LIVE} if "event" in row else {}
            batch = pa.RecordBatch.from_pylist([row | given], batch.schema)
        columns |= dict(zip(plain.names, batch.columns, strict=True))
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names})


def _plain(found: Offset) -> Offset:
    return {name: value for name, value in found.items() if name not in ("base", "copy")}


def _base(found: Offset) -> int:
    """Raises SyncError for an offset of a query without versions."""
    if "base" not in found:
        raise SyncError(
            f"position {found['id']} has no version: the checkpoint was made without onGap copy;"
            " begin with a new one"
        )
    return int(found["base"])


def _version(found: Offset) -> int:
    return _base(found) + int(found["offset"])


def _is_event_id(found: Offset) -> bool:
    return isinstance(position_of(found), EventId)

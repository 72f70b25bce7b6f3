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
from oplog_sync.source.positions import Bound, Offset, offset
from oplogd.clock import now_ms

VERSION = "version"
# The event of the row at the end of a copy.
LIVE = "live"

_PER_MS = 1 << 20


class Copying(Origin, Protocol):
    """An origin that can copy all live objects, and raises GapError."""

    def copy(self) -> Sequence[InputPartition]:
        """Return the tasks that read the live objects. They may read deleted ones, too."""


class VersionedRows(NamedTuple):
    """``version``: of all rows. None: ``base`` plus the offset of each.

    ``end``: the rows are one, the end of a copy.
    """

    rows: Sequence[StoreRow]
    base: int
    version: int | None
    is_end: bool = False


@dataclass
class OperationsPart(InputPartition):
    """Operations up to a batch's end of this version. ``part``: of the origin."""

    part: InputPartition
    base: int
    version: int


@dataclass
class CopyPart(InputPartition):
    """Live objects of a copy. ``part``: of the origin, None for the end of the copy."""

    part: InputPartition | None
    version: int


class CopyingOrigin:
    """Adds versions and copies to an origin.

    Its offsets have one more member, ``base``, and ``copy`` at the end of a batch with a copy.
    ``everything``: the query begins with one.
    """

    def __init__(
        self, origin: Copying, *, everything: bool, clock: Callable[[], int] = now_ms
    ) -> None:
        self._origin = origin
        self._everything = everything
        self._clock = clock

    def start(self, default: Bound) -> Offset:
        begin = offset("0") if self._everything else self._origin.start(default)
        return begin | {"base": self._clock() * _PER_MS}

    def latest(self, after: Offset, limit: int | None) -> Offset:
        if after["id"] == "0":
            return self._behind_copy(after)
        try:
            latest = self._origin.latest(_plain(after), limit)
        except GapError:
            return self._behind_copy(after)
        return {**latest, "base": _base(after)}

    def head(self) -> Offset:
        return self._origin.head()

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        version = _version(end)
        if start["id"] != "0" and "copy" not in end:
            try:
                parts = self._origin.plan(_plain(start), _plain(end))
            except GapError:  # the batch was planned before its operations left the log
                pass
            else:
                return [OperationsPart(part, _base(end), version) for part in parts]
        return [*(CopyPart(part, version) for part in self._origin.copy()), CopyPart(None, version)]

    def rows(self, part: InputPartition) -> Iterator[VersionedRows]:
        if isinstance(part, CopyPart):
            yield from self._copied(part)
            return
        assert isinstance(part, OperationsPart)
        try:
            for rows in self._origin.rows(part.part):
                yield VersionedRows(rows, part.base, None)
        except GapError:  # they have left the log since the driver planned
            for each in self._origin.copy():
                yield from self._copied(CopyPart(each, part.version))
            yield from self._copied(CopyPart(None, part.version))

    def is_past(self, position: Offset, other: Offset) -> bool:
        return self._origin.is_past(position, other)

    def has_left(self, position: Offset) -> bool:
        return self._origin.has_left(position)

    def close(self) -> None:
        self._origin.close()

    def _behind_copy(self, after: Offset) -> Offset:
        head = self._origin.head()
        base = _base(after)
        if head["offset"] <= after["offset"] and after["id"] != "0":
            base = _version(after) + 1  # the log of another store
        return {**head, "base": base, "copy": True}

    def _copied(self, part: CopyPart) -> Iterator[VersionedRows]:
        if part.part is None:
            yield VersionedRows([StoreRow("", LIVE, 0, 0, "")], 0, part.version, is_end=True)
            return
        for rows in self._origin.rows(part.part):
            live = [row for row in rows if row.event != "delete"]
            yield VersionedRows(live, 0, part.version)


def versioned_schema() -> T.StructType:
    return full_schema().add(VERSION, T.LongType())


def versioned_batch(found: VersionedRows, schema: T.StructType) -> pa.RecordBatch:
    """Return rows with their versions. The row at the end of a copy has only event and version."""
    plain = T.StructType([field for field in schema.fields if field.name != VERSION])
    batch = arrow_batch([] if found.is_end else found.rows, plain)
    if found.is_end:
        row: dict[str, Any] = dict.fromkeys(plain.names)
        given = {"event": LIVE} if "event" in row else {}
        batch = pa.RecordBatch.from_pylist([row | given], batch.schema)
    if VERSION not in schema.names:
        return batch
    fixed = found.version
    versions = [row.offset + found.base if fixed is None else fixed for row in found.rows]
    column = pa.array(versions, pa.int64())
    columns = dict(zip(plain.names, batch.columns, strict=True)) | {VERSION: column}
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

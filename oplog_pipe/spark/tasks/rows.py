"""The rows of a query on their way to a sink, and what tasks tell the driver. No I/O."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message

LIVE = "live"
"""``op`` of the row at the end of a copy. It has ``source`` and ``version``."""
LETTER = "letter"
"""``op`` of a refused message of a source: ``data`` is a line for the dead-letter file."""
FAILURE = "failure"
"""``op`` of the failure that has ended a task. ``data``: see ``Failure``."""
REPORT = "report"
"""``op`` of the figures of a task. ``data``: see ``Report``."""

COLUMNS = (
    "op string, source string, version bigint, at bigint, place bigint, namespace string,"
    " id string, timestamp bigint, data string, letter string"
)
"""- ``at``: of the entry in the log, ms since 1970. ``place``: among the rows that were read. Both
  part rows of one version, as a copy has them.
- ``timestamp``: of the change, ms since 1970. ``data``: JSON.
- ``letter``: the message before all steps, as JSON for a dead letter; None: it is as it was.
"""
_SCHEMA = pa.schema(
    [
        ("op", pa.string()),
        ("source", pa.string()),
        ("version", pa.int64()),
        ("at", pa.int64()),
        ("place", pa.int64()),
        ("namespace", pa.string()),
        ("id", pa.string()),
        ("timestamp", pa.int64()),
        ("data", pa.string()),
        ("letter", pa.string()),
    ]
)
OPS = ("insert", "update", "delete")
WRONG = "wrong"
"""``op`` of a row that is no message, although it should be. ``letter``: a sentence about it."""
WRONG_OP = "op of a row is not insert, update or delete"


class Row(NamedTuple):
    """See ``COLUMNS``. A row that is no message has only some of them."""

    op: str
    source: str | None = None
    version: int | None = None
    at: int | None = None
    place: int | None = None
    namespace: str | None = None
    id: str | None = None
    timestamp: int | None = None
    data: str | None = None
    letter: str | None = None

    @property
    def is_message(self) -> bool:
        return self.op in OPS

    def check(self) -> None:
        """Raise SinkError for a row of a query that is no message."""
        if self.op == WRONG:
            raise SinkError(f"select: {self.letter}")
        if self.op in OPS and None in self[:-1]:
            name = self._fields[self.index(None)].replace("namespace", "type")
            raise SinkError(f"select: {name} of a row is null")

    def message(self, offset: int) -> Message:
        """Return a message row as a fresh message. ``offset``: its number in the task."""
        row: Any = self
        return Message(
            row.op,
            row.timestamp,
            row.namespace,
            row.data.encode(),
            id=row.id,
            offset=offset,
            version=row.version,
            source=row.source,
        )

    def original(self) -> str:
        """Return the message before all steps, as JSON for a dead letter."""
        if self.letter is not None:
            return self.letter
        names = ("source", "version", "op", "timestamp", "namespace", "id")
        members: dict[str, Any] = {name: getattr(self, name) for name in names}
        members["data"] = msgspec.Raw((self.data or "null").encode())
        return msgspec.json.encode(members).decode()


class Failure(msgspec.Struct, frozen=True):
    """``kind``: name of the class of the error."""

    kind: str
    text: str


class Report(msgspec.Struct, frozen=True):
    """Of one task.

    - ``attempt``: 0: the first one. ``stage``: of the writing tasks; -1: none.
    - ``first``, ``last``: smallest and largest version of the messages that a query gets.
    """

    written: int = 0
    filtered: int = 0
    retries: int = 0
    attempt: int = 0
    stage: int = -1
    first: int | None = None
    last: int | None = None


Told = TypeVar("Told", Failure, Report)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    columns = [column.to_pylist() for column in batch.columns]
    return map(Row._make, zip(*columns, strict=True))


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=False)]
    if not arrays:
        return pa.RecordBatch.from_pylist([], _SCHEMA)
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def letter(row: Row, reason: str) -> Row:
    """Return the row of a refused message. ``reason``: names no content."""
    line = row.original()[:-1] + ',"error":' + msgspec.json.encode(reason).decode() + "}"
    return Row(LETTER, row.source, data=line)


def told(op: str, content: msgspec.Struct) -> Row:
    return Row(op, data=msgspec.json.encode(content).decode())


def told_of(rows: Iterable[Row], op: str, kind: type[Told]) -> list[Told]:
    """Return the contents of rows of one ``op``."""
    return [msgspec.json.decode(row.data or "", type=kind) for row in rows if row.op == op]


def ends_of(rows: Iterable[Row]) -> dict[str, int]:
    """Return the versions of the ends of copies, by their sources."""
    found: dict[str, int] = {}
    for row in rows:
        if row.op == LIVE and row.source is not None:
            found[row.source] = max(found.get(row.source, 0), row.version or 0)
    return found

"""Writes the rows of a DataFrame through agents: as messages of a topic, or as operations.

At least once: a repeated request or task stores its rows again.
"""

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from oplog_sync.arrow import milliseconds
from oplog_sync.errors import AgentRefusedError, OptionError, SyncError
from oplog_sync.topics.agent import AgentClient, Retrying, path_of
from oplogd.errors import FieldError, MessageError
from oplogd.model.message import MAX_MESSAGE_BYTES, message_of
from oplogd.model.names import TopicName
from oplogd.model.operation import decode, format_ms

# Of one request. With its defaults an agent takes 100,000 messages and 16 MB.
MAX_ROWS = 10_000
MAX_BYTES = 4 * 1024 * 1024

_KINDS = {
    "payload": ("string", "binary"),
    "key": ("string",),
    "headers": ("array<struct<key:string,value:string>>", "map<string,string>"),
}
JSON = {"Content-Type": "application/json"}
_LINES = {"Content-Type": "application/x-ndjson"}
# Any time: only whether the operation is valid counts.
_ARRIVAL = format_ms(0)

_encode = msgspec.json.Encoder().encode

# Sends rows with one request. Raises AgentRefusedError.
Post = Callable[[Sequence[bytes]], object]


@dataclass
class PublishedRows(WriterCommitMessage):
    """``messages``: number of messages published by a task."""

    messages: int


class TopicWriter(DataSourceArrowWriter):
    """Publishes rows to a topic. The rows of a task keep their order."""

    def __init__(
        self, agents: AgentClient, name: TopicName, schema: T.StructType, retry: Retrying
    ) -> None:
        """Raises OptionError: see ``check_columns``."""
        check_columns(schema)
        self._agents = agents
        self._path = f"{path_of(name)}/publish"
        self._retry = retry

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:
        return PublishedRows(_send(messages_of(iterator), self._post))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        text = "the write failed; messages that its tasks have published stay in the topic"
        print(f"oplog: {text}", file=sys.stderr)

    def _post(self, messages: Sequence[bytes]) -> None:
        body = b'{"messages":[' + b",".join(messages) + b"]}"
        self._retry(lambda: self._agents.ask("POST", self._path, body, JSON))


def check_columns(schema: T.StructType) -> None:
    """Raise OptionError unless each column is one of a message and has its type."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "payload" not in kinds:
        raise OptionError("column payload is missing; a message has payload, key and headers")
    for column, kind in kinds.items():
        if column not in _KINDS:
            raise OptionError(
                f"column {column} is unknown; a message has {', '.join(_KINDS)}; select them"
            )
        if kind not in _KINDS[column]:
            raise OptionError(
                f"column {column} is of type {kind}; it must be {' or '.join(_KINDS[column])}"
            )


def messages_of(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return each row as a message in JSON. Raises SyncError for one that is no message."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return (_message(row, number) for number, row in enumerate(rows, 1))


def write_operations(
    agents: AgentClient, rows: Iterable[Mapping[str, Any]], retry: Retrying
) -> int:
    """Send rows to ``POST /ops`` in batches, in their order. Return their number.

    A row has ``event``, ``type`` and ``id``, and maybe ``timestamp`` (RFC 3339, or a datetime, UTC
    without a zone) and ``parents``. None counts as absent. At least once. Raises SyncError, before
    its request, if a row is no valid operation.
    """

    def post(operations: Sequence[bytes]) -> None:
        body = b"\n".join(operations)
        retry(lambda: agents.ask("POST", "/ops", body, _LINES))

    operations = (_operation(row, number) for number, row in enumerate(rows, 1))
    return _send(operations, post)


def _send(rows: Iterable[bytes], post: Post) -> int:
    """Send rows in batches of at most MAX_ROWS and about MAX_BYTES. Return their number."""
    waiting: list[bytes] = []
    size = total = 0
    for row in rows:
        if waiting and (len(waiting) == MAX_ROWS or size + len(row) > MAX_BYTES):
            send_batch(waiting, post)
            waiting, size = [], 0
        waiting.append(row)
        size += len(row) + 1
        total += 1
    if waiting:
        send_batch(waiting, post)
    return total


def send_batch(rows: Sequence[bytes], post: Post) -> None:
    """Send rows, in halves if the agent takes smaller requests only."""
    try:
        post(rows)
    except AgentRefusedError as error:
        if error.status != 413 or len(rows) == 1:
            raise
        half = len(rows) // 2
        send_batch(rows[:half], post)
        send_batch(rows[half:], post)


def _message(row: Mapping[str, Any], number: int) -> bytes:
    payload, encoding = row["payload"], None
    try:
        if isinstance(payload, bytes):
            if len(payload) > MAX_MESSAGE_BYTES:
                raise MessageError("payload", f"has more than {MAX_MESSAGE_BYTES:,} bytes")
            try:
                payload = payload.decode()
            except UnicodeDecodeError:
                payload, encoding = base64.b64encode(payload).decode(), "base64"
        headers = row.get("headers")
        pairs = headers and [
            (each["key"], each["value"]) if isinstance(each, dict) else each for each in headers
        ]
        return message_of(payload, row.get("key"), msgspec.Raw(_encode(pairs)), None, encoding).data
    except MessageError as error:
        raise _invalid(error, number) from None


def _operation(row: Mapping[str, Any], number: int) -> bytes:
    given = {name: value for name, value in row.items() if value is not None}
    timestamp = given.get("timestamp")
    if isinstance(timestamp, datetime):
        given["timestamp"] = format_ms(milliseconds(timestamp))
    text = _encode(given)
    try:
        decode(text, _ARRIVAL)
    except FieldError as error:
        raise _invalid(error, number) from None
    return text


def _invalid(error: FieldError, number: int) -> SyncError:
    row = f"row {number} of its task"
    if error.field == "operation":  # all of them together
        return SyncError(f"{row}: the operation {error.reason}")
    column = "payload" if error.field == "message" else error.field
    return SyncError(f"column {column}, {row}: {error.reason}")

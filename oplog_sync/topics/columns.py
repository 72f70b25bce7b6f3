"""The columns of topics. Turns messages into Arrow batches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from oplog_sync.arrow import INSTANT, batch_of
from oplog_sync.errors import OptionError, SyncError
from oplog_sync.topics.place import TopicMessage
from oplog_sync.topics.position import TopicOptions
from oplogd.model.message import Content
from oplogd.model.message_id import parse_message_id, stamp

_MS = pa.timestamp("ms", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.string())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_HEADERS_TYPE = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.StringType())])
)

# The second time in the id of a message that was not stored before its publication.
_NOT_STORED = 16 * "0"

# Columns that a read has only if they are asked for: they repeat the others.
_ON_REQUEST = frozenset({"event", "version", "data"})
# Versions of one sequence. So one ms has 2^20, as in commit logs of pipes.
_VERSION_BITS = 4

_encode = msgspec.json.Encoder().encode

_Messages = Sequence[TopicMessage]


class _Column(NamedTuple):
    kind: T.DataType
    arrow: pa.DataType
    values: Callable[[_Messages], Any]
    of_content: bool = False


def _content(message: TopicMessage) -> Content:
    assert message.content is not None
    return message.content


def _texts(messages: _Messages) -> list[str | None]:
    contents = [_content(each) for each in messages]
    for message, content in zip(messages, contents, strict=True):
        if content.encoding is not None:
            raise SyncError(
                f"column payload: the payload of message {message.id} is not UTF-8; set the option "
                "binary to true"
            )
    return [content.payload for content in contents]


def _headers(messages: _Messages) -> list[list[dict[str, str]] | None]:
    return [
        None if headers is None else [{"key": name, "value": value} for name, value in headers]
        for headers in (_content(each).headers for each in messages)
    ]


def _times(messages: _Messages) -> pa.Array:
    return pa.array([int(each.id[:16], 16) for each in messages], _MS).cast(INSTANT)


def _event(content: Content) -> str:
    """Return ``delete`` if the message says that the object with its key is gone."""
    return "delete" if content.key is not None and content.payload is None else "insert"


def _version(id_: str) -> int:
    """Return a number that ascends with the entries of the topic: equal within a commit."""
    return stamp(int(id_[:16], 16), int(id_[16:20], 16)) << _VERSION_BITS


def _data(message: TopicMessage) -> str:
    """Return the message as a poll shows it."""
    return f'{{"id":"{message.id}",{_encode(_content(message)).decode()[1:]}'


def _lsn(id_: str) -> int | None:
    """Return the number of a record in its transaction, None for any other message."""
    if id_[20:36] == _NOT_STORED:  # almost always
        return None
    found = parse_message_id(id_)
    return found.write_ms - 1 if found.write_ms and not found.is_stored else None


_PAYLOAD = _Column(T.StringType(), pa.string(), _texts, of_content=True)
_BINARY_PAYLOAD = _Column(
    T.BinaryType(),
    pa.binary(),
    lambda messages: [_content(each).raw() for each in messages],
    of_content=True,
)


def _columns(topic: str, is_binary: bool) -> dict[str, _Column]:
    text = T.StringType()
    return {
        "id": _Column(text, pa.string(), lambda messages: [each.id for each in messages]),
        "key": _Column(
            text,
            pa.string(),
            lambda messages: [_content(each).key for each in messages],
            of_content=True,
        ),
        "payload": _BINARY_PAYLOAD if is_binary else _PAYLOAD,
        "headers": _Column(_HEADERS_TYPE, _HEADERS, _headers, of_content=True),
        "time": _Column(T.TimestampType(), INSTANT, _times),
        "topic": _Column(text, pa.string(), lambda messages: [topic] * len(messages)),
        "txn": _Column(text, pa.string(), lambda messages: [each.txn for each in messages]),
        "lsn": _Column(
            T.LongType(), pa.int64(), lambda messages: [_lsn(each.id) for each in messages]
        ),
        "event": _Column(
            text,
            pa.string(),
            lambda messages: [_event(_content(each)) for each in messages],
            of_content=True,
        ),
        "version": _Column(
            T.LongType(), pa.int64(), lambda messages: [_version(each.id) for each in messages]
        ),
        "data": _Column(
            text, pa.string(), lambda messages: [_data(each) for each in messages], of_content=True
        ),
    }


def topic_schema(is_binary: bool) -> T.StructType:
    """Return the columns of a topic that a read has by itself.

    ``is_binary``: the payload is a column of bytes.
    """
    columns = _columns("", is_binary).items()
    return T.StructType(
        [T.StructField(name, each.kind) for name, each in columns if name not in _ON_REQUEST]
    )


class TopicColumns:
    """The columns of one read. Raises OptionError unless each exists and has its type.

    ``decodes``: whether a column needs the contents of messages.
    """

    def __init__(self, schema: T.StructType, options: TopicOptions) -> None:
        self._known = partial(_columns, str(options.name), options.is_binary)
        known = self._known()
        for field in schema.fields:
            if field.name not in known:
                raise OptionError(
                    f"schema: there is no column {field.name}; the columns of a topic are "
                    f"{', '.join(known)}"
                )
            kind = known[field.name].kind.simpleString()
            if field.dataType.simpleString() != kind:
                raise OptionError(f"schema: the column {field.name} is of type {kind}")
        self._names = schema.fieldNames()
        self.decodes = any(known[name].of_content for name in self._names)

    def batch(self, messages: Sequence[TopicMessage]) -> pa.RecordBatch:
        """Return the batch of messages. Raises SyncError if a payload is no text."""
        known = self._known()  # functions of columns cannot be pickled
        columns = [known[name] for name in self._names]
        schema = pa.schema([(name, known[name].arrow) for name in self._names])
        return batch_of((each.values(messages) for each in columns), schema)

"""Records of a transaction as bytes, checked before they leave. No I/O."""

import json
from collections.abc import Mapping
from typing import Any

from oplogc.topics.messages.message import Sendable, members
from oplogc.topics.messages.names import OPLOG, topic_name
from oplogc.wire import operation
from oplogc.wire.errors import OperationError

Writable = Sendable | Mapping[str, Any]
"""A message, or an operation as a mapping."""

_FIELDS = ("event", "type", "id", "parents", "timestamp")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def content(topic: str, message: Writable) -> bytes:
    """Return the members of a record without its lsn, and the end of the object.

    Raises ValueError for a bad name, MessageError or OperationError for a bad message.
    """
    name = topic_name(topic)
    if name == OPLOG and isinstance(message, Mapping):
        return b'"topic":"%s","payload":%s}' % (str(name).encode(), _operation(message))
    whole = members(message)  # type: ignore[arg-type]  # it refuses a mapping
    return _encode({"topic": str(name), **whole})[1:].encode()


def record(lsn: int, content: bytes) -> bytes:
    """Return a record in JSON."""
    return b'{"lsn":%d,%s' % (lsn, content)


def content_size(record: bytes) -> int:
    """Return the size of a record without its lsn."""
    return len(record) - record.index(b",") - 1


def _operation(given: Mapping[str, Any]) -> bytes:
    for name in given:
        if name not in _FIELDS:
            raise OperationError(str(name)[:50], "is not a member of an operation")
    for name in _FIELDS[:3]:
        if name not in given:
            raise OperationError(name, "is required")
    return operation.encode(
        given["event"],
        given["type"],
        given["id"],
        given.get("parents") or (),
        given.get("timestamp"),
    )

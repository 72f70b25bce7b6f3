"""Rows as the body of a publish. No I/O."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from oplog_relay.model.row import Row
from oplogc.topics.messages.names import OPLOG, TopicName, topic_name

ID_HEADER = "outbox-id"
# Characters in the name of a namespace or topic.
MAX_NAME = 249
_encode = msgspec.json.Encoder().encode


class EncodeError(Exception):
    """A row can never be sent. The message gives the reason, without the row's value."""


@lru_cache(1024)
def topic_of(topic: str) -> TopicName:
    """Return the topic of a row; ``oplog`` is ``system/oplog``. Raises EncodeError."""
    if topic == OPLOG.topic:
        return OPLOG
    try:
        return topic_name(topic if len(topic) <= 2 * MAX_NAME else f"{topic[:MAX_NAME]}…")
    except ValueError as error:
        raise EncodeError(f"topic: {error}") from None


def encode(topic: TopicName, rows: Sequence[Row]) -> bytes:
    """Return the body of a publish request for rows of one topic. Raises EncodeError."""
    try:
        return _encode({"messages": [_message(topic, row) for row in rows]})
    except UnicodeEncodeError:
        raise EncodeError("the text has an unpaired surrogate") from None


def _message(topic: TopicName, row: Row) -> dict[str, Any] | str:
    if row.fault:
        raise EncodeError(row.fault)
    if topic == OPLOG:  # the JSON as a string: an invalid operation cannot spoil the body
        return _deletion(row) if row.value is None else row.value
    headers = [*row.headers, (ID_HEADER, str(row.id))]
    return {"payload": row.value, "key": row.key, "headers": headers}


def _deletion(row: Row) -> str:
    type_, slash, id_ = row.key.partition("/")
    if not slash:
        raise EncodeError("key: must be type/id if the value is null, which deletes the object")
    if not isinstance(row.create_time, datetime):
        raise EncodeError("create_time: is null; it is the time of the deletion")
    if row.create_time.tzinfo is None:
        raise EncodeError("create_time: has no time zone")
    try:
        time = row.create_time.astimezone(UTC).isoformat(timespec="milliseconds")
    except OverflowError:
        raise EncodeError("create_time: is out of range") from None
    operation = {"event": "delete", "type": type_, "id": id_, "timestamp": time}
    return _encode(operation).decode()

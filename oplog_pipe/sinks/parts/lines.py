"""Messages as JSON objects on one line each. No I/O."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message

# Most characters of a cached text. Types of objects have up to 255 bytes.
_MAX_CACHED = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(4096)
def rfc3339(timestamp: int) -> str:
    """Return a time in milliseconds since 1970 as RFC 3339, with milliseconds and ``Z``.

    Raises ValueError outside of the years 1 to 9999.
    """
    try:
        time = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        raise ValueError(f"the timestamp {timestamp} is out of range") from None
    return time.isoformat("T", "milliseconds")[:-6] + "Z"


def quoted(text: str) -> bytes:
    """Return text as a JSON string. Raises ValueError for half a surrogate pair."""
    # The length is checked before the cache, which would keep a long text.
    return _short_quoted(text) if len(text) <= _MAX_CACHED else msgspec.json.encode(text)


@lru_cache(1024)
def _short_quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def short_line(message: Message) -> bytes:
    """Return ``{"offset", "op", "timestamp", "namespace", "data"}`` and a line feed."""
    return b'{"offset":%d,"op":"%s","timestamp":"%s","namespace":%s,"data":%s}\n' % (
        message.offset,
        message.op.encode(),
        rfc3339(message.timestamp).encode(),
        quoted(message.namespace),
        message.json(),
    )


def full_line(message: Message) -> bytes:
    """Return the same with version, source and id.

    The version is text of 19 digits: JavaScript would round a number.
    """
    return (
        b'{"offset":%d,"version":"%s","source":%s,"op":"%s","timestamp":"%s","namespace":%s,'
        b'"id":%s,"data":%s}\n'
    ) % (
        message.offset,
        version_text(message.version).encode(),
        quoted(message.source),
        message.op.encode(),
        rfc3339(message.timestamp).encode(),
        quoted(message.namespace),
        quoted(message.id),
        message.json(),
    )


def version_text(version: int) -> str:
    return f"{version:019d}"


def encode_lines(
    messages: Sequence[Message], encode: Callable[[Message], bytes] = short_line
) -> list[bytes]:
    """Return a line for each message. Raises SinkError with the index of an invalid one."""
    lines: list[bytes] = []
    for message in messages:
        try:
            line = encode(message)
        except Exception as error:
            raise not_json(len(lines), message, error) from error
        # Outside of strings a line feed is white space. Inside of them JSON allows none.
        if line.find(b"\n") != len(line) - 1:
            line = line[:-1].replace(b"\n", b" ") + b"\n"
        lines.append(line)
    return lines


def not_json(index: int, message: Message, error: Exception) -> SinkError:
    """Return the error for a message that JSON cannot express."""
    return SinkError(f"{message!r} cannot be written as JSON: {error}", index=index)

"""Messages of topics, sent and received. No I/O."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from oplogc.wire.errors import MessageError

MAX_BYTES = 1024 * 1024
"""Payload, key and headers of a message together."""
MAX_KEY_BYTES = 1024
MAX_TTL_SECONDS = 100 * 365 * 86_400
MIN_MAX_BYTES = 1 << 20

ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{24}|[0-9]{1,13}", re.ASCII)
"""Ids of messages, ids of operations in ``system/oplog``, and times in milliseconds."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish.

    ``headers``: pairs of name and value. ``ttl``: time to live in seconds, at most the topic's.
    """

    payload: str | bytes | None
    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of a topic. Its id is a position in the topic."""

    id: str
    payload: str | bytes | None
    """Text if the payload is UTF-8, else bytes. None if the message has none."""
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    sequence: int = field(default=0, repr=False, compare=False)
    event: Literal["message"] = field(default="message", repr=False)

    @property
    def event_id(self) -> str:
        """The id, under the name common to all events."""
        return self.id

    @property
    def text(self) -> str | None:
        """The payload as text. None without a payload in UTF-8."""
        return self.payload if isinstance(self.payload, str) else None

    @property
    def raw(self) -> bytes | None:
        """The payload as published bytes. None if there is none."""
        return self.payload.encode() if isinstance(self.payload, str) else self.payload

    @property
    def published(self) -> datetime:
        """Time of publication, in UTC."""
        return _EPOCH + timedelta(milliseconds=published_ms(self.id))


Sendable = str | bytes | Message | ReceivedMessage


def published_ms(id_: str) -> int:
    """Return the time in an id: milliseconds since 1970."""
    if len(id_) == 40:
        return int(id_[:16], 16)
    if len(id_) == 24:  # of an operation
        return int(id_[:8], 16) * 1000 + int(id_[8:12], 16)
    return int(id_)


def encode(message: Sendable) -> bytes:
    """Return a message as JSON. Raise MessageError for an invalid one."""
    whole = members(message)
    payload = whole["payload"]
    short = payload if len(whole) == 1 and payload is not None else whole
    return _encode(short).encode()  # its parts were checked: no unpaired surrogate is left


def members(message: Sendable) -> dict[str, object]:
    """Return the members of a message in JSON, the payload first. Raise MessageError."""
    if not isinstance(message, Message):
        if isinstance(message, ReceivedMessage):
            message = Message(message.payload, message.key, message.headers)
        else:
            message = Message(message)
    payload, size, fields = _payload(message.payload)
    if message.key is not None:
        key_size = _size("key", message.key)
        if key_size > MAX_KEY_BYTES:
            raise MessageError("key", f"is longer than {MAX_KEY_BYTES:,} bytes")
        size += key_size
        fields["key"] = message.key
    if message.headers:
        fields["headers"], headers_size = _headers(message.headers)
        size += headers_size
    if message.ttl is not None:
        fields["ttl"] = check_ttl(message.ttl)
    if size > MAX_BYTES:
        raise MessageError("message", f"has {size:,} bytes, more than {MAX_BYTES:,}")
    return {"payload": payload, **fields}


def check_max_bytes(max_bytes: int) -> int:
    """Return the bound of a topic in bytes. Raises MessageError."""
    if type(max_bytes) is not int or not MIN_MAX_BYTES <= max_bytes < 1 << 63:
        raise MessageError(
            "max_bytes", f"must be a whole number of bytes, at least {MIN_MAX_BYTES:,}"
        )
    return max_bytes


def check_ttl(ttl: int) -> int:
    """Return a time to live. Raise MessageError."""
    if type(ttl) is not int or not 1 <= ttl <= MAX_TTL_SECONDS:  # True is an int, too
        raise MessageError("ttl", f"must be a whole number of seconds, 1 to {MAX_TTL_SECONDS:,}")
    return ttl


def decode(id_: str, given: object, sequence: int = 0) -> ReceivedMessage:
    """Return the message of an id from its JSON object. Raise ValueError, TypeError, KeyError."""
    if not ID.fullmatch(id_):
        raise ValueError(f"{id_[:50]!r} is no id")
    if not isinstance(given, dict):
        raise TypeError("a message must be an object")
    payload, key = given["payload"], given.get("key")
    if not isinstance(payload, str | None) or not isinstance(key, str | None):
        raise TypeError("payload and key must be text or null")
    if given.get("encoding") is not None:
        if given["encoding"] != "base64" or payload is None:
            raise ValueError("the encoding is not known")
        payload = base64.b64decode(payload, validate=True)
    headers = tuple((name, value) for name, value in given.get("headers") or ())
    if not all(isinstance(text, str) for pair in headers for text in pair):
        raise TypeError("headers must be text")
    return ReceivedMessage(id_, payload, key, headers, sequence)


def as_json(message: ReceivedMessage) -> dict[str, object]:
    """Return a message as the members of an answer to a poll."""
    shown: dict[str, object] = {"id": message.id, "payload": message.payload}
    if isinstance(message.payload, bytes):
        shown["payload"] = base64.b64encode(message.payload).decode()
    if message.key is not None:
        shown["key"] = message.key
    if message.headers:
        shown["headers"] = [list(pair) for pair in message.headers]
    if isinstance(message.payload, bytes):
        shown["encoding"] = "base64"
    return shown


def _payload(payload: object) -> tuple[str | None, int, dict[str, object]]:
    """Return the payload in JSON, its size in bytes, and the members about its encoding."""
    if payload is None:
        return None, 0, {}
    if isinstance(payload, str):
        return payload, _size("payload", payload), {}
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise MessageError("payload", "must be text, bytes or None")
    raw = bytes(payload)
    try:
        return raw.decode(), len(raw), {}
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), len(raw), {"encoding": "base64"}


def _headers(headers: object) -> tuple[list[list[str]], int]:
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise MessageError("headers", "must be pairs of name and value")
    pairs, size = [], 0
    for index, pair in enumerate(headers):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise MessageError(f"headers[{index}]", "must be a pair of name and value")
        size += sum(_size(f"headers[{index}]", text) for text in pair)
        pairs.append(list(pair))
    return pairs, size


def _size(field: str, text: object) -> int:
    if not isinstance(text, str):
        raise MessageError(field, "must be text")
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise MessageError(field, "contains an unpaired surrogate") from None

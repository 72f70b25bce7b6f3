"""The message of a topic: its decoding, its rules, and its stored encoding. No I/O."""

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from oplogd.decode.buffers import Text
from oplogd.decode.pieces import at_once
from oplogd.decode.typed import FAULTS, Rules, naming, read
from oplogd.decode.walk import MAX_VALUE_BYTES, begins, elements
from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.model.operation import escape_line_ends
from oplogd.model.shard import hash_of

# Payload, key and headers of a message together.
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_KEY_BYTES = 1024
# Empty headers have no bytes, but take memory and time.
MAX_HEADERS = 1000
MAX_TTL_SECONDS = 100 * 365 * 86_400


class Message(NamedTuple):
    """A valid message. ``data``: the JSON text for readers, without the id.

    ``ttl``: own time to live in seconds, None without one.
    """

    data: bytes
    ttl: int | None = None


class Content(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The members of ``data``, in the order of their encoding.

    ``encoding``: ``base64`` if the payload is not UTF-8, otherwise absent.
    """

    payload: str | None
    key: str | None = None
    headers: list[tuple[str, str]] | None = None
    encoding: str | None = None

    def raw(self) -> bytes | None:
        """Return the payload as published, None for a null payload."""
        if self.payload is None:
            return None
        return base64.b64decode(self.payload) if self.encoding else self.payload.encode()


NO_HEADERS = msgspec.Raw(b"null")
# Given times to live.
Ttl = int | float | str | None

MESSAGE_RULES = Rules(
    {
        "payload": "must be a string or null",
        "key": "must be a string",
        "ttl": "must be a whole number of seconds",
        "encoding": "must be base64",
    },
    whole="must be a string or an object",
    unknown="is not a member of a message",
)
REASONS = MESSAGE_RULES.members
_HEADERS = Rules(whole="must be a list of [name, value]")


class _Given(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message as a client sent it."""

    payload: str | msgspec.UnsetType | None = msgspec.UNSET
    key: str | None = None
    headers: msgspec.Raw = NO_HEADERS
    ttl: Ttl = None
    encoding: str | None = None


class _Keyed(msgspec.Struct, gc=False):
    """A part of ``Content``."""

    key: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_content: Callable[[str], Content] = msgspec.json.Decoder(Content).decode
_decode_keyed: Callable[[str], _Keyed] = msgspec.json.Decoder(_Keyed).decode
_decode_given: Callable[[Text], str | _Given] = msgspec.json.Decoder(str | _Given).decode
_decode_headers: Callable[[Text], list[tuple[str, str]] | None] = msgspec.json.Decoder(
    list[tuple[str, str]] | None
).decode
_HEADER = re.compile(r" - at `\$\[([0-9]+)\](\[[01]\])?`$")


def decode_content(data: str) -> Content:
    """Decode the text in ``Message.data``. Raises MessageError if it is damaged."""
    try:
        return _decode_content(data)
    except msgspec.MsgspecError as error:
        raise MessageError("data", str(error)) from None


def message_hash(id_: str, data: str) -> int:
    """Return the hash of a message: of its key, without a key of its id.

    All messages with the same key are in one shard. Damaged data has no key.
    """
    try:
        key = _decode_keyed(data).key
    except msgspec.MsgspecError:
        key = None
    return hash_of(id_ if key is None else key)


def of_payload(
    payload: str | bytes | memoryview, ttl: int | None = None, key: str | None = None
) -> Message:
    """Return the message with this payload, and no headers. Raises MessageError."""
    return _message(payload, key, None, ttl)


def decode_message(text: Text) -> Message:
    """Check a message in JSON: a string, or an object. Raises MessageError."""
    require_size(text, "message")
    given = read(_decode_given, text, "message", MESSAGE_RULES)
    if isinstance(given, str):
        return _message(given, None, None, None)
    if given.payload is msgspec.UNSET:
        raise MessageError("payload", "is required")
    return message_of(given.payload, given.key, given.headers, given.ttl, given.encoding)


def require_size(text: Text, thing: str) -> None:
    """Raise MessageTooLargeError for a text longer than any message."""
    if len(text) > MAX_VALUE_BYTES:
        reason = f"has {len(text):,} bytes of JSON, more than {MAX_VALUE_BYTES:,}"
        raise MessageTooLargeError(thing, reason)


def message_of(
    payload: str | None, key: str | None, headers: msgspec.Raw, ttl: Ttl, encoding: str | None
) -> Message:
    """Check the members of a message as a client sent them. Raises MessageError."""
    checked = _payload(payload, encoding)
    if key is not None and _size_of(key) > MAX_KEY_BYTES:
        raise MessageError("key", f"is longer than {MAX_KEY_BYTES:,} bytes")
    return _message(checked, key, _headers(headers), ttl_seconds(ttl, "ttl"))


def ttl_seconds(given: Ttl, field: str) -> int | None:
    """Return a time to live in seconds, None for null. Raises MessageError.

    Takes a whole number, or a string of decimal digits, from 1 to MAX_TTL_SECONDS.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= 12:
        given = int(given)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError(field, REASONS["ttl"])
    if not 1 <= given <= MAX_TTL_SECONDS:
        raise MessageError(field, f"must be 1 to {MAX_TTL_SECONDS:,} seconds")
    return given


def _message(
    payload: str | bytes | memoryview | None,
    key: str | None,
    headers: list[tuple[str, str]] | None,
    ttl: int | None,
) -> Message:
    size = _size_of(payload or "") + _size_of(key or "")
    size += sum(_size_of(text) for pair in headers or () for text in pair)
    if size > MAX_MESSAGE_BYTES:
        reason = f"has {size:,} bytes, more than {MAX_MESSAGE_BYTES:,}"
        raise MessageTooLargeError("message", reason)
    encoding = None
    if payload is not None and not isinstance(payload, str):
        raw = bytes(payload)
        try:
            payload = raw.decode()
        except UnicodeDecodeError:
            payload, encoding = base64.b64encode(raw).decode(), "base64"
    data = _encode(Content(payload, key, headers or None, encoding))
    return Message(data if data.isascii() else escape_line_ends(data), ttl)


def _size_of(text: str | bytes | memoryview) -> int:
    """Return the size in bytes of bytes, or of a text in UTF-8."""
    return len(text.encode()) if isinstance(text, str) and not text.isascii() else len(text)


def _payload(given: str | None, encoding: str | None) -> str | bytes | None:
    if encoding not in (None, "base64"):
        raise MessageError("encoding", REASONS["encoding"])
    if given is None or encoding is None:
        return given
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError("payload", "is not base64") from None


def _headers(given: msgspec.Raw) -> list[tuple[str, str]] | None:
    if given is NO_HEADERS:
        return None
    text = bytes(given)
    # Counted before they are decoded: a list of empty headers takes fifty times its text.
    if text.count(b"[") > MAX_HEADERS + 1 and begins(text, b"["):
        with naming("headers", _HEADERS):
            at_once(
                elements(
                    text,
                    MAX_HEADERS,
                    lambda: MessageError("headers", f"are more than {MAX_HEADERS:,}"),
                )
            )
    try:
        return _decode_headers(text)
    except FAULTS as error:
        if found := _HEADER.search(str(error)):
            place = f"headers[{found[1]}]"
            if found[2]:
                raise MessageError(place, "name and value must be strings") from None
            raise MessageError(place, "must be [name, value]") from None
        return read(_decode_headers, text, "headers", _HEADERS)

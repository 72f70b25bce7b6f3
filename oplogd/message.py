"""The message of a topic: its decoding, its rules, and the encoding that is stored. No I/O."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.operation import escape_line_ends

# Payload, key and headers of a message together.
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_KEY_BYTES = 1024
# Empty headers have no bytes, but take memory and time.
MAX_HEADERS = 1000
MAX_TTL_SECONDS = 100 * 365 * 86_400


class Message(NamedTuple):
    """A valid message. ``data``: the JSON text that readers get, without the id.

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
        """Return the payload as it was published; None for a null payload."""
        if self.payload is None:
            return None
        return base64.b64decode(self.payload) if self.encoding else self.payload.encode()


_MEMBERS = frozenset({"payload", "key", "headers", "ttl", "encoding"})
_encode = msgspec.json.Encoder().encode
_decode_content: Callable[[str], Content] = msgspec.json.Decoder(Content).decode


def decode_content(data: str) -> Content:
    """Decode the text that ``Message.data`` holds. Raises MessageError if it is damaged."""
    try:
        return _decode_content(data)
    except msgspec.MsgspecError as error:
        raise MessageError("data", str(error)) from None


def of_payload(payload: bytes, ttl: int | None = None) -> Message:
    """Return the message with this payload and nothing else. Raises MessageError."""
    return _message(payload, None, None, ttl)


def of_json(given: Any) -> Message:
    """Check a message as it was decoded from JSON: a string, or an object. Raises MessageError."""
    if isinstance(given, str):
        return _message(_utf8(given, "message"), None, None, None)
    if not isinstance(given, dict):
        raise MessageError("message", "must be a string or an object")
    if unknown := sorted(given.keys() - _MEMBERS):
        raise MessageError(unknown[0], "is not a member of a message")
    if "payload" not in given:
        raise MessageError("payload", "is required")
    return _message(
        _payload(given["payload"], given.get("encoding")),
        _key(given.get("key")),
        _headers(given.get("headers")),
        ttl_seconds(given.get("ttl"), "ttl"),
    )


def ttl_seconds(given: Any, field: str) -> int | None:
    """Return a time to live in seconds; None for null. Raises MessageError.

    Takes a whole number, or a string of decimal digits, from 1 to MAX_TTL_SECONDS.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= 12:
        given = int(given)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError(field, "must be a whole number of seconds")
    if not 1 <= given <= MAX_TTL_SECONDS:
        raise MessageError(field, f"must be 1 to {MAX_TTL_SECONDS:,} seconds")
    return given


def _message(
    payload: bytes | None, key: str | None, headers: list[tuple[str, str]] | None, ttl: int | None
) -> Message:
    size = len(payload or b"") + len((key or "").encode())
    size += sum(len(text.encode()) for pair in headers or () for text in pair)
    if size > MAX_MESSAGE_BYTES:
        reason = f"has {size:,} bytes, more than {MAX_MESSAGE_BYTES:,}"
        raise MessageTooLargeError("message", reason)
    text, encoding = None, None
    if payload is not None:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            text, encoding = base64.b64encode(payload).decode(), "base64"
    data = _encode(Content(text, key, headers or None, encoding))
    return Message(data if data.isascii() else escape_line_ends(data), ttl)


def _payload(given: Any, encoding: Any) -> bytes | None:
    if encoding not in (None, "base64"):
        raise MessageError("encoding", "must be base64")
    if given is None:
        return None
    if not isinstance(given, str):
        raise MessageError("payload", "must be a string or null")
    if encoding is None:
        return _utf8(given, "payload")
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError("payload", "is not base64") from None


def _key(given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise MessageError("key", "must be a string")
    if len(_utf8(given, "key")) > MAX_KEY_BYTES:
        raise MessageError("key", f"is longer than {MAX_KEY_BYTES:,} bytes")
    return given


def _headers(given: Any) -> list[tuple[str, str]] | None:
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise MessageError("headers", "must be a list of [name, value]")
    if len(given) > MAX_HEADERS:
        raise MessageError("headers", f"are {len(given):,}, more than {MAX_HEADERS:,}")
    pairs = []
    for index, pair in enumerate(given):
        field = f"headers[{index}]"
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise MessageError(field, "must be [name, value]")
        name, value = pair
        if not isinstance(name, str) or not isinstance(value, str):
            raise MessageError(field, "name and value must be strings")
        _utf8(name, field), _utf8(value, field)
        pairs.append((name, value))
    return pairs


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MessageError(field, "has an unpaired surrogate") from None

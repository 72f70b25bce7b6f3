"""The bodies of publish and poll in JSON. No I/O."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.event_id import Mark
from oplogd.ingest.array import elements
from oplogd.ingest.body import MANY_COMMAS, Pieces
from oplogd.isolation import isolation_of
from oplogd.media_types import JSON
from oplogd.message import MAX_MESSAGE_BYTES, Message, of_json
from oplogd.pointer import (
    MAX_SNAPSHOT_POINTERS,
    Snapshot,
    parse_key,
    parse_pointer,
    parse_snapshot,
)
from oplogd.topics.codec import (
    Polled,
    PollRequest,
    PublishRequest,
    Rollback,
    isolation_with,
    plain,
    rolling_back,
    stamp_of_info,
)
from oplogd.transaction import Isolation

_ID = re.compile(r"[0-9a-f]{24}|[0-9a-f]{40}")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)

# No message has a longer text, even if all of it is escaped. It would delay other requests.
MAX_TEXT_BYTES = 7 * MAX_MESSAGE_BYTES
# No pointer and no key of a rollback has a longer text, unless it has many blanks.
_MAX_VALUE_BYTES = 1000
# Commas of a poll with a full snapshot: those between its pointers, and those between members.
_MAX_POLL_COMMAS = MAX_SNAPSHOT_POINTERS + 10

_T = TypeVar("_T")

_NULL = msgspec.Raw(b"null")


class _Publish(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    messages: msgspec.Raw = _NULL
    transactionWritePointer: msgspec.Raw = _NULL


class _Rollback(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    messages: msgspec.Raw = _NULL
    rollbackKeys: msgspec.Raw = _NULL
    transactionWritePointer: msgspec.Raw = _NULL


class _Info(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    publishTimestamp: Any = None
    sequenceId: Any = None


class _Poll(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    startFrom: Any = None
    inclusive: Any = True
    limit: Any = None
    transaction: Any = None
    isolation: Any = None


_decode_publish: Callable[[bytes], _Publish] = msgspec.json.Decoder(_Publish).decode
_decode_array: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_poll: Callable[[bytes], _Poll] = msgspec.json.Decoder(_Poll).decode
_decode_rollback: Callable[[bytes], _Rollback] = msgspec.json.Decoder(_Rollback).decode
_decode_info: Callable[[bytes | msgspec.Raw], _Info] = msgspec.json.Decoder(_Info).decode
_decode_any: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder().decode


class JsonCodec:
    """Implements ``Codec``. Given messages are their JSON text."""

    media_type = JSON

    def split(self, raw: bytes) -> Iterable[bytes | msgspec.Raw]:
        return plain(self.decode_publish(raw))

    def decode_publish(self, raw: bytes) -> PublishRequest:
        publish = read(_decode_publish, raw, "body")
        if _is_null(publish.transactionWritePointer):
            given = split(publish.messages)
            if given is None:
                raise MessageError("messages", "must be a list with at least one message")
            return PublishRequest(None, given)
        pointer = _pointer(publish.transactionWritePointer)
        given = _list(publish.messages, "messages")
        return PublishRequest(pointer, None if given == [] else given)

    def decode_rollback(self, raw: bytes) -> Pieces[Rollback]:
        rollback = read(_decode_rollback, raw, "body")
        pointer = _pointer(rollback.transactionWritePointer)
        if _is_null(rollback.messages):
            return rolling_back(
                pointer, _list(rollback.rollbackKeys, "rollbackKeys"), _key, "rollbackKeys"
            )
        if not _is_null(rollback.rollbackKeys):
            raise MessageError("rollbackKeys", "must be absent if there are messages")
        return rolling_back(pointer, _list(rollback.messages, "messages"), _info, "messages")

    def encode_published(self, pointer: int, marks: Sequence[Mark]) -> bytes:
        infos = ",".join(
            [f'{{"publishTimestamp":{ms},"sequenceId":{sequence}}}' for _, ms, sequence in marks]
        )
        return f'{{"transactionWritePointer":{pointer},"messages":[{infos}]}}'.encode()

    def message(self, given: bytes | msgspec.Raw, ttl: int | None) -> Message:
        if len(given) > MAX_TEXT_BYTES:
            reason = f"has {len(given):,} bytes of JSON, more than {MAX_TEXT_BYTES:,}"
            raise MessageTooLargeError("message", reason)
        message = of_json(read(_decode_any, given, "message"))
        return message if ttl is None or message.ttl is not None else message._replace(ttl=ttl)

    def operation(self, given: bytes | msgspec.Raw) -> bytes:
        text = bytes(given)
        value = read(_decode_any, given, "message")
        if isinstance(value, dict) and "event" not in value and "payload" in value:
            value = value["payload"] if value.keys() == {"payload"} else None
            if not isinstance(value, str):
                raise MessageError("payload", "must be the JSON text of an operation, and alone")
        if not isinstance(value, str):
            return text
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise MessageError("message", "has an unpaired surrogate") from None

    def decode_poll(self, raw: bytes, isolation: Isolation | None = None) -> PollRequest:
        if raw.count(b",") > _MAX_POLL_COMMAS:
            raise _too_many_pointers()
        poll = read(_decode_poll, raw, "body")
        if not isinstance(poll.inclusive, bool):
            raise MessageError("inclusive", "must be true or false")
        if poll.isolation is not None:
            isolation = isolation_of(poll.isolation)
        snapshot = None if poll.transaction is None else parse_snapshot(poll.transaction)
        return PollRequest(
            _start(poll.startFrom),
            poll.inclusive,
            limit(poll.limit),
            isolation_with(snapshot, isolation),
            snapshot,
        )

    def encode(self, messages: Sequence[Polled]) -> bytes:
        texts = ",".join([f'{{"id":"{id_}",{data[1:]}' for id_, data in messages])
        return f"[{texts}]".encode()


def split(given: msgspec.Raw) -> Iterable[bytes | msgspec.Raw] | None:
    """Return the texts of the elements of a list, None if it is no list."""
    text = bytes(given).strip()
    if not text.startswith(b"["):
        return None
    # A list of all its texts could take a hundred times the memory of the body.
    return elements(text) if text.count(b",") > MANY_COMMAS else _decode_array(text)


def snapshot(text: bytes) -> Snapshot:
    """Read the JSON text of a snapshot. Raises MessageError."""
    # A list of other values could take a hundred times the memory of the text.
    if text.count(b",") > _MAX_POLL_COMMAS:
        raise _too_many_pointers()
    return parse_snapshot(read(_decode_any, text, "transaction"))


def limit(given: Any) -> int | None:
    """Check the limit of a poll. Raises MessageError."""
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError("limit", "must be a whole number or null")
    if given < 1:
        raise MessageError("limit", "must be at least 1")
    return given


def _start(given: Any) -> bytes | int | None:
    if given is None:
        return None
    if isinstance(given, str):
        if not _ID.fullmatch(given):
            raise MessageError("startFrom", "an id is 40 lower-case hexadecimal digits")
        return bytes.fromhex(given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError("startFrom", "must be an id, milliseconds since 1970, or null")
    if given < 0:
        raise MessageError("startFrom", "must not be negative")
    return given


def _too_many_pointers() -> MessageError:
    reason = f"has more than {MAX_SNAPSHOT_POINTERS:,} pointers in its lists"
    return MessageError("transaction", reason)


def _is_null(given: msgspec.Raw) -> bool:
    return given is _NULL or bytes(given).strip() == b"null"


def _pointer(given: msgspec.Raw) -> int:
    return parse_pointer(_value(given, "transactionWritePointer"))


def _key(given: bytes | msgspec.Raw, place: str) -> int:
    return parse_key(_value(given, place), place)


def _info(given: bytes | msgspec.Raw, place: str) -> int:
    if len(given) > _MAX_VALUE_BYTES:
        raise MessageError(place, f"has {len(given):,} bytes, more than {_MAX_VALUE_BYTES:,}")
    try:
        info = read(_decode_info, given, "message")
    except MessageError as error:
        inner = "" if error.field == "message" else f".{error.field}"
        raise MessageError(place + inner, error.reason) from None
    return stamp_of_info(info.publishTimestamp, info.sequenceId, place)


def _value(given: bytes | msgspec.Raw, field: str) -> Any:
    """Decode a short value. Raises MessageError."""
    text = bytes(given).strip()
    if len(text) > _MAX_VALUE_BYTES:
        raise MessageError(field, f"has {len(text):,} bytes, more than {_MAX_VALUE_BYTES:,}")
    return read(_decode_any, text, field)


def _list(given: msgspec.Raw, field: str) -> Iterable[bytes | msgspec.Raw]:
    if _is_null(given):
        return []
    values = split(given)
    if values is None:
        raise MessageError(field, "must be a list")
    return values


def read(decode: Callable[[Any], _T], raw: Any, field: str) -> _T:
    """Decode JSON. Raises MessageError, which names ``field`` or an unknown member."""
    try:
        return decode(raw)
    except RecursionError:
        raise MessageError(field, "is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise MessageError(field, f"is not UTF-8 (byte {error.start})") from None
    except msgspec.ValidationError as error:
        if unknown := _UNKNOWN.fullmatch(str(error)):
            raise MessageError(unknown[1], "is not a member of this request") from None
        if "out of range" in str(error):
            raise MessageError(field, "has a number that is out of range") from None
        raise MessageError(field, "must be an object") from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise MessageError(field, f"is not valid JSON: {reason}") from None

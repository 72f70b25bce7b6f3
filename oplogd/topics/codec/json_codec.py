"""The bodies of publish and poll in JSON. No I/O."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.media_types import JSON
from oplogd.decode.pieces import Pieces
from oplogd.decode.typed import FAULTS, Members, Rules, Value, is_null, named, read, values_of
from oplogd.decode.walk import Extents
from oplogd.errors import MessageError
from oplogd.model.event_id import Mark
from oplogd.model.isolation import ISOLATIONS, isolation_of
from oplogd.model.message import Message, decode_message
from oplogd.model.operation import MAX_OPERATION_TEXT
from oplogd.model.pointer import (
    MAX_SNAPSHOT_POINTERS,
    Snapshot,
    parse_key,
    parse_pointer,
    parsing_snapshot,
    too_many_pointers,
)
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.codec import (
    MAX_KEYS,
    Most,
    PollMessage,
    PollRequest,
    PublishRequest,
    Rollback,
    by_parts,
    isolation_with,
    rolling_back,
    stamp_of_info,
    too_many_keys,
)

_ID = re.compile(r"[0-9a-f]{24}|[0-9a-f]{40}")

# No pointer and no key of a rollback has a longer text, unless it has many blanks.
_MAX_VALUE_BYTES = 1000
# Snapshots with a shorter text may hold anything, so an error can name the part at fault.
_SHORT_SNAPSHOT = 16 * 1024
# Commas of a poll with a full snapshot: those between its pointers, and those between members.
_MAX_POLL_COMMAS = MAX_SNAPSHOT_POINTERS + 10

_NULL = msgspec.Raw(b"null")

_WRITE_POINTER = "transactionWritePointer"
_PUBLISH = Members("messages", _WRITE_POINTER)
_ROLLBACK = Members("messages", "rollbackKeys", _WRITE_POINTER)


class _Info(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Its text is short, so its values may be anything."""

    publishTimestamp: Any = None
    sequenceId: Any = None


class _Poll(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    startFrom: str | int | None = None
    inclusive: bool = True
    limit: int | None = None
    transaction: msgspec.Raw = _NULL
    isolation: str | None = None


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An operation as the payload of a message."""

    payload: str


class _Object(msgspec.Struct, gc=False):
    """The members that tell an operation from a message."""

    event: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


_SNAPSHOT = Rules(whole="must be an object, with pointers in its lists")
_ALONE = "must be the JSON text of an operation, and alone"
_POLL = Rules(
    {
        "startFrom": "must be an id, milliseconds since 1970, or null",
        "inclusive": "must be true or false",
        "limit": "must be a whole number or null",
        "isolation": ISOLATIONS,
    }
)

_decode_poll: Callable[[Text], _Poll] = msgspec.json.Decoder(_Poll).decode
_decode_info: Callable[[Text], _Info] = msgspec.json.Decoder(_Info).decode
_decode_wrapped: Callable[[Text], _Wrapped] = msgspec.json.Decoder(_Wrapped).decode
_decode_operation: Callable[[Text], str | _Object] = msgspec.json.Decoder(str | _Object).decode
_Scalar = int | float | str | bool | None
# Lists in lists take a hundred times the memory of their text. They need no commas.
_decode_snapshot: Callable[[Text], Any] = msgspec.json.Decoder(
    dict[str, _Scalar | list[_Scalar]]
).decode
_decode_any: Callable[[Text], Any] = msgspec.json.Decoder().decode


class JsonCodec:
    """Implements ``Codec``. Given messages are their JSON text."""

    media_type = JSON

    def decode_publish(self, raw: Buffer, most: Most) -> Pieces[PublishRequest]:
        publish = yield from _PUBLISH.reading(raw, most.number, lambda _: most.error())
        if _WRITE_POINTER not in publish:
            given = values_of(publish["messages"]) if "messages" in publish else None
            if given is None:
                raise MessageError("messages", "must be a list with at least one message")
            return PublishRequest(None, given)
        pointer = _pointer(publish)
        given = _list(publish, "messages")
        return PublishRequest(pointer, given or None)

    def decode_rollback(self, raw: Buffer) -> Pieces[Rollback]:
        rollback = yield from _ROLLBACK.reading(raw, MAX_KEYS, too_many_keys)
        pointer = _pointer(rollback)
        if "messages" not in rollback:
            keys = _list(rollback, "rollbackKeys")
            return (yield from rolling_back(pointer, keys, _key, "rollbackKeys"))
        if "rollbackKeys" in rollback:
            raise MessageError("rollbackKeys", "must be absent if there are messages")
        infos = _list(rollback, "messages")
        return (yield from rolling_back(pointer, infos, _info, "messages"))

    def encode_published(self, pointer: int, marks: Iterable[Mark]) -> Iterator[bytes]:
        before = b'{"transactionWritePointer":%d,"messages":[' % pointer
        for some in by_parts(marks):
            infos = [b'{"publishTimestamp":%d,"sequenceId":%d}' % each[1:] for each in some]
            yield before + b",".join(infos)
            before = b","
        yield b"]}" if before == b"," else before + b"]}"

    def message(self, given: Text, ttl: int | None) -> Message:
        message = decode_message(given)
        return message if ttl is None or message.ttl is not None else message._replace(ttl=ttl)

    def operation(self, given: Text) -> Text:
        if len(given) > MAX_OPERATION_TEXT:
            return given
        try:
            value = _decode_operation(given)
        except msgspec.ValidationError:  # neither a string nor an object
            return given
        except FAULTS as error:
            raise named(error, "message") from None
        if isinstance(value, str):
            return value.encode()
        if value.payload is _NULL or value.event is not _NULL:
            return given
        try:
            return _decode_wrapped(given).payload.encode()
        except msgspec.ValidationError:
            raise MessageError("payload", _ALONE) from None

    def decoding_poll(self, raw: Buffer, isolation: Isolation | None = None) -> Pieces[PollRequest]:
        if raw.count(b",") > _MAX_POLL_COMMAS:
            raise too_many_pointers()
        poll = read(_decode_poll, raw, "body", _POLL)
        if poll.isolation is not None:
            isolation = isolation_of(poll.isolation)
        text = poll.transaction
        given = None if is_null(text) else (yield from reading_snapshot(text))
        return PollRequest(
            _start(poll.startFrom),
            poll.inclusive,
            limit(poll.limit),
            isolation_with(given, isolation),
            given,
        )

    def encode(self, messages: Sequence[PollMessage]) -> bytes:
        joined = ",".join([f'{{"id":"{id_}",{data[1:]}' for id_, data in messages])
        return f"[{joined}]".encode()


def reading_snapshot(text: Text) -> Pieces[Snapshot]:
    """Read the JSON text of a snapshot. Raises MessageError."""
    if bytes(text).count(b",") > _MAX_POLL_COMMAS:
        raise too_many_pointers()
    if len(text) <= _SHORT_SNAPSHOT:
        given = read(_decode_any, text, "transaction")
    else:
        given = read(_decode_snapshot, text, "transaction", _SNAPSHOT)
    yield
    return (yield from parsing_snapshot(given))


def limit(given: int | None) -> int | None:
    """Check the limit of a poll. Raises MessageError."""
    if given is not None and given < 1:
        raise MessageError("limit", "must be at least 1")
    return given


def _start(given: str | int | None) -> bytes | int | None:
    if isinstance(given, str):
        if not _ID.fullmatch(given):
            raise MessageError("startFrom", "an id is 40 lower-case hexadecimal digits")
        return bytes.fromhex(given)
    if given is not None and given < 0:
        raise MessageError("startFrom", "must not be negative")
    return given


def _pointer(members: Mapping[str, Value]) -> int:
    return parse_pointer(_short(members.get(_WRITE_POINTER, _NULL), _WRITE_POINTER))


def _key(given: Text, place: str) -> int:
    return parse_key(_short(given, place), place)


def _info(given: Text, place: str) -> int:
    _require_short(given, place)
    try:
        info = read(_decode_info, given, "message")
    except MessageError as error:
        inner = "" if error.field == "message" else f".{error.field}"
        raise MessageError(place + inner, error.reason) from None
    return stamp_of_info(info.publishTimestamp, info.sequenceId, place)


def _short(given: Value, field: str) -> Any:
    """Decode a short value. Raises MessageError."""
    if isinstance(given, Extents):
        return []
    return read(_decode_any, _require_short(given, field), field)


def _require_short(given: Text, field: str) -> bytes:
    text = bytes(given).strip()
    if len(text) > _MAX_VALUE_BYTES:
        raise MessageError(field, f"has {len(text):,} bytes, more than {_MAX_VALUE_BYTES:,}")
    return text


def _list(members: Mapping[str, Value], field: str) -> Iterable[Text]:
    if field not in members:
        return []
    values = values_of(members[field])
    if values is None:
        raise MessageError(field, "must be a list")
    return values

"""The operation: its decoding, its rules, and its encoding in the store and the stream. No I/O."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, TypeVar, cast

import msgspec

from oplogd.decode.buffers import Text
from oplogd.decode.nesting import is_too_deep
from oplogd.decode.surrogates import explained
from oplogd.errors import OperationError
from oplogd.model.operation_errors import explained_error

MAX_OPERATION_BYTES = 64 * 1024
# No operation has a longer text as a string in JSON, even if all of it is escaped.
MAX_OPERATION_TEXT = 7 * MAX_OPERATION_BYTES
MAX_TYPE_BYTES = 255
MAX_ID_BYTES = 1024

EVENTS = ("insert", "update", "delete")

_EVENT_BY_ANY_CASE = {
    name: event for event in EVENTS for name in (event, event.upper(), event.capitalize())
}
# Checks hours and offset minutes, because `fromisoformat` takes +05:99 and, from Python 3.14 on,
# 24:00.
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:[0-5]\d)",
    re.ASCII,
)
# Characters of the usual times.
_SHORT = 32
_NUL = b"\\u0000"
# SSE parsers that split lines by Unicode's rules would cut the data at these three.
_LINE_ENDS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)

_T = TypeVar("_T")


# Gets the text of each valid operation with unknown members.
OnUnknown = Callable[[bytes], None] | None


class Operation(NamedTuple):
    """A valid operation. ``key``: ``type/id``. ``data``: the JSON text for consumers."""

    event: str
    key: str
    data: bytes


class Data(msgspec.Struct, frozen=True, gc=False):
    """The members of ``data`` in the order of their encoding."""

    timestamp: str
    parents: list[str]
    type: str
    id: str


class DumpRow(NamedTuple):
    """An object in a dump. ``parents`` is None if the dump does not name them."""

    timestamp: str
    parents: list[str] | None
    type: str
    id: str


class _Input(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    event: str
    type: str
    id: str
    parents: list[str] | None = None
    timestamp: str | None = None


class _Extended(_Input, gc=False, forbid_unknown_fields=False):
    """An operation with unknown members, which are ignored."""


_MEMBERS = frozenset(_Input.__struct_fields__)


class _Row(msgspec.Struct, gc=False):
    type: str
    id: str
    timestamp: str
    parents: list[str] | None = None


_decode_input: Callable[[bytes], _Input] = msgspec.json.Decoder(_Input).decode
_decode_inputs: Callable[[bytes], list[_Input]] = msgspec.json.Decoder(list[_Input]).decode
_decode_extended: Callable[[bytes], _Input] = msgspec.json.Decoder(_Extended).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_row: Callable[[bytes], _Row] = msgspec.json.Decoder(_Row).decode
_encode_data = msgspec.json.Encoder().encode
_decode_data: Callable[[str], Data] = msgspec.json.Decoder(Data).decode


def format_ms(ms: int) -> str:
    """Format milliseconds since 1970 as RFC 3339 in UTC, e.g. ``2014-11-06T11:04:39.041Z``."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03d}Z"


def parse_timestamp(text: str) -> datetime:
    """Parse RFC 3339 with any UTC offset to UTC, cut to milliseconds. Raises ValueError.

    The year in UTC is 1 to 9999. A leap second (``:60``) is refused, as by most parsers.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 time such as 2014-11-06T11:04:39.041Z")
    date, clock, fraction, offset = match.groups()
    millis = (fraction or "0")[:3].ljust(3, "0")
    try:
        return datetime.fromisoformat(f"{date}T{clock}.{millis}{offset.upper()}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"out of range: {error}") from None


def normalise_timestamp(text: str) -> str:
    """Convert RFC 3339 of any UTC offset to UTC with milliseconds and Z. Raises ValueError."""
    if len(text) == 24 and text[10] == "T" and text[19] == "." and text[23] == "Z":
        try:  # msgspec checks the common form five times faster
            msgspec.convert(text, datetime)
            return text
        except msgspec.ValidationError:
            pass  # the parser below gives the better message
    return parse_timestamp(text).isoformat(timespec="milliseconds")[:23] + "Z"


@lru_cache(16)
def _short_timestamp(text: str) -> str:
    """As ``normalise_timestamp``. Operations of one moment often have one time."""
    return normalise_timestamp(text)


def encode_data(timestamp: str, parents: list[str], type_: str, id_: str) -> bytes:
    """Encode an operation as JSON on one line, in the order of the wire contract."""
    data = _encode_data(Data(timestamp, parents, type_, id_))
    return data if data.isascii() else escape_line_ends(data)


def escape_line_ends(data: bytes) -> bytes:
    """Escape the line ends of Unicode in JSON text: parsers of streams may split there."""
    for raw, escaped in _LINE_ENDS:
        data = data.replace(raw, escaped)
    return data


def decode_data(text: str) -> Data:
    """Decode the text from ``encode_data``. Raises OperationError if it is damaged."""
    try:
        return _decode_data(text)
    except msgspec.MsgspecError as error:
        raise OperationError("data", str(error)) from None


def decode(raw: Text, arrival: str, on_unknown: OnUnknown = None) -> Operation:
    """Decode and check an operation from a producer. Raises only OperationError.

    ``arrival``: its default timestamp, see ``format_ms``. ``on_unknown``: see ``OnUnknown``.
    """
    raw = _sized(raw)
    try:
        usual = _usual(_decode_input(raw), arrival)
    except (msgspec.MsgspecError, UnicodeDecodeError, OperationError):
        usual = None
    if usual and _NUL not in raw:
        return usual
    given = _read(_decode_input, raw, _decode_extended)
    event = _EVENT_BY_ANY_CASE.get(given.event) or given.event.lower()
    if event not in EVENTS:
        raise OperationError("event", "must be insert, update or delete")
    type_ = given.type.lower()
    id_ = given.id
    parents = given.parents or []
    _check(type_, id_, parents, raw)
    timestamp = arrival
    if given.timestamp is not None:
        timestamp = _timestamp(given.timestamp)
    if on_unknown and type(given) is _Extended:
        on_unknown(raw)
    return Operation(event, f"{type_}/{id_}", encode_data(timestamp, parents, type_, id_))


def decode_usual(body: bytes, arrival: str) -> list[Operation] | None:
    """Decode a JSON array of operations without anything unusual, in less time than ``decode``.

    None: let ``decode`` judge each element. ``body``: at most MAX_OPERATION_BYTES.
    """
    try:
        found = [_usual(each, arrival) for each in _decode_inputs(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError, OperationError):
        return None
    return None if None in found or _NUL in body else cast(list[Operation], found)


def _usual(given: _Input, arrival: str) -> Operation | None:
    """Return the operation if it is valid at first sight. Raises OperationError for its time."""
    type_, id_ = given.type.lower(), given.id
    parents, timestamp = given.parents or [], given.timestamp
    if (
        given.event not in EVENTS
        or not 0 < len(type_) <= MAX_TYPE_BYTES // 4
        or not 0 < len(id_) <= MAX_ID_BYTES // 4
        or "/" in type_
        or "," in type_
        or "" in parents
    ):
        return None
    timestamp = arrival if timestamp is None else _timestamp(timestamp)
    return Operation(given.event, f"{type_}/{id_}", encode_data(timestamp, parents, type_, id_))


def unknown_members(raw: Text) -> list[str]:
    """Return the names of the unknown members of a valid operation, each once."""
    try:
        names = _decode_members(raw)
    except msgspec.MsgspecError:  # a name that is no text
        return [""]
    return [name for name in names if name not in _MEMBERS]


def decode_row(raw: bytes) -> DumpRow:
    """Decode and check an object of a dump as ``decode`` does. Raises only OperationError."""
    given = _read(_decode_row, _sized(raw))
    type_ = given.type.lower()
    _check(type_, given.id, given.parents or [], raw)
    return DumpRow(_timestamp(given.timestamp), given.parents, type_, given.id)


def _sized(raw: Text) -> bytes:
    if len(raw) > MAX_OPERATION_BYTES:
        raise OperationError(
            "operation", f"has {len(raw):,} bytes, more than {MAX_OPERATION_BYTES:,}"
        )
    return bytes(raw)  # no copy of bytes


def _read(
    decoder: Callable[[bytes], _T], raw: bytes, tolerant: Callable[[bytes], _T] | None = None
) -> _T:
    """Decode with ``decoder``, or with ``tolerant`` what it refuses. Raises only OperationError."""
    try:
        if not raw.isascii():
            raw.decode()  # msgspec does not check strings of unknown members
        try:
            value = decoder(raw)
        except msgspec.ValidationError:
            if tolerant is None:
                raise
            value = tolerant(raw)
        if is_too_deep(raw):  # after the decoding, which is faster at refusing what is no JSON
            raise RecursionError
        return value
    except UnicodeDecodeError as error:
        raise OperationError("operation", f"is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise OperationError("operation", "is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise explained_error(str(explained(error, tolerant or decoder, raw))) from None


def _check(type_: str, id_: str, parents: list[str], raw: bytes) -> None:
    if not type_ or not id_ or "" in parents:
        for name, value in _named(type_, id_, parents):
            if not value:
                raise OperationError(name, "must not be empty")
    if "/" in type_ or "," in type_:
        raise OperationError("type", "must not contain '/' or ','")
    if len(type_) > MAX_TYPE_BYTES // 4 and len(type_.encode()) > MAX_TYPE_BYTES:
        raise OperationError("type", f"is longer than {MAX_TYPE_BYTES} bytes")
    if len(id_) > MAX_ID_BYTES // 4 and len(id_.encode()) > MAX_ID_BYTES:
        raise OperationError("id", f"is longer than {MAX_ID_BYTES:,} bytes")
    if _NUL in raw:
        for name, value in _named(type_, id_, parents):
            if "\0" in value:
                raise OperationError(name, "must not contain NUL")


def _timestamp(text: str) -> str:
    try:
        return _short_timestamp(text) if len(text) <= _SHORT else normalise_timestamp(text)
    except ValueError as error:
        raise OperationError("timestamp", str(error)) from None


def _named(type_: str, id_: str, parents: list[str]) -> list[tuple[str, str]]:
    numbered = [(f"parents[{index}]", parent) for index, parent in enumerate(parents)]
    return [("type", type_), ("id", id_), *numbered]

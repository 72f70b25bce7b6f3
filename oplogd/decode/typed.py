"""Typed decoding of JSON text of a client. No I/O.

Every text is decoded to a type, so that a wrong value is refused where it stands. Values without a
type could take a hundred times the memory of their text.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from oplogd.decode.buffers import Text
from oplogd.decode.pieces import Pieces
from oplogd.decode.surrogates import explained
from oplogd.decode.walk import ElementError, Extents, is_long, members
from oplogd.errors import MessageError, OplogError

# Of a member that is an object.
_INSIDE = r"(?: - at `\$\.(\w+)`)?"
_UNKNOWN = re.compile(rf"Object contains unknown field `(.*?)`{_INSIDE}", re.DOTALL | re.ASCII)
_MISSING = re.compile(rf"Object missing required field `(\w+)`{_INSIDE}", re.ASCII)
_MEMBER = re.compile(r" - at `\$\.(\w+)(\.\w+)?[^`]*`$", re.ASCII)

_NULL = msgspec.Raw(b"null")
_decode_raw: Callable[[Text], msgspec.Raw] = msgspec.json.Decoder(msgspec.Raw).decode
_decode_array: Callable[[Text], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode

# The value of a member: a list as its values, anything else as its text.
Value = Extents | Text

# The errors of a decoder.
FAULTS = (RecursionError, UnicodeDecodeError, msgspec.DecodeError)

_T = TypeVar("_T")


class Rules(NamedTuple):
    """Error messages for values of the wrong type.

    ``members``: of a member, by its name. ``whole``: of the value itself. ``unknown``: of a member
    of another name. ``required``: members that must not be null.
    """

    members: Mapping[str, str] = {}
    whole: str = "must be an object"
    unknown: str = "is not a member of this request"
    required: Collection[str] = ()


_ANY_OBJECT = Rules()


def about(text: str, *examples: Any, **bounds: Any) -> msgspec.Meta:
    """Return the description of a member. ``bounds``: the bounds that its decoder checks."""
    return msgspec.Meta(description=text, examples=list(examples) or None, **bounds)


def example(value: Any, **bounds: Any) -> msgspec.Meta:
    """Return the example of a member whose name says enough."""
    return msgspec.Meta(examples=[value], **bounds)


def read(decode: Callable[[Text], _T], raw: Text, field: str, rules: Rules = _ANY_OBJECT) -> _T:
    """Decode JSON. Raises MessageError, which names ``field`` or a member of the object."""
    try:
        return decode(raw)
    except msgspec.DecodeError as error:
        fault: Exception = explained(error, decode, memoryview(raw))
    except FAULTS as error:
        fault = error
    if _MISSING.fullmatch(str(fault)):
        try:
            _decode_raw(raw)
        except msgspec.DecodeError as error:  # behind the object
            fault = error
    raise named(fault, field, rules)


@contextmanager
def naming(field: str, rules: Rules = _ANY_OBJECT) -> Iterator[None]:
    """Raise MessageError as ``read`` does, for errors of a walk over JSON."""
    try:
        yield
    except FAULTS as error:
        raise named(error, field, rules) from None


def named(error: Exception, field: str, rules: Rules = _ANY_OBJECT) -> MessageError:
    """Return the error of a client for one of ``FAULTS``."""
    match error:
        case RecursionError():
            return MessageError(field, "is nested too deeply")
        case UnicodeDecodeError():
            return MessageError(field, f"is not UTF-8 (byte {error.start})")
        case msgspec.ValidationError():
            return _invalid(str(error), field, rules)
        case ElementError():
            field = f"{error.name or field}[{error.index}]"
    reason = str(error).removeprefix("JSON is malformed: ")
    return MessageError(field, f"is not valid JSON: {reason}")


def _invalid(message: str, field: str, rules: Rules) -> MessageError:
    if unknown := _UNKNOWN.fullmatch(message):
        return MessageError(_inside(unknown[2], unknown[1]), rules.unknown)
    if missing := _MISSING.fullmatch(message):
        return MessageError(_inside(missing[2], missing[1]), "is required")
    if "out of range" in message:
        return MessageError(field, "has a number that is out of range")
    if member := _MEMBER.search(message):
        names = (f"{member[1]}{member[2] or ''}", member[1])
        if name := next((each for each in names if each in rules.members), None):
            is_null = name in rules.required and "got `null`" in message
            return MessageError(name, "is required" if is_null else rules.members[name])
    return MessageError(field, rules.whole)


def _inside(outer: str | None, name: str) -> str:
    """Return the field of a member, maybe inside a member that is an object."""
    return name if outer is None else f"{outer}.{name}"


class Members:
    """Reads objects with members of these names, and leaves their values as JSON.

    The values are decoded later, each to its type and after a look at its size.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        fields = [(name, msgspec.Raw, _NULL) for name in names]
        struct = msgspec.defstruct("Members", fields, forbid_unknown_fields=True, gc=False)
        self._decode: Callable[[Text], Any] = msgspec.json.Decoder(struct).decode

    def reading(
        self, raw: bytes | bytearray, most: int, too_many: Callable[[str], OplogError]
    ) -> Pieces[dict[str, Value]]:
        """Return the members of an object that are not null.

        Raises MessageError, and the error of ``too_many`` for a list of more than ``most`` values,
        whose name it gets.
        """
        with naming("body"):
            found = self._members(raw)
            if found is None:
                found = yield from members(raw, self._names, most, too_many)
        return {name: value for name, value in found.items() if not is_null(value)}

    def _members(self, raw: bytes | bytearray) -> Mapping[str, Value] | None:
        """Return the members at once, None if the text is long or malformed.

        A walk then tells which value is malformed. Raises ValidationError.
        """
        if is_long(raw):
            return None
        try:
            given = self._decode(raw)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None
        return {name: getattr(given, name) for name in self._names}


def values_of(given: Value) -> Iterable[Text] | None:
    """Return the JSON of each value of a list, None for another value."""
    if isinstance(given, Extents):
        return given
    return _decode_array(given) if bytes(given).lstrip().startswith(b"[") else None


def is_null(value: Value) -> bool:
    """Return whether a member is null or absent."""
    return value is _NULL or (not isinstance(value, Extents) and bytes(value).strip() == b"null")

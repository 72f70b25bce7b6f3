"""Walks over long JSON text in pieces, value by value. No I/O.

A decoder takes a text in one call, which can block the event loop for long. Here each call looks at
one value, and at no more bytes than that value may have.
"""

import re
from array import array
from collections.abc import Callable, Collection, Iterator
from functools import partial

import msgspec

from oplogd.decode.pieces import Pieces
from oplogd.decode.surrogates import explained
from oplogd.errors import MessageTooLargeError, OplogError

# A text of more bytes, or with more commas, is read value by value: a decoder takes a text in one
# call, and a list of all its values could take a hundred times the memory of the text.
MANY_BYTES = 1024 * 1024
MANY_COMMAS = 50_000

# Longest value, in bytes: a message of 1 MiB of which every byte is escaped.
MAX_VALUE_BYTES = 7 * 1024 * 1024

# Longest text of the name of a member.
_MAX_NAME_BYTES = 1024

_BLANKS = b" \t\r\n"
# Blanks passed over together.
_BLANK_BYTES = 4096

# A piece ends after so many values or bytes.
_PIECE_VALUES = 64
_PIECE_BYTES = 64 * 1024

_TRAILING = re.compile(r"trailing characters \(byte ([0-9]+)\)")
_PLACE = re.compile(r"\(byte ([0-9]+)\)")
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_name: Callable[[memoryview], str] = msgspec.json.Decoder(str).decode


class ElementError(msgspec.DecodeError):
    """An element of an array is malformed. ``index``: its index, from 0. ``name``: the array's."""

    def __init__(self, name: str, index: int, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.index = index


def is_long(text: bytes | bytearray) -> bool:
    """Return whether a text is to be read value by value."""
    return len(text) > MANY_BYTES or text.count(b",") > MANY_COMMAS


def begins(body: bytes | bytearray, mark: bytes) -> bool:
    """Return whether the first nonblank byte is ``mark``."""
    walk = _Walk(body)
    walk.skip_blanks()
    return body[walk.at : walk.at + 1] == mark


class Extents:
    """The JSON of values in a body, by the indices of their first and last bytes."""

    def __init__(self, body: bytes | bytearray) -> None:
        self._view = memoryview(body)
        self._indices = array("Q")

    def add(self, start: int, end: int) -> None:
        self._indices.extend((start, end))

    def __len__(self) -> int:
        return len(self._indices) // 2

    def __iter__(self) -> Iterator[memoryview]:
        indices = iter(self._indices)
        for start in indices:
            yield self._view[start : next(indices)]


def elements(
    body: bytes | bytearray, most: int, too_many: Callable[[], OplogError]
) -> Pieces[Extents]:
    """Return the elements of an array.

    Raises msgspec.DecodeError (of an element ElementError) or RecursionError where the array is
    malformed, MessageTooLargeError at an element of more than MAX_VALUE_BYTES, and the error of
    ``too_many`` for more than ``most`` elements.
    """
    walk = _Walk(body)
    walk.expect(b"[")
    found = yield from walk.elements(most, too_many)
    walk.end()
    return found


def members(
    body: bytes | bytearray,
    names: Collection[str],
    most: int,
    too_many: Callable[[str], OplogError],
) -> Pieces[dict[str, Extents | bytes]]:
    """Return the values of an object's members by name: of a list its elements.

    Raises the errors of ``elements``, and msgspec.ValidationError for a member without a name of
    ``names``. ``too_many`` gets the name of the list.
    """
    walk = _Walk(body)
    found: dict[str, Extents | bytes] = {}
    walk.expect(b"{")
    is_first = True
    while not walk.took(b"}"):
        if not is_first:
            walk.expect(b",")
        is_first = False
        start, end = walk.value(_MAX_NAME_BYTES)
        name = _name(memoryview(body)[start:end])
        if name not in names:
            raise msgspec.ValidationError(f"Object contains unknown field `{name}`")
        walk.expect(b":")
        if walk.took(b"["):
            found[name] = yield from walk.elements(most, partial(too_many, name), name)
        else:
            start, end = walk.value(MAX_VALUE_BYTES)
            found[name] = bytes(body[start:end])
            yield
    walk.end()
    return found


class _Walk:
    """``at``: index of the next byte."""

    def __init__(self, body: bytes | bytearray) -> None:
        self.at = 0
        self._body = body
        self._view = memoryview(body)

    def took(self, mark: bytes) -> bool:
        """Pass over blanks and ``mark``. Return whether it was there."""
        self.skip_blanks()
        if self.at == len(self._body):
            raise msgspec.DecodeError("Input data was truncated")
        if self._body[self.at] != mark[0]:
            return False
        self.at += 1
        return True

    def skip_blanks(self) -> None:
        body = self._body
        while self.at < len(body) and body[self.at] in _BLANKS:
            window = body[self.at : self.at + _BLANK_BYTES]
            self.at += len(window) - len(window.lstrip(_BLANKS))

    def expect(self, mark: bytes) -> None:
        if not self.took(mark):
            raise _malformed(f"expected '{mark.decode()}'", self.at)

    def value(self, most: int) -> tuple[int, int]:
        """Pass over a value of at most so many bytes, and blanks. Return its begin and its end.

        msgspec cannot read one value and continue behind it, but its error names the byte after the
        value and its blanks.
        """
        self.skip_blanks()
        start = self.at
        window = self._view[start : start + most + 1]
        behind = start + len(window)
        try:
            _skip(window)
        except msgspec.DecodeError as error:
            message = str(error)
            if found := _TRAILING.search(message):
                behind = start + int(found[1]) - 1
            elif "truncated" in message and len(window) > most:
                raise _too_large(most, start) from None
            else:
                message = str(explained(error, _skip, window))
                place = _PLACE.sub(lambda at: f"(byte {start + int(at[1])})", message)
                raise msgspec.DecodeError(place) from None
        self.at = behind
        end = self._without_blanks(start, behind)
        if end - start > most:
            raise _too_large(most, start)
        return start, end

    def _without_blanks(self, start: int, end: int) -> int:
        """Return the end of a text without the blanks behind it."""
        body = self._body
        while end > start and body[end - 1] in _BLANKS:
            window = body[max(start, end - _BLANK_BYTES) : end]
            end -= len(window) - len(window.rstrip(_BLANKS))
        return end

    def elements(
        self, most: int, too_many: Callable[[], OplogError], name: str = ""
    ) -> Pieces[Extents]:
        """Pass over the rest of an array, and return its elements. ``name``: for messages."""
        found = Extents(self._body)
        if self.took(b"]"):
            return found
        due = self.at + _PIECE_BYTES
        while True:
            try:
                found.add(*self.value(MAX_VALUE_BYTES))
            except MessageTooLargeError as error:
                raise MessageTooLargeError(f"{name}[{len(found)}]", error.reason) from None
            except msgspec.DecodeError as error:
                raise ElementError(name, len(found), str(error)) from None
            if len(found) > most:
                raise too_many()
            if self.took(b"]"):
                return found
            if not self.took(b","):
                raise _malformed("expected ',' or ']'", self.at)
            if self.at > due or len(found) % _PIECE_VALUES == 0:
                due = self.at + _PIECE_BYTES
                yield

    def end(self) -> None:
        """Raise DecodeError unless only blanks follow."""
        self.skip_blanks()
        if self.at < len(self._body):
            raise _malformed("trailing characters", self.at)


def _too_large(most: int, at: int) -> MessageTooLargeError:
    return MessageTooLargeError("body", f"has a value of more than {most:,} bytes (byte {at})")


def _malformed(reason: str, at: int) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"JSON is malformed: {reason} (byte {at})")

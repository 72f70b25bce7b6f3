"""Splits a JSON array into its elements one by one, for arrays too long for a list. No I/O."""

import re
from collections.abc import Iterator

import msgspec

_NEXT = re.compile(rb"[^ \t\r\n]")
_TRAILING = re.compile(r"trailing characters \(byte ([0-9]+)\)")
_skip = msgspec.json.Decoder(msgspec.Raw).decode


def elements(body: bytes) -> Iterator[bytes]:
    """Yield the text of each element in order.

    Raises msgspec.DecodeError or RecursionError at the first malformed element. msgspec cannot
    read one value and continue behind it, but its error names the byte after the value.
    """
    at = body.index(b"[") + 1
    first = _NEXT.search(body, at)
    if first is not None and first[0] == b"]":
        at = first.end()
    else:
        view = memoryview(body)
        separator = b","
        while separator == b",":
            end = _end_of_value(view, at)
            yield body[at:end]
            separator, at = body[end : end + 1], end + 1
        if separator != b"]":
            raise msgspec.DecodeError(f"JSON is malformed: expected ',' or ']' (byte {end})")
    if _NEXT.search(body, at):
        raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {at})")


def _end_of_value(view: memoryview, at: int) -> int:
    """Return the index of the first character after a value and its blanks."""
    try:
        _skip(view[at:])
    except msgspec.DecodeError as error:
        if found := _TRAILING.search(str(error)):
            return at + int(found[1]) - 1
        raise
    raise msgspec.DecodeError("Input data was truncated")

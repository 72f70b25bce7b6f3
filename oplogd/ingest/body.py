"""Decodes the body of an HTTP request into operations. No I/O.

The work on a body is a generator that yields after each small piece, so the event loop can do other
work in between.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from oplogd.errors import MessageTooLargeError, OperationError, OplogError
from oplogd.ingest.faults import Faults
from oplogd.json_walk import ElementError, Extents, begins, elements, is_long
from oplogd.media_types import NDJSON
from oplogd.operation import MAX_OPERATION_BYTES, OnUnknown, Operation, Text, decode
from oplogd.pieces import Pieces, at_once, pieces

MAX_GZIP_MEMBERS = 100_000

_LINES_PIECE = 4096
_GZIP_PIECE = 4096
_PLAIN_PIECE = 64 * 1024
# Bytes that a byte of deflate can stand for.
_MAX_RATIO = 1032
_WHITE = b" \t\r\n"
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

Octets = bytes | bytearray

# Lines with their numbers, from 1.
_Block = list[tuple[int, Text]]


class TooLargeError(OplogError):
    """The body is over the limit, as received or decompressed."""


class TooManyError(TooLargeError):
    """The body has more operations than the queue holds. ``lines``: the number counted."""

    def __init__(self, lines: int, most: int, *, there_are_more: bool = False) -> None:
        first = "first " if there_are_more else ""
        super().__init__(
            f"the {first}{lines:,} operations are more than the queue holds ({most:,});"
            " send fewer at a time"
        )
        self.lines = lines


class BadLine(NamedTuple):
    """``line``: number of the NDJSON line or the array element, from 1."""

    line: int
    field: str
    reason: str


class InvalidBodyError(OplogError):
    """The body has bad lines, so nothing was stored.

    ``bad``: the first bad lines. ``lines``: the number of lines in the body.
    """

    def __init__(self, message: str, bad: list[BadLine], lines: int) -> None:
        super().__init__(message)
        self.bad = bad
        self.lines = lines


class Body(NamedTuple):
    operations: list[Operation]
    batch: bool


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Run ``decompressing`` to its end."""
    return bytes(at_once(decompressing(body, max_bytes, lambda _: None)))


def decompressing(body: Octets, max_bytes: int, take: Callable[[int], None]) -> Pieces[Octets]:
    """Decompress gzip. ``take`` gets the number of bytes before they are kept.

    Raises TooLargeError beyond ``max_bytes`` or MAX_GZIP_MEMBERS, and OperationError if the body
    is not gzip.
    """
    # One allocation for the announced size. Growing would copy, and hold the body twice meanwhile.
    announced = min(int.from_bytes(body[-4:], "little"), max_bytes, len(body) * _MAX_RATIO)
    take(announced)
    out = bytearray(announced)
    size = 0
    unzip = None
    at = members = 0
    try:
        while at < len(body):
            # Small pieces, because the end of each member copies the rest of its piece.
            piece = body[at : at + _GZIP_PIECE]
            if unzip is None:
                members += 1
                if members > MAX_GZIP_MEMBERS:
                    raise TooLargeError(f"the gzip body has more than {MAX_GZIP_MEMBERS:,} members")
                unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            # The last piece is not used up before its bytes are out: the trailer is behind them.
            plain = unzip.decompress(piece, min(_PLAIN_PIECE, max_bytes + 1 - size))
            end = size + len(plain)
            if end > max_bytes:
                raise TooLargeError(f"the body has more than {max_bytes:,} bytes when decompressed")
            take(max(0, end - len(out)))
            out[size:end] = plain
            size = end
            at += len(piece) - len(unzip.unused_data if unzip.eof else unzip.unconsumed_tail)
            if unzip.eof:
                unzip = None
            yield
    except zlib.error as error:
        raise OperationError("operation", f"the body is not gzip: {error}") from None
    if unzip is not None:
        raise OperationError("operation", "the gzip body ends too early")
    del out[size:]
    return out


def decode_body(body: Octets, media_type: str, arrival: str, most: int) -> Body:
    """Run ``decoding`` to its end."""
    return at_once(decoding(body, media_type, arrival, most))


def decoding(
    body: Octets, media_type: str, arrival: str, most: int, on_unknown: OnUnknown = None
) -> Pieces[Body]:
    """Return all operations of a body. ``on_unknown``: see ``decode``.

    Raises InvalidBodyError for bad lines, TooManyError for more than ``most`` lines (before it
    decodes any), and OperationError for a batch without operations.
    """
    if media_type == NDJSON:
        if body.count(b"\n") >= most:
            yield from _count(_lines(body), most)
        return Body((yield from _decode_lines(_lines(body), arrival, on_unknown)), batch=True)
    if not begins(body, b"["):
        try:
            return Body([decode(body, arrival, on_unknown)], batch=False)
        except OperationError as error:
            raise _bad_body(error.field, error.reason) from None
    try:
        found = yield from _elements(body, most)
    except MessageTooLargeError as error:
        raise _bad_body("operation", error.reason) from None
    except RecursionError:
        raise _bad_body("operation", "is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        if isinstance(error, ElementError):
            raise _bad_element(error.index + 1, reason) from None
        raise _bad_body("operation", reason) from None
    if len(found) > most:
        raise TooManyError(len(found), most)
    return Body((yield from _decode_lines(_numbered(found), arrival, on_unknown)), batch=True)


def _elements(body: Octets, most: int) -> Pieces[Extents | list[msgspec.Raw]]:
    if not is_long(body):
        with contextlib.suppress(msgspec.DecodeError):  # the walk tells which element is malformed
            return _decode_array(body)
    return (
        yield from elements(body, most, lambda: TooManyError(most + 1, most, there_are_more=True))
    )


def _bad_element(number: int, reason: str) -> InvalidBodyError:
    """Return the error for an array that ends for its reader at this element."""
    bad = BadLine(number, "operation", reason)
    return InvalidBodyError(f"{bad.field}: number {number} {reason}", [bad], 1)


def _bad_body(field: str, reason: str) -> InvalidBodyError:
    """Return the error for a body that is one operation, or that is no list of operations."""
    return InvalidBodyError(f"{field}: {reason}", [BadLine(1, field, reason)], 1)


def _decode_lines(
    blocks: Iterator[_Block], arrival: str, on_unknown: OnUnknown
) -> Pieces[list[Operation]]:
    operations: list[Operation] = []
    bad: Faults[BadLine] = Faults()
    count = 0
    for block in blocks:
        for number, line in block:
            try:
                operations.append(decode(line, arrival, on_unknown))
            except OperationError as error:
                bad.add(BadLine(number, error.field, error.reason))
        count += len(block)
        if bad:
            operations.clear()
        yield
    if bad:
        raise _bad_lines(bad, count)
    if not count:
        raise OperationError("operation", "there is none in the body")
    return operations


def _bad_lines(bad: Faults[BadLine], lines: int) -> InvalidBodyError:
    first, unnamed = bad.named[0], bad.count - len(bad.named)
    message = (
        f"{bad.count:,} of {lines:,} operations are invalid, nothing was stored; "
        f"the first is number {first.line}: {first.field}: {first.reason}"
    )
    if unnamed:
        message += f"; {unnamed:,} more bad operations are not named"
    return InvalidBodyError(message, bad.named, lines)


def _count(blocks: Iterator[_Block], most: int) -> Pieces[None]:
    """Raise TooManyError for more than ``most`` lines."""
    count = 0
    for block in blocks:
        count += len(block)
        if count > most + 1:
            raise TooManyError(most + 1, most, there_are_more=True)
        yield
    if count > most:
        raise TooManyError(count, most)


def _lines(body: Octets) -> Iterator[_Block]:
    """Yield the lines that are not blank, with their numbers."""
    at, number = 0, 1
    while at < len(body):
        end = (
            len(body)
            if at + _LINES_PIECE >= len(body)
            else body.rfind(b"\n", at, at + _LINES_PIECE)
        )
        if end < 0:  # a line longer than a piece
            end = body.find(b"\n", at + _LINES_PIECE)
            end = len(body) if end < 0 else end
        if end - at > MAX_OPERATION_BYTES:
            for start in range(at, end, MAX_OPERATION_BYTES):
                if body[start : min(start + MAX_OPERATION_BYTES, end)].strip(_WHITE):
                    # Refused for its length, so it need not be copied.
                    yield [(number, memoryview(body)[at:end])]
                    break
                yield []
            number, at = number + 1, end + 1
            continue
        piece = body[at:end]
        if piece.strip(_WHITE):
            lines: list[Octets] = [*piece.split(b"\n")]
            yield [(number + index, line) for index, line in enumerate(lines) if line.strip(_WHITE)]
            number += len(lines)
        else:
            number += piece.count(b"\n") + 1
            yield []
        at = end + 1


def _numbered(values: Iterable[Text]) -> Iterator[_Block]:
    """Yield the elements of an array with their numbers."""
    first = 1
    for group in pieces(values):
        yield list(enumerate(group, first))
        first += len(group)

"""Decodes the body of an HTTP request into operations. No I/O.

The work on a body is a generator that yields after each small piece, so the event loop can do other
work in between.
"""

import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from oplogd.errors import OperationError, OplogError
from oplogd.ingest.array import elements
from oplogd.media_types import NDJSON
from oplogd.operation import Operation, decode

# Bad lines that an answer names; the others are only counted.
MAX_NAMED = 100
MAX_GZIP_MEMBERS = 100_000

_LINES_PIECE = 4096
_PIECE_ELEMENTS = 64
_GZIP_PIECE = 4096
_WHITE = b" \t\r\n"
# Elements of an array with more commas are counted one by one before they take memory.
MANY_COMMAS = 200_000

_FILLED = re.compile(rb"[^ \t\r\n]")
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

# Lines with their numbers, from 1.
_Block = list[tuple[int, bytes]]

_T = TypeVar("_T")
# Work in pieces of at most a few milliseconds.
Pieces = Generator[None, None, _T]


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

    ``bad``: the first bad lines, at most MAX_NAMED. ``lines``: the number of lines in the body.
    """

    def __init__(
        self, bad: list[BadLine], lines: int, *, single: bool, count: int | None = None
    ) -> None:
        count = count or len(bad)
        first = bad[0]
        if single:
            message = f"{first.field}: {first.reason}"
        else:
            message = (
                f"{count:,} of {lines:,} operations are invalid, nothing was stored; "
                f"the first is number {first.line}: {first.field}: {first.reason}"
            )
        if count > len(bad):
            message += f"; {count - len(bad):,} more bad operations are not named"
        super().__init__(message)
        self.bad = bad
        self.lines = lines


class Body(NamedTuple):
    operations: list[Operation]
    batch: bool


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Run ``decompressing`` to its end."""
    return _at_once(decompressing(body, max_bytes, lambda _: None))


def decompressing(body: bytes, max_bytes: int, take: Callable[[int], None]) -> Pieces[bytes]:
    """Decompress gzip. ``take`` gets the number of bytes before they are kept.

    Raises TooLargeError beyond ``max_bytes`` or MAX_GZIP_MEMBERS, and OperationError if the body
    is not gzip.
    """
    out = bytearray()
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
            plain = unzip.decompress(piece, max_bytes + 1 - len(out))
            if len(out) + len(plain) > max_bytes:
                raise TooLargeError(f"the body has more than {max_bytes:,} bytes when decompressed")
            take(len(plain))
            out += plain
            at += len(piece) - len(unzip.unused_data)
            if unzip.eof:
                unzip = None
            yield
    except zlib.error as error:
        raise OperationError("operation", f"the body is not gzip: {error}") from None
    if unzip is not None:
        raise OperationError("operation", "the gzip body ends too early")
    return bytes(out)


def decode_body(body: bytes, media_type: str, arrival: str, most: int) -> Body:
    """Run ``decoding`` to its end."""
    return _at_once(decoding(body, media_type, arrival, most))


def decoding(body: bytes, media_type: str, arrival: str, most: int) -> Pieces[Body]:
    """Return all operations of a body.

    Raises InvalidBodyError for bad lines, TooManyError for more than ``most`` lines (before it
    decodes any), and OperationError for a batch without operations.
    """
    if media_type == NDJSON:
        if body.count(b"\n") >= most:
            yield from _count(_lines(body), most)
        return Body((yield from _decode_lines(_lines(body), arrival)), batch=True)
    start = _FILLED.search(body)
    if start is None or start[0] != b"[":
        try:
            return Body([decode(body, arrival)], batch=False)
        except OperationError as error:
            raise InvalidBodyError(
                [BadLine(1, error.field, error.reason)], 1, single=True
            ) from None
    try:
        if body.count(b",") > MANY_COMMAS:
            yield from _count(_elements(elements(body)), most)
            return Body((yield from _decode_lines(_elements(elements(body)), arrival)), batch=True)
        raws = _decode_array(body)
    except RecursionError:
        raise InvalidBodyError(
            [BadLine(1, "operation", "is nested too deeply")], 1, single=True
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        raise InvalidBodyError([BadLine(1, "operation", reason)], 1, single=True) from None
    if len(raws) > most:
        raise TooManyError(len(raws), most)
    return Body((yield from _decode_lines(_elements(map(bytes, raws)), arrival)), batch=True)


def _decode_lines(blocks: Iterator[_Block], arrival: str) -> Pieces[list[Operation]]:
    operations: list[Operation] = []
    bad: list[BadLine] = []
    count = wrong = 0
    for block in blocks:
        for number, line in block:
            try:
                operations.append(decode(line, arrival))
            except OperationError as error:
                wrong += 1
                if wrong <= MAX_NAMED:
                    bad.append(BadLine(number, error.field, error.reason))
        count += len(block)
        if bad:
            operations.clear()
        yield
    if bad:
        raise InvalidBodyError(bad, count, single=False, count=wrong)
    if not count:
        raise OperationError("operation", "there is none in the body")
    return operations


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


def _lines(body: bytes) -> Iterator[_Block]:
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
        piece = body[at:end]
        if piece.strip(_WHITE):
            lines = piece.split(b"\n")
            yield [(number + index, line) for index, line in enumerate(lines) if line.strip(_WHITE)]
            number += len(lines)
        else:
            number += piece.count(b"\n") + 1
            yield []
        at = end + 1


def _elements(values: Iterable[bytes]) -> Iterator[_Block]:
    """Yield the elements of an array with their numbers."""
    numbered = enumerate(values, 1)
    while block := list(islice(numbered, _PIECE_ELEMENTS)):
        yield block


def _at_once(pieces: Pieces[_T]) -> _T:
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            value: _T = end.value
            return value

"""Decodes the body of an HTTP request into operations, in small pieces. No I/O."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.faults import Faults
from oplogd.decode.media_types import NDJSON
from oplogd.decode.pieces import Pieces, pieces
from oplogd.decode.walk import ElementError, Extents, begins, elements, is_long
from oplogd.errors import MessageTooLargeError, OperationError, OplogError
from oplogd.model.operation import MAX_OPERATION_BYTES, OnUnknown, Operation, decode, decode_usual
from oplogd.watch.bounded import THE_QUEUE

_LINES_PIECE = 4096
_WHITE = b" \t\r\n"
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

# Lines with their numbers, from 1.
_Block = list[tuple[int, Text]]


class TooManyError(TooLargeError):
    """The body has more operations than a queue holds. ``lines``: the number counted."""

    def __init__(self, lines: int, most: int, queue: str, *, there_are_more: bool = False) -> None:
        first = "first " if there_are_more else ""
        super().__init__(
            f"the {first}{lines:,} operations are more than {queue} holds"
            f" ({most:,}; see --max-queued-events); send fewer at a time"
        )
        self.lines = lines


class BadLine(NamedTuple):
    """``line``: number of the NDJSON line or the array element, from 1."""

    line: int
    field: str
    reason: str


class InvalidBodyError(OplogError):
    """Nothing was stored. ``bad``: the first bad lines. ``lines``: the number of all lines."""

    def __init__(self, message: str, bad: list[BadLine], lines: int) -> None:
        super().__init__(message)
        self.bad = bad
        self.lines = lines


class Body(NamedTuple):
    operations: list[Operation]
    batch: bool


def decoding(
    body: Buffer,
    media_type: str,
    arrival: str,
    most: int,
    on_unknown: OnUnknown = None,
    *,
    queue: str = THE_QUEUE,
    is_brief: bool = False,
) -> Pieces[Body]:
    """Return all operations of a body. ``on_unknown``: see ``decode``.

    Raises InvalidBodyError for bad lines, TooManyError for more than ``most`` lines (before it
    decodes any; it names the ``queue``), and OperationError for a batch without operations.
    ``is_brief``: raises FaultyError for the first bad line.
    """
    faults: Faults[BadLine] = Faults(is_brief=is_brief)
    if media_type == NDJSON:
        if body.count(b"\n") >= most:
            yield from _count(_lines(body), most, queue)
        return Body(
            (yield from _decode_lines(_lines(body), arrival, on_unknown, faults)), batch=True
        )
    if not begins(body, b"["):
        try:
            return Body([decode(body, arrival, on_unknown)], batch=False)
        except OperationError as error:
            raise _bad_body(error.field, error.reason) from None
    if len(body) <= MAX_OPERATION_BYTES and (usual := decode_usual(bytes(body), arrival)):
        if len(usual) > most:
            raise TooManyError(len(usual), most, queue)
        return Body(usual, batch=True)
    try:
        found = yield from _elements(body, most, queue)
    except MessageTooLargeError as error:
        raise _bad_body("operation", error.reason) from None
    except RecursionError:
        raise _bad_body("operation", "is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        if isinstance(error, ElementError):
            bad = BadLine(error.index + 1, "operation", reason)  # where its reader stopped
            raise InvalidBodyError(f"operation: number {bad.line} {reason}", [bad], 1) from None
        raise _bad_body("operation", reason) from None
    if len(found) > most:
        raise TooManyError(len(found), most, queue)
    return Body(
        (yield from _decode_lines(_numbered(found), arrival, on_unknown, faults)), batch=True
    )


def _elements(body: Buffer, most: int, queue: str) -> Pieces[Extents | list[msgspec.Raw]]:
    if not is_long(body):
        with contextlib.suppress(msgspec.DecodeError):  # the walk tells which element is malformed
            return _decode_array(body)
    return (
        yield from elements(
            body, most, lambda: TooManyError(most + 1, most, queue, there_are_more=True)
        )
    )


def _bad_body(field: str, reason: str) -> InvalidBodyError:
    """Return the error for a body that is one operation, or that is no list of operations."""
    return InvalidBodyError(f"{field}: {reason}", [BadLine(1, field, reason)], 1)


def _decode_lines(
    blocks: Iterator[_Block], arrival: str, on_unknown: OnUnknown, bad: Faults[BadLine]
) -> Pieces[list[Operation]]:
    operations: list[Operation] = []
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


def _count(blocks: Iterator[_Block], most: int, queue: str) -> Pieces[None]:
    """Raise TooManyError for more than ``most`` lines."""
    count = 0
    for block in blocks:
        count += len(block)
        if count > most + 1:
            raise TooManyError(most + 1, most, queue, there_are_more=True)
        yield
    if count > most:
        raise TooManyError(count, most, queue)


def _lines(body: Buffer) -> Iterator[_Block]:
    """Yield the nonblank lines, with their numbers."""
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
            lines: list[Buffer] = [*piece.split(b"\n")]
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

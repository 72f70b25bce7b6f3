"""The body of a POST as operations. No I/O."""

import zlib
from typing import NamedTuple

import msgspec

from oplogd.errors import OperationError, OplogError
from oplogd.operation import Operation, decode

JSON = "application/json"
NDJSON = "application/x-ndjson"

_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHITE = b" \t\r\n"
_GZIP_PIECE = 4096


class TooLargeError(OplogError):
    """The body, or its decompressed form, is over the limit."""


class TooManyError(TooLargeError):
    """The body has more operations (``lines``) than are taken at a time."""

    def __init__(self, lines: int, most: int) -> None:
        super().__init__(f"the {lines:,} operations are more than the queue holds ({most:,}); send fewer at a time")
        self.lines = lines


class BadLine(NamedTuple):
    """``line`` counts from 1: a line of NDJSON, an element of an array."""

    line: int
    field: str
    reason: str


class InvalidBodyError(OplogError):
    """Not stored, because of the bad lines. ``lines``: how many the body has."""

    def __init__(self, bad: list[BadLine], lines: int, single: bool) -> None:
        first = bad[0]
        if single:
            message = f"{first.field}: {first.reason}"
        else:
            message = (
                f"{len(bad):,} of {lines:,} operations are invalid, nothing was stored; "
                f"the first is number {first.line}: {first.field}: {first.reason}"
            )
        super().__init__(message)
        self.bad = bad
        self.lines = lines


class Body(NamedTuple):
    operations: list[Operation]
    batch: bool


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Undo gzip. Raises TooLargeError past ``max_bytes`` and OperationError if it is no gzip."""
    out = bytearray()
    unzip = None
    at = 0
    try:
        while at < len(body):
            # In small pieces, since a member's end hands back a copy of what follows it, and members may be many.
            piece = body[at : at + _GZIP_PIECE]
            unzip = unzip or zlib.decompressobj(zlib.MAX_WBITS | 16)
            out += unzip.decompress(piece, max_bytes + 1 - len(out))
            if len(out) > max_bytes:
                raise TooLargeError(f"the body has more than {max_bytes:,} bytes when decompressed")
            at += len(piece) - len(unzip.unused_data)
            if unzip.eof:
                unzip = None
    except zlib.error as error:
        raise OperationError("operation", f"the body is not gzip: {error}") from None
    if unzip is not None:
        raise OperationError("operation", "the gzip body ends too early")
    return bytes(out)


def decode_body(body: bytes, media_type: str, arrival: str, most: int) -> Body:
    """All operations of a body or none.

    Raises InvalidBodyError that names every bad line, and TooManyError for more than ``most`` lines, before it looks at
    any: to name millions of bad ones would take minutes and gigabytes.
    """
    if media_type == NDJSON:
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip(_WHITE)]
        return Body(_decode_lines(lines, arrival, most), batch=True)
    if body.lstrip(_WHITE)[:1] != b"[":
        try:
            return Body([decode(body, arrival)], batch=False)
        except OperationError as error:
            raise InvalidBodyError([BadLine(1, error.field, error.reason)], 1, single=True) from None
    try:
        elements = _decode_array(body)
    except RecursionError:
        raise InvalidBodyError([BadLine(1, "operation", "is nested too deeply")], 1, single=True) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        raise InvalidBodyError([BadLine(1, "operation", reason)], 1, single=True) from None
    return Body(_decode_lines([(n, bytes(raw)) for n, raw in enumerate(elements, 1)], arrival, most), batch=True)


def _decode_lines(lines: list[tuple[int, bytes]], arrival: str, most: int) -> list[Operation]:
    if len(lines) > most:
        raise TooManyError(len(lines), most)
    operations: list[Operation] = []
    bad: list[BadLine] = []
    for number, raw in lines:
        try:
            operations.append(decode(raw, arrival))
        except OperationError as error:
            bad.append(BadLine(number, error.field, error.reason))
    if bad:
        raise InvalidBodyError(bad, len(lines), single=False)
    return operations

"""Decompresses the bodies of requests in pieces. No I/O."""

import zlib
from collections.abc import Callable

from oplogd.decode.buffers import Buffer
from oplogd.decode.pieces import Pieces
from oplogd.errors import OperationError, OplogError

MAX_GZIP_MEMBERS = 100_000

_GZIP_PIECE = 4096
_PLAIN_PIECE = 64 * 1024
# Bytes a byte of deflate can stand for.
_MAX_RATIO = 1032


class TooLargeError(OplogError):
    """The body is over the limit, as received or decompressed."""


def decompressing(body: Buffer, max_bytes: int, take: Callable[[int], None]) -> Pieces[Buffer]:
    """Decompress gzip. ``take`` gets the number of bytes before they are held.

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

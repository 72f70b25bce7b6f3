"""Values in PostgreSQL's binary form: arrays, and rows of COPY. No I/O.

psycopg's own arrays take several times as long.
"""

from collections.abc import Iterable, Sequence
from struct import Struct, pack

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_TEXT, _BIGINT, _TIMESTAMPTZ = 25, 20, 1184
_ARRAY_OF = {_TEXT: 1009, _BIGINT: 1016, _TIMESTAMPTZ: 1185}
# From 1970 to 2000, in ms: PostgreSQL counts microseconds from there.
_EPOCH_MS = 946_684_800_000
_LENGTH = Struct(">i").pack
_NUMBER = Struct(">iq").pack
_ROW_ID = Struct(">hi").pack
_ROW_NUMBER = Struct(">iqi").pack
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"

Row = tuple[bytes, int, bytes, int, bytes]
"""Id, version, source, time in ms since 1970, and JSON."""


class Texts(bytes):
    """A ``text[]``."""


class Numbers(bytes):
    """A ``bigint[]``."""


class Times(bytes):
    """A ``timestamptz[]``."""


def texts(values: Sequence[bytes]) -> Texts:
    parts = [part for value in values for part in (_LENGTH(len(value)), value)]
    return Texts(_head(_TEXT, len(values)) + b"".join(parts))


def numbers(values: Sequence[int]) -> Numbers:
    """Raises struct.error for a number with more than 64 bits."""
    return Numbers(_head(_BIGINT, len(values)) + b"".join([_NUMBER(8, each) for each in values]))


def times(values: Iterable[int]) -> Times:
    """``values``: ms since 1970. Raises struct.error as ``numbers`` does."""
    parts = [_NUMBER(8, (ms - _EPOCH_MS) * 1000) for ms in values]
    return Times(_head(_TIMESTAMPTZ, len(parts)) + b"".join(parts))


def copy_rows(rows: Iterable[Row]) -> bytes:
    """Return all data of a ``COPY … (FORMAT binary)``. Raises struct.error as ``numbers`` does."""
    parts = [_COPY_HEAD]
    for id, version, source, ms, value in rows:
        parts += (
            _ROW_ID(5, len(id)),
            id,
            _ROW_NUMBER(8, version, len(source)),
            source,
            _ROW_NUMBER(8, (ms - _EPOCH_MS) * 1000, len(value)),
            value,
        )
    parts.append(_COPY_END)
    return b"".join(parts)


def register(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Let a connection take arrays as parameters."""
    for kind, element in ((Texts, _TEXT), (Numbers, _BIGINT), (Times, _TIMESTAMPTZ)):
        dumper = type(f"{kind.__name__}Dumper", (_AsIs,), {"oid": _ARRAY_OF[element]})
        connection.adapters.register_dumper(kind, dumper)


class _AsIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def _head(element: int, length: int) -> bytes:
    """Return the head of an array with one dimension, from 1."""
    if not length:
        return pack(">iii", 0, 0, element)
    return pack(">iiiii", 1, 0, element, length, 1)

"""The input of statements: JSON, rows, and the division of an append. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, TypeVar

import msgspec

# Bounds of one append statement. Larger statements cost memory and save no time.
STATEMENT_BYTES = 1 << 20
STATEMENT_OPERATIONS = 5_000

# Rows of one insert. A prepared statement takes 200 bytes for each.
_MOST_ROWS = 512

_T = TypeVar("_T")


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def insert(table: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Return statements, with their values, that insert rows. ``table``: may name its columns.

    Values cost a fourth of JSON. Rows of NULL fill up to a power of two: a connection keeps few
    prepared statements.
    """
    for start in range(0, len(rows), _MOST_ROWS):
        some = rows[start : start + _MOST_ROWS]
        width, count = len(some[0]), 1 << (len(some) - 1).bit_length()
        values = [*chain.from_iterable(some), *repeat(None, width * (count - len(some)))]
        yield _insert(table, width, count), values


@cache
def _insert(table: str, width: int, count: int) -> str:
    row = f"({','.join('?' * width)})"
    rows = ",".join([row] * count)
    return f"INSERT INTO {table} SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL"


def parts(items: Sequence[_T], size_of: Callable[[_T], int]) -> Iterator[Sequence[_T]]:
    """Divide items so that a part fits STATEMENT_OPERATIONS and STATEMENT_BYTES, or is one item."""
    sizes = [size_of(item) for item in items]
    start = size = 0
    if len(items) > STATEMENT_OPERATIONS or sum(sizes) > STATEMENT_BYTES:
        for number, own in enumerate(sizes):
            size += own
            count = number - start
            if count == STATEMENT_OPERATIONS or (count and size > STATEMENT_BYTES):
                yield items[start:number]
                start, size = number, own
    if items:
        yield items[start:]

"""The input of statements: JSON, and the division of an append. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

# Bounds of one append statement. Larger statements cost memory and save no time.
STATEMENT_BYTES = 1 << 20
STATEMENT_OPERATIONS = 5_000

_T = TypeVar("_T")


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


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

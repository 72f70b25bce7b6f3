"""The input of statements: JSON, and the division of an append. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from oplogd.store.sqlite.file.statements import STATEMENT_BYTES, STATEMENT_OPERATIONS

_T = TypeVar("_T")


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def parts(items: Sequence[_T], size_of: Callable[[_T], int]) -> Iterator[Sequence[_T]]:
    """Divide items so that a part fits STATEMENT_OPERATIONS and STATEMENT_BYTES, or is one item."""
    start = size = 0
    for number, item in enumerate(items):
        own = size_of(item)
        size += own
        count = number - start
        if count == STATEMENT_OPERATIONS or (count and size > STATEMENT_BYTES):
            yield items[start:number]
            start, size = number, own
    if items:
        yield items[start:]

"""The messages of one request. No I/O."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

BATCH_BYTES = 1024 * 1024
_T = TypeVar("_T")


def batches(
    messages: Iterable[_T], most: int, size_of: Callable[[Any], int] = len
) -> Iterator[list[_T]]:
    """Yield messages in lists of at most ``most`` messages and about 1 MiB."""
    batch: list[_T] = []
    size = 0
    for message in messages:
        own = size_of(message) + 1
        if batch and (len(batch) >= most or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch

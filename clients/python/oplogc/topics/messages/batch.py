"""The encoded messages of one request. No I/O."""

from collections.abc import Iterable, Iterator

BATCH_BYTES = 1024 * 1024


def batches(messages: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """Yield messages in lists of at most ``most`` messages and about 1 MiB."""
    batch: list[bytes] = []
    size = 0
    for message in messages:
        size += len(message) + 1
        if batch and (len(batch) >= most or size > BATCH_BYTES):
            yield batch
            batch, size = [], len(message) + 1
        batch.append(message)
    if batch:
        yield batch

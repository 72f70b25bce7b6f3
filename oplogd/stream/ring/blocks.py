"""The blocks of small entries that expand: read once per agent, for all consumers that are live."""

import asyncio
from collections.abc import Iterable, Mapping

from oplogd.errors import StoreUnavailableError
from oplogd.model.isolation import EntryKind
from oplogd.model.transaction import decode_marker
from oplogd.store.topics import TopicEntry, TopicLog
from oplogd.stream.ring.router import record_frames

# Most records of an entry that the ring holds, and most bytes of their blocks together.
MAX_RECORDS = 100
MAX_BYTES = 100_000

# Entries read at a time.
_AT_ONCE = 8

# The blocks of an entry's records by its offset.
Blocks = Mapping[int, bytes]


async def read_blocks(
    log: TopicLog, entries: Iterable[TopicEntry], kinds: frozenset[EntryKind]
) -> Blocks:
    """Read the records of the small entries of these kinds: COMMIT, PUBLISH.

    An entry is left out if the store cannot be asked, or if one of its records has an own time to
    live. Raises TopicNotFoundError.
    """
    small = [
        entry
        for entry in entries
        if entry.event in kinds and 0 < decode_marker(entry.data).records <= MAX_RECORDS
    ]
    found: dict[int, bytes] = {}
    for first in range(0, len(small), _AT_ONCE):
        some = small[first : first + _AT_ONCE]
        blocks = await asyncio.gather(*(_read(log, entry) for entry in some))
        for entry, block in zip(some, blocks, strict=True):
            if block:
                found[entry.offset] = block
    return found


async def _read(log: TopicLog, entry: TopicEntry) -> bytes:
    """Return the blocks of an entry's records; empty if the ring must not hold them."""
    try:
        records = await log.expand(entry, -1, MAX_RECORDS)
    except StoreUnavailableError:
        return b""  # messages of the same topic must not wait for this
    marker = decode_marker(entry.data)
    if len(records) != marker.records or any(record.expires_ms for record in records):
        return b""
    block = b"".join(record_frames(entry, records, marker.last))
    return block if len(block) <= MAX_BYTES else b""

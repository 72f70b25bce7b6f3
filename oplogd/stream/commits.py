"""Small commits: their records are read once per agent, for all consumers that are live."""

import asyncio
from collections.abc import Iterable, Mapping

from oplogd.errors import StoreUnavailableError
from oplogd.isolation import Reading, reading
from oplogd.store.topics import TopicEntry, TopicLog
from oplogd.stream.router import record_frames
from oplogd.transaction import Isolation, decode_marker

# Most records of a commit that the ring holds, and most bytes of their blocks together.
MAX_RECORDS = 100
MAX_BYTES = 100_000

# Commits read at a time.
_AT_ONCE = 8

# The blocks of a commit's records by its offset.
Commits = Mapping[int, bytes]


async def read_commits(log: TopicLog, entries: Iterable[TopicEntry]) -> Commits:
    """Read the records of the small commits among these entries.

    A commit is left out if the store cannot be asked, or if one of its records has an own time to
    live. Raises TopicNotFoundError.
    """
    small = [
        entry
        for entry in entries
        if reading(entry.event, Isolation.READ_COMMITTED) is Reading.EXPAND
        and 0 < decode_marker(entry.data).records <= MAX_RECORDS
    ]
    found: dict[int, bytes] = {}
    for first in range(0, len(small), _AT_ONCE):
        some = small[first : first + _AT_ONCE]
        blocks = await asyncio.gather(*(_read(log, commit) for commit in some))
        for commit, block in zip(some, blocks, strict=True):
            if block:
                found[commit.offset] = block
    return found


async def _read(log: TopicLog, commit: TopicEntry) -> bytes:
    """Return the blocks of a commit's records; empty if the ring must not hold them."""
    try:
        records = await log.expand(commit, -1, MAX_RECORDS)
    except StoreUnavailableError:
        return b""  # messages of the same topic must not wait for this
    marker = decode_marker(commit.data)
    if len(records) != marker.records or any(record.expires_ms for record in records):
        return b""
    block = b"".join(record_frames(commit, records, marker.last))
    return block if len(block) <= MAX_BYTES else b""

"""Shards: fixed parts of a log, chosen by what an entry is about. No I/O.

The hash is CRC-32, as in zlib and Ethernet: every language has it. It spreads similar keys evenly.
"""

import re
from typing import NamedTuple
from zlib import crc32

from oplogd.errors import FilterError
from oplogd.model.operation import Data

# Most shards of a log.
MAX_SHARDS = 256

# Most numbers of shards into which the readers of one agent divide a log at a time.
MAX_TOTALS = 16

_SHARD = re.compile(r"(0|[1-9][0-9]{0,2})/([1-9][0-9]{0,2})")


class Shard(NamedTuple):
    """Part ``number`` of ``total``. Numbers begin with 0."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def has(self, hash_: int) -> bool:
        """Return whether the entries with this hash are in this shard."""
        return hash_ % self.total == self.number


def hash_of(text: str) -> int:
    """Return the hash by which entries are spread."""
    return crc32(text.encode())


def object_hash(data: Data) -> int:
    """Return the hash of an operation's object: all its operations are in one shard."""
    return hash_of(f"{data.type}/{data.id}")


def parse_shard(text: str) -> Shard:
    """Read ``I/N``: 0 <= I < N <= MAX_SHARDS. Raises FilterError."""
    found = _SHARD.fullmatch(text)
    if found is not None:
        shard = Shard(int(found[1]), int(found[2]))
        if shard.number < shard.total <= MAX_SHARDS:
            return shard
    raise FilterError("shard", f"must be I/N, as 0/8: N from 1 to {MAX_SHARDS}, I from 0 to N - 1")

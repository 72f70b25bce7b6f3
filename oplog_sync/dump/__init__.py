"""The dump as rows ``key, timestamp, data, has_parents``, checked and normalised by the operation's own rules.

Every format is turned into one JSON object a row first, so that there is one way in. An invalid row becomes a row as well,
with a key no object can have: it travels along and is counted in the same pass. Its place and its reason take a second read
of the dump, which a sound one is spared.
"""

from oplog_sync.dump.reading import raw_rows
from oplog_sync.dump.rows import (
    INVALID,
    SCHEMA,
    faulty_rows,
    invalid_reason,
    normalised,
    rows_before,
)
from oplog_sync.dump.stdin import spool

__all__ = [
    "INVALID",
    "SCHEMA",
    "faulty_rows",
    "invalid_reason",
    "normalised",
    "raw_rows",
    "rows_before",
    "spool",
]

"""The row of the guarded time, each function one call on a connection."""

import sqlite3

from oplogd.clock.rule import Saved, lead

_FIND = "SELECT wall, times, removals, times_left, removals_left, ages FROM guarded_clock"
_SAVE = "REPLACE INTO guarded_clock VALUES (1, ?, ?, ?, ?, ?, ?)"
_NEWEST = """
    SELECT max(
        (SELECT head_ts FROM logs WHERE name = 'ops'), (SELECT ended_stamp FROM catalogue) >> 16,
        coalesce((SELECT max(head_stamp) FROM topics WHERE name IS NOT NULL), 0) >> 16
    )
"""


_EXISTS = "SELECT count(*) FROM sqlite_master WHERE name = 'guarded_clock'"


def find(db: sqlite3.Connection) -> Saved | None:
    """Return the time in the file; None if it has none, or is of an older agent."""
    if not db.execute(_EXISTS).fetchone()[0]:
        return None
    row = db.execute(_FIND).fetchone()
    return None if row is None else Saved(*row)


def save(db: sqlite3.Connection, saved: Saved) -> None:
    db.execute(_SAVE, saved)


def ahead(db: sqlite3.Connection, now: int) -> int:
    """Return by how many ms the newest time in the store leads, 0 if allowed."""
    (newest,) = db.execute(_NEWEST).fetchone()
    return lead(newest, now)

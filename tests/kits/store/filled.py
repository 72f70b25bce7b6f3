"""SQLite stores with many states."""

import sqlite3
from contextlib import closing
from pathlib import Path

from oplogd.store.sqlite import SqliteStore

_FILL = """
    WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
    INSERT INTO states (key, n, ts, deleted, data)
    SELECT 'video/' || n, n, (SELECT head_ts FROM logs) + n / 10, n <= :deleted,
    '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x3kd2"],"type":"video","id":"' || n || '"}'
    FROM number
"""
_FILLED = "UPDATE logs SET head = :count, head_ts = head_ts + :count / 10"


async def fill(path: Path, live: int, deleted: int) -> None:
    """Make a store with states, deleted ones first. The log has lost all entries but the last."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        db.execute(_FILL, {"count": live + deleted, "deleted": deleted})
        db.execute(_FILLED, {"count": live + deleted})
        db.execute("COMMIT")

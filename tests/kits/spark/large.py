"""A store of many states, made without an agent."""

import json
import sqlite3
from pathlib import Path

from tests.kits.spark.helpers import append

OLD, NEW = "2020-01-01T00:00:00.000Z", "2021-01-01T00:00:00.000Z"

_STATES = f"""
    WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < ?)
    INSERT INTO states (key, n, ts, deleted, data)
    SELECT printf('video/x%010x', i * 7919), i + 1, 1577836800000, 0, printf(
        '{{"timestamp":"{OLD}","parents":["user/%d"],"type":"video","id":"x%010x"}}',
        i % 9973, i * 7919
    ) FROM numbers
"""
_INDEXES = """
    SELECT name, sql FROM sqlite_master
    WHERE type = 'index' AND tbl_name = 'states' AND sql IS NOT NULL
"""


def data(n: int, timestamp: str) -> str:
    """Return the JSON text of object number ``n``."""
    key = f'"type":"video","id":"x{n * 7919:010x}"'
    return f'{{"timestamp":"{timestamp}","parents":["user/{n % 9973}"],{key}}}'


def make_store(store: Path, objects: int) -> None:
    """Make a store with states as an agent leaves them, and a trimmed log."""
    append(store, [json.loads(data(0, OLD)) | {"event": "insert"}])
    db = sqlite3.connect(store)
    with db:
        indexes = db.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            db.execute(f"DROP INDEX {name}")
        db.execute(_STATES, (objects,))
        for _, sql in indexes:
            db.execute(sql)
        db.execute("UPDATE ops SET seq = ?", (objects,))
        db.execute("UPDATE logs SET head = ?", (objects,))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()

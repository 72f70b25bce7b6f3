"""Removal of entries that nobody can read, in small steps: each one call on a connection.

Entries leave at the front only. Others become void: they keep their offsets, which stay dense.
"""

import sqlite3

from oplogd.errors import TopicNotFoundError
from oplogd.store.sqlite import topic_entries
from oplogd.store.sqlite import topic_statements as sql
from oplogd.store.sqlite.connection import transaction
from oplogd.store.topics import MAX_OFFSET

# Entries that one step removes: a few ms.
STEP_ENTRIES = 500


def is_needed(db: sqlite3.Connection) -> bool:
    """Return whether there are topics, deleted ones included."""
    return bool(db.execute(sql.EXIST).fetchone()[0])


def expired(db: sqlite3.Connection, now: int) -> list[int]:
    """Return the logs of topics whose oldest entry is gone."""
    return [log for (log,) in db.execute(sql.EXPIRED, {"now": now})]


def deleted(db: sqlite3.Connection) -> list[int]:
    """Return the logs of deleted topics that still have a row."""
    return [log for (log,) in db.execute(sql.DELETED)]


def trim(db: sqlite3.Connection, log: int, now: int) -> int:
    """Remove entries before the front; raise the floor first. Return their number."""
    with transaction(db):
        try:
            front = topic_entries.raise_floor(db, log, now)
        except TopicNotFoundError:
            return 0
        return _remove(db, log, front.offset)


def forget(db: sqlite3.Connection, log: int) -> int:
    """Remove entries of a deleted topic, at the end its row. Return the number of entries."""
    with transaction(db):
        count = _remove(db, log, MAX_OFFSET)
        if count == 0:
            db.execute(sql.FORGET, (log,))
        return count


def void(db: sqlite3.Connection, now: int) -> int:
    """Empty messages past their own time to live: they keep their place. Return their number."""
    return db.execute(sql.VOID, {"now": now, "limit": STEP_ENTRIES}).rowcount


def _remove(db: sqlite3.Connection, log: int, upto: int) -> int:
    base = log << sql.OFFSET_BITS
    given = {"base": base, "upto": upto, "limit": STEP_ENTRIES}
    return db.execute(sql.REMOVE, given).rowcount

"""Removal of entries that nobody can read, in small steps: each one call on a connection.

Entries leave at the front only. Others become void: they keep their offsets, which stay dense.
"""

import sqlite3
from dataclasses import dataclass

from oplogd.errors import TopicNotFoundError
from oplogd.message_id import stamp
from oplogd.store.sqlite import topic_entries
from oplogd.store.sqlite import topic_statements as sql
from oplogd.store.sqlite.connection import transaction
from oplogd.store.topics import MAX_OFFSET
from oplogd.transaction import decode_marker

# Entries that one step removes: a few ms.
STEP_ENTRIES = 500

# The entries of a transaction stay this much longer than others: committed readers read a record
# where its commit is, up to 15 minutes (the longest time-out) after its own entry.
LONGER_MS = 20 * 60_000


@dataclass
class Progress:
    """How far the sweep of one log has come. ``after``: offset of the last entry seen."""

    after: int = 0
    has_ended: bool = False


def is_needed(db: sqlite3.Connection) -> bool:
    """Return whether there are topics, deleted ones included."""
    return bool(db.execute(sql.EXIST).fetchone()[0])


def expired(db: sqlite3.Connection, now: int) -> list[int]:
    """Return the logs of topics whose oldest entry is gone."""
    return [log for (log,) in db.execute(sql.EXPIRED, {"now": now})]


def deleted(db: sqlite3.Connection) -> list[int]:
    """Return the logs of deleted topics that still have a row."""
    return [log for (log,) in db.execute(sql.DELETED)]


def trim(db: sqlite3.Connection, log: int, now: int, progress: Progress | None = None) -> int:
    """Remove entries before the front; raise the floor first. Return their number."""
    progress = progress or Progress()
    with transaction(db):
        try:
            front = topic_entries.raise_floor(db, log, now)
        except TopicNotFoundError:
            progress.has_ended = True
            return 0
        given = {"log": log, "now": now, "longer": stamp(LONGER_MS, 0)}
        keep_from = db.execute(sql.KEEP_FROM, given).fetchone()[0]
        return _remove(db, log, front.offset, keep_from, progress)


def forget(db: sqlite3.Connection, log: int, progress: Progress | None = None) -> int:
    """Remove entries of a deleted topic, at the end its row. Return the number of entries."""
    progress = progress or Progress()
    with transaction(db):
        count = _remove(db, log, MAX_OFFSET, sql.MAX_STAMP, progress)
        if progress.has_ended:
            db.execute(sql.FORGET, (log,))
        return count


def void(db: sqlite3.Connection, now: int) -> int:
    """Empty messages past their own time to live: they keep their place. Return their number."""
    return db.execute(sql.VOID, {"now": now, "limit": STEP_ENTRIES}).rowcount


def _remove(db: sqlite3.Connection, log: int, upto: int, keep_from: int, progress: Progress) -> int:
    """Look at some entries and remove them, except a transaction's from this stamp on."""
    given = {
        "base": log << sql.OFFSET_BITS,
        "after": progress.after,
        "upto": upto,
        "keep_from": keep_from,
        "limit": STEP_ENTRIES,
    }
    (last,) = db.execute(sql.LAST_OF_STEP, given).fetchone()
    if last is None:
        progress.has_ended = True
        return 0
    given["upto"] = last
    room = STEP_ENTRIES
    for (data,) in db.execute(sql.COMMITS, given).fetchall():
        records = {"txn": int(decode_marker(data).txn), "log": log, "limit": room}
        room -= db.execute(sql.REMOVE_RECORDS, records).rowcount
        if room == 0:
            return 0  # there may be more of them: the next step continues here
    progress.after = last
    return db.execute(sql.REMOVE, given).rowcount

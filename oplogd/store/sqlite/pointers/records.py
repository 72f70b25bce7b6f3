"""Reads of the records of COMMIT entries and of the stored messages of PUBLISH entries."""

import sqlite3

from oplogd.clock.ages import Present
from oplogd.model.transaction import decode_marker
from oplogd.store.sqlite.pointers import statements as pointer_statements
from oplogd.store.sqlite.topics import statements as topic_statements
from oplogd.store.sqlite.topics.entries import deleted
from oplogd.store.topics import EntryKind, TopicEntry, TopicRecord


def expand(
    db: sqlite3.Connection, log: int, entry: TopicEntry, after: int, limit: int, present: Present
) -> list[TopicRecord]:
    """Do ``TopicLog.expand``."""
    marker = decode_marker(entry.data)
    is_publish = entry.event == EntryKind.PUBLISH
    sql = pointer_statements.EXPAND if is_publish else topic_statements.EXPAND
    given = {
        "log": log,
        "txn": int(marker.txn),
        "ms": entry.written_ms or entry.ms,
        "after": max(after, marker.after) if is_publish else after,
        "last": marker.last,
        "limit": limit,
        "now": present.ms,
    }
    row = db.execute(sql, given).fetchone()
    if row is None:
        raise deleted(log)
    records = []
    for line in row[0].split("\n") if row[0] else ():
        number, expires, data = line.split(" ", 2)
        records.append(TopicRecord(int(number), data, int(expires)))
    return records

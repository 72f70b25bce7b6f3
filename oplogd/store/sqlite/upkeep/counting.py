"""Counts the entries of topics behind their appends, in small steps beside other writes."""

import sqlite3

from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.topics import bound_statements as sql
from oplogd.store.sqlite.topics.statements import base

# Entries and bytes of one step: some ms.
STEP_ENTRIES = 2_000
STEP_OCTETS = 4 << 20


def count_some(db: sqlite3.Connection, log: int, counted: int, head: int) -> tuple[int, int]:
    """Count some entries of a topic, in the caller's transaction.

    Return their bytes, and the offset up to which all are counted now.
    """
    given = {"base": base(log), "after": counted, "upto": head, "limit": STEP_ENTRIES}
    octets, last = 0, head
    for number, (offset, size) in enumerate(db.execute(sql.NEW_SIZES, given), 1):
        octets += size
        if octets > STEP_OCTETS or number == STEP_ENTRIES:
            last = offset
            break
    db.execute(sql.COUNTED, (octets, last, log))
    return octets, last


def count_stored(db: sqlite3.Connection) -> bool:
    """Count the older stored messages of one pointer. Return whether there was one."""
    with transaction(db):
        found = db.execute(sql.STORED_TO_COUNT).fetchone()
        if found is None:
            return False
        log, pointer, _ = found
        (octets,) = db.execute(sql.OLD_STORED, found).fetchone()
        db.execute(sql.ADD_STORED, (octets, log))
        db.execute(sql.STORED_COUNTED, (log, pointer))
        return True

"""Deletion of the commit logs of idle groups, each function one call on a connection."""

import sqlite3
from collections.abc import Collection

from oplogd.clock.ages import Present
from oplogd.model.names import SYSTEM
from oplogd.model.transaction import GROUP_PREFIX
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.transactions import statements as transaction_statements
from oplogd.store.transactions import IDLE_MS

# Logs deleted in one transaction: a few ms.
STEP = 200


def find(db: sqlite3.Connection, now: Present) -> list[int]:
    """Return the commit logs of the groups that are idle."""
    given = age_statements.given(now) | {
        "namespace": SYSTEM,
        "first": GROUP_PREFIX,
        "end": GROUP_PREFIX[:-1] + chr(ord(GROUP_PREFIX[-1]) + 1),
        "idle": IDLE_MS,
    }
    return [log for (log,) in db.execute(transaction_statements.IDLE, given)]


def delete(db: sqlite3.Connection, logs: Collection[int], now: Present) -> int:
    """Delete those of the logs that are still idle. Return their number."""
    with transaction(db):
        idle = set(find(db, now)).intersection(logs)
        catalogue.end_old(db, idle)
    return len(idle)

"""The rows of leases, each function one or two statements in the caller's transaction."""

import sqlite3
from collections.abc import Iterable

from oplogd.model.lease import Fence
from oplogd.store.lease_rule import NEVER_HELD, LeaseRow, polled
from oplogd.store.leases import Lease, LeaseRequest, lease_conflict, no_lease
from oplogd.store.sqlite.file.parts import as_json

_FIND = "SELECT holder, term, ends, ttl, note FROM leases WHERE name = ?"
_SELECT = """
    SELECT name, holder, term, ends, ttl, note FROM leases WHERE name > ? ORDER BY name LIMIT ?
"""
_SET = "REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)"
_HELD = """
    SELECT name, term FROM leases
    WHERE name IN (SELECT value FROM json_each(?)) AND holder IS NOT NULL
"""


def settled(db: sqlite3.Connection, request: LeaseRequest, now: int) -> Lease | None:
    """Return the lease if a poll changes nothing now, else None."""
    row = _find(db, request.name)
    if row is None or polled(row, request, now) != row:
        return None
    return row.lease(request.name, now)


def poll(db: sqlite3.Connection, request: LeaseRequest, now: int) -> Lease:
    """Do ``Leases.poll``."""
    row = _find(db, request.name)
    wanted = polled(row or NEVER_HELD, request, now)
    if wanted != row:
        db.execute(_SET, (request.name, *wanted))
    return wanted.lease(request.name, now)


def release(db: sqlite3.Connection, name: str, holder: str, term: int) -> Lease:
    """Do ``Leases.release``."""
    lease = find(db, name, 0)
    if lease.term != term or lease.holder not in (holder, None):
        raise lease_conflict(lease)
    if lease.holder is not None:
        db.execute(_SET, (name, None, term, 0, 0, lease.note))
    return lease._replace(holder=None, left_ms=0)


def find(db: sqlite3.Connection, name: str, now: int) -> Lease:
    """Return a lease. Raises LeaseNotFoundError."""
    row = _find(db, name)
    if row is None:
        raise no_lease(name)
    return row.lease(name, now)


def select(db: sqlite3.Connection, after: str, limit: int, now: int) -> list[Lease]:
    """Do ``Leases.select``."""
    found = db.execute(_SELECT, (after, limit)).fetchall()
    return [LeaseRow(*row).lease(name, now) for name, *row in found]


def holding(db: sqlite3.Connection, fences: Iterable[Fence]) -> set[Fence]:
    """Return the fences that hold."""
    wanted = set(fences)
    names = as_json(list({fence.lease for fence in wanted}))
    return wanted.intersection(Fence(*row) for row in db.execute(_HELD, (names,)))


def _find(db: sqlite3.Connection, name: str) -> LeaseRow | None:
    row = db.execute(_FIND, (name,)).fetchone()
    return LeaseRow(*row) if row else None

"""The leases in the embedded store. Their clock is the agent's.

A function is one or two statements in the caller's transaction.
"""

import sqlite3
from collections.abc import Iterable

from oplogd.clock import Clock
from oplogd.model.lease import Fence
from oplogd.store.leases import Lease, LeaseRequest, LeaseRow, no_lease, polled, released
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.file.pool import ConnectionPool

_FIND = "SELECT holder, term, ends, ttl, note FROM leases WHERE name = ?"
_SELECT = """
    SELECT name, holder, term, ends, ttl, note FROM leases WHERE name > ? ORDER BY name LIMIT ?
"""
_SET = "REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)"
_HELD = """
    SELECT name, term FROM leases
    WHERE name IN (SELECT value FROM json_each(?)) AND holder IS NOT NULL
"""


class SqliteLeases:
    """See ``Leases``. A poll without a change takes a look-up and no write."""

    def __init__(self, writer: ConnectionPool, lookups: ConnectionPool, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        self._writer = writer
        self._lookups = lookups

    async def poll(self, request: LeaseRequest) -> Lease:
        def settled(db: sqlite3.Connection) -> Lease | None:
            row, now = _find(db, request.name), self._now_ms()
            if row is None or polled(row, request, now) != row:
                return None
            return row.lease(request.name, now)

        def change(db: sqlite3.Connection) -> Lease:
            with transaction(db):  # reads the clock after a wait for another process's lock
                return poll(db, request, self._now_ms())

        if (found := await self._lookups.run(settled)) is not None:
            return found
        return await self._writer.run(change)

    async def release(self, name: str, holder: str, term: int) -> Lease:
        def change(db: sqlite3.Connection) -> Lease:
            with transaction(db):
                row = _existing(db, name)
                changed = released(row, name, holder, term)
                return _set(db, name, row, changed).lease(name, 0)

        return await self._writer.run(change)

    async def find(self, name: str) -> Lease:
        return await self._lookups.run(lambda db: _existing(db, name).lease(name, self._now_ms()))

    async def select(self, after: str, limit: int) -> list[Lease]:
        def find(db: sqlite3.Connection) -> list[Lease]:
            found = db.execute(_SELECT, (after, limit)).fetchall()
            now = self._now_ms()
            return [LeaseRow(*row).lease(name, now) for name, *row in found]

        return await self._lookups.run(find)


def poll(db: sqlite3.Connection, request: LeaseRequest, now: int) -> Lease:
    row = _find(db, request.name)
    wanted = polled(row, request, now)
    return _set(db, request.name, row, wanted).lease(request.name, now)


def holding(db: sqlite3.Connection, fences: Iterable[Fence]) -> set[Fence]:
    """Return the fences that hold."""
    wanted = set(fences)
    names = as_json(list({fence.lease for fence in wanted}))
    return wanted.intersection(Fence(*row) for row in db.execute(_HELD, (names,)))


def _set(db: sqlite3.Connection, name: str, before: LeaseRow | None, row: LeaseRow) -> LeaseRow:
    if row != before:
        db.execute(_SET, (name, *row))
    return row


def _existing(db: sqlite3.Connection, name: str) -> LeaseRow:
    if (row := _find(db, name)) is None:
        raise no_lease(name)
    return row


def _find(db: sqlite3.Connection, name: str) -> LeaseRow | None:
    row = db.execute(_FIND, (name,)).fetchone()
    return LeaseRow(*row) if row else None

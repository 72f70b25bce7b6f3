"""The leases in the embedded store: see ``Leases``. Their clock is the agent's."""

import sqlite3
from collections.abc import Callable

from oplogd.clock import Clock
from oplogd.store.leases import Lease, LeaseRequest
from oplogd.store.sqlite.file.connection import ConnectionPool, transaction
from oplogd.store.sqlite.leases import rows as lease_rows


class SqliteLeases:
    """Uses the pools of its store. A poll that changes nothing takes a look-up and no write."""

    def __init__(self, writer: ConnectionPool, lookups: ConnectionPool, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        self._writer = writer
        self._lookups = lookups

    async def poll(self, request: LeaseRequest) -> Lease:
        found = await self._lookups.run(lambda db: lease_rows.settled(db, request, self._now_ms()))
        if found is not None:
            return found
        return await self._writer.run(lambda db: _poll(db, request, self._now_ms))

    async def release(self, name: str, holder: str, term: int) -> Lease:
        return await self._writer.run(lambda db: _release(db, name, holder, term))

    async def find(self, name: str) -> Lease:
        return await self._lookups.run(lambda db: lease_rows.find(db, name, self._now_ms()))

    async def select(self, after: str, limit: int) -> list[Lease]:
        return await self._lookups.run(
            lambda db: lease_rows.select(db, after, limit, self._now_ms())
        )


def _poll(db: sqlite3.Connection, request: LeaseRequest, now_ms: Callable[[], int]) -> Lease:
    with transaction(db):  # reads the clock after a wait for another process's lock
        return lease_rows.poll(db, request, now_ms())


def _release(db: sqlite3.Connection, name: str, holder: str, term: int) -> Lease:
    with transaction(db):
        return lease_rows.release(db, name, holder, term)

"""An outbox in PostgreSQL, through psycopg 3.

The statements lock rows in the order of their ids, so they do not deadlock with each other. They
wait a moment for locked rows. Then those of ``locked_rows`` pass over them.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any
from uuid import UUID

import psycopg
from psycopg import conninfo
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from oplog_relay.db import names
from oplog_relay.db.names import Names
from oplog_relay.db.postgres import PostgresUrl, sql
from oplog_relay.db.postgres.lane import Connection, Lane, fetch, sentence
from oplog_relay.db.postgres.locked_rows import LockedRows, purged
from oplog_relay.db.rows import from_seconds, make_row
from oplog_relay.model.bindings import Backlog, Purged
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.row import Row
from oplog_relay.model.settings import Table
from oplog_relay.model.stamp import stamp, stamps

# Longest wait of a statement for a locked row. Then such rows are passed over. Normally another
# relay holds the lock, and not for long.
LOCK_TIMEOUT = "200ms"
_PARAMETERS = {
    # A database with the encoding SQL_ASCII would return bytes.
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "fallback_application_name": "oplog-relay",
    "keepalives_count": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "tcp_user_timeout": "10000",
}
_TYPES = {
    "id": ("bigint", "integer", "smallint"),
    "create_time": ("timestamp with time zone", "timestamp without time zone", "date"),
    "leader_id": ("uuid",),
    "header_keys": ("text[]", "character varying[]"),
    "header_values": ("text[]", "character varying[]"),
}


class PostgresOutbox:
    """An outbox in PostgreSQL. Mark and purge run at the same time, each on its own connection."""

    def __init__(self, url: PostgresUrl, table: Table) -> None:
        """Connect to nothing yet. Raises ConfigError."""
        self._table = table
        self._names = Names.of(table)
        try:
            # libpq takes an empty parameter for a missing one.
            self._conninfo = conninfo.make_conninfo("", **{**_PARAMETERS, **url.parameters})
        except psycopg.Error as error:
            raise ConfigError(f"database.url: {sentence(error)}") from None
        self._mark, self._mark_others = self._sql(sql.MARK), self._sql(sql.MARK_OTHERS)
        self._purge = self._sql(sql.PURGE)
        self._locked = LockedRows(self._sql, time.monotonic)
        self._marking = self._lane(sql.SETTINGS_OF_MARK)
        self._purging = self._lane(sql.SETTINGS)
        self._looking = self._lane(sql.SETTINGS)

    async def check(self) -> None:
        """Check the table. Raises ConfigError, and OutboxError if the database is unreachable."""
        found = await self._look(sql.COLUMNS, {"table": self._names.table})
        columns = {row[0]: row[1:] for row in found}
        names.check_columns(self._table, columns, "postgres")
        for setting in names.COLUMNS:
            name: str = getattr(self._table, setting)
            kind, may_select, may_update, may_delete, is_unique = columns[name]
            if kind not in _TYPES.get(setting, (kind,)):
                raise ConfigError(
                    f"database.columns.{setting}: the column {name!r} has the type {kind};"
                    f" it must have {_TYPES[setting][0]}"
                )
            if not may_select or not may_delete or (setting == "leader_id" and not may_update):
                raise ConfigError(
                    f"database.url: this user lacks rights on {self._names.table}:"
                    f" GRANT SELECT, UPDATE, DELETE ON {self._names.table}"
                )
            # Of two rows with one id, the purge of the first deletes the second, too.
            if setting == "id" and not is_unique:
                raise ConfigError(
                    f"database.columns.id: the column {name!r} is not the first column of an index"
                    " without duplicates; make it the primary key"
                )
        if await self._look(sql.IS_READ_ONLY, {}) == [(True,)]:
            raise OutboxError(
                "PostgreSQL (database.url): this server or user can only read; the relay must write"
            )

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        first, last = stamps(leader_id)
        parameters: dict[str, Any] = {"first": first, "last": last, "limit": limit}
        parameters |= {"stamp": stamp(leader_id, number), "passed": [*passed]}
        statement = self._mark_others if passed else self._mark

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            if not self._locked.are_likely:
                with suppress(LockNotAvailable):
                    return await fetch(connection, statement, parameters)
            return await self._locked.mark(connection, parameters, passed)

        found = await self._marking.run(work)
        found.sort(key=lambda row: row[0])
        return [
            make_row(id_, from_seconds(seconds), topic, key, value, names_, values, number)
            for id_, seconds, topic, key, value, names_, values in found
        ]

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        if not rows:
            return Purged()
        ids = [row.id for row in rows]
        parameters = _these(leader_id, rows)

        async def work(connection: Connection) -> Purged:
            if self._locked.in_purge.isdisjoint(ids):
                with suppress(LockNotAvailable):
                    cursor = await connection.execute(self._purge, parameters, prepare=True)
                    if cursor.rowcount == len(ids):
                        return Purged()
                    return purged(await fetch(connection, self._sql(sql.LEFT), parameters))
            return await self._locked.purge(connection, parameters)

        return await self._purging.run(work)

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        if rows is not None:
            statement, parameters = sql.RESET_ROWS, _these(leader_id, rows)
        else:
            first, last = stamps(leader_id)
            statement, parameters = sql.RESET_ALL, {"first": first, "last": last}
            if key is not None:
                statement, parameters["key"] = sql.RESET_KEY, key

        async def work(connection: Connection) -> int:
            cursor = await connection.execute(self._sql(statement), parameters, prepare=True)
            return cursor.rowcount

        return await self._marking.run(work)

    async def backlog(self, at_most: int) -> Backlog:
        [(rows, age)] = await self._look(sql.BACKLOG, {"most": at_most})
        return Backlog(rows, max(0.0, age) if age is not None and isfinite(age) else 0.0)

    async def identity(self) -> str:
        async def work(connection: Connection) -> str:
            try:
                cursor = await connection.execute(sql.IDENTITY, {"table": self._names.table})
            except InsufficientPrivilege:
                return ""
            found = await cursor.fetchone()
            return f"postgresql {found[0]}" if found is not None else ""

        return await self._looking.run(work)

    async def dispose(self) -> None:
        for lane in (self._marking, self._purging, self._looking):
            await lane.close()

    def _lane(self, settings: dict[str, str]) -> Lane:
        return Lane(lambda: self._connect(settings))

    async def _connect(self, settings: dict[str, str]) -> Connection:
        connection: Connection = await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True
        )
        try:
            wanted = {**settings, "lock_timeout": LOCK_TIMEOUT}
            names_and_values = [list(wanted), list(wanted.values())]
            await connection.execute(sql.SET_KNOWN, names_and_values)
            if settings is not sql.SETTINGS_OF_MARK:
                await connection.execute(sql.SET_SYNCHRONOUS)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _look(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return await self._looking.run(lambda each: fetch(each, self._sql(statement), parameters))

    def _sql(self, statement: str) -> bytes:
        """Put the names into a statement. A percent sign begins a parameter."""
        quoted = {name: value.replace("%", "%%") for name, value in self._names._asdict().items()}
        return statement.format(**quoted).encode()


def _these(leader_id: UUID, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the parameters of ``MINE``."""
    marks = {row.mark for row in rows}
    return {
        "ids": _array(row.id for row in rows),
        "stamps": _array(stamp(leader_id, mark) for mark in marks),
    }


def _array(values: Iterable[object]) -> str:
    return "{" + ",".join(map(str, values)) + "}"

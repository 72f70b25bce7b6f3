"""An outbox in PostgreSQL, through psycopg 3.

The statements lock rows in the order of their ids, so they do not deadlock with each other. They
wait for locked rows: skipping one would send a later row of its key first.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any
from uuid import UUID

import psycopg
from psycopg import conninfo

from oplog_relay.bindings import Backlog
from oplog_relay.db import names
from oplog_relay.db.lane import Lane
from oplog_relay.db.names import Names
from oplog_relay.db.rows import from_seconds, make_row
from oplog_relay.db.url import PostgresUrl
from oplog_relay.errors import ConfigError, OutboxError
from oplog_relay.row import Row
from oplog_relay.settings import Table

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

# Session-wide: the server must give up before the relay does (``lane.DEADLINE``).
_SETTINGS = {
    "TimeZone": "UTC",
    "default_transaction_isolation": "read committed",
    # Scans follow the index on the ids even if the table was empty when they were planned.
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "8s",
    # A mark commits once its rows are sent. Those of a relay that is frozen or cut off would stay
    # locked: ``statement_timeout`` does not end a server that waits for its client.
    "tcp_user_timeout": "8s",
}
# A mark that a crash of the server undoes is repeated by the next one: it need not be on disk.
_SETTINGS_OF_MARK = {**_SETTINGS, "synchronous_commit": "off"}
# A purge must be: rows that come back would be sent after later rows of their keys.
_SET_SYNCHRONOUS = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
# Older servers lack some settings. One in the URL's "options" has come from the client already.
_SET_KNOWN = """
SELECT set_config(name, wanted.value, false)
FROM unnest(%s::text[], %s::text[]) AS wanted (name, value) JOIN pg_settings USING (name)
WHERE source <> 'client'
"""
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
_MARK = """
UPDATE {table} SET {leader_id} = %(leader)s
WHERE {id} = ANY (ARRAY(
    SELECT {id} FROM {table} WHERE {leader_id} IS DISTINCT FROM %(leader)s
    ORDER BY {id} LIMIT %(limit)s FOR NO KEY UPDATE
))
RETURNING {id}::bigint, extract(epoch FROM coalesce({create_time}, now()))::float8,
    {topic}::text, {key}::text, {value}::text, {header_keys}::text[],
    {header_values}::text[]
"""
_PURGE = "DELETE FROM {table} WHERE {id} = ANY (%(ids)s::bigint[])"
_RESET = """
UPDATE {{table}} SET {{leader_id}} = NULL
WHERE {{id}} = ANY (ARRAY(
    SELECT {{id}} FROM {{table}} WHERE {{leader_id}} = %(leader)s {}
    ORDER BY {{id}} FOR NO KEY UPDATE
))
"""
_RESET_ALL = _RESET.format("")
_RESET_IDS = _RESET.format("AND {id} = ANY (%(ids)s::bigint[])")
# A key that is NULL counts as empty: see ``rows``.
_RESET_KEY = _RESET.format("AND coalesce({key}::text, '') = %(key)s")
_BACKLOG = """
SELECT (SELECT count(*) FROM (SELECT {id} FROM {table} ORDER BY {id} LIMIT %(most)s) head),
    (SELECT (extract(epoch FROM clock_timestamp()) - extract(epoch FROM {create_time}))::float8
     FROM {table} ORDER BY {id} LIMIT 1)
"""
_COLUMNS = """
SELECT attname::text, format_type(atttypid, NULL),
    has_column_privilege(attrelid, attnum, 'SELECT'),
    has_column_privilege(attrelid, attnum, 'UPDATE'), has_table_privilege(attrelid, 'DELETE'),
    EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indkey[0] = attnum
        AND indisunique AND indpred IS NULL)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
"""
_TYPES = {
    "id": ("bigint", "integer", "smallint"),
    "create_time": ("timestamp with time zone", "timestamp without time zone", "date"),
    "leader_id": ("uuid",),
    "header_keys": ("text[]", "character varying[]"),
    "header_values": ("text[]", "character varying[]"),
}


class PostgresOutbox:
    """An outbox in PostgreSQL. Mark and purge run at the same time, each on its connection."""

    def __init__(self, url: PostgresUrl, table: Table) -> None:
        """Connect to nothing yet. Raises ConfigError."""
        self._table = table
        self._names = Names.of(table)
        try:
            # libpq takes an empty parameter for one that is not there.
            self._conninfo = conninfo.make_conninfo("", **{**_PARAMETERS, **url.parameters})
        except psycopg.Error as error:
            raise ConfigError(f"database.url: {_sentence(error)}") from None
        self._mark = self._sql(_MARK)
        self._purge = self._sql(_PURGE)
        self._marking = self._lane(_SETTINGS_OF_MARK)
        self._purging = self._lane(_SETTINGS)
        self._looking = self._lane(_SETTINGS)

    async def check(self) -> None:
        """Raise ConfigError if the table does not fit, OutboxError if the database is away."""
        columns = await self._looking.run(self._columns)
        if not columns:
            raise ConfigError(
                f"database.table: the database has no table {self._names.table};"
                " `oplog-relay schema postgres` prints one"
            )
        for setting in names.COLUMNS:
            name: str = getattr(self._table, setting)
            if name not in columns:
                raise ConfigError(
                    f"database.columns.{setting}: the table {self._names.table} has no column"
                    f" {name!r}; `oplog-relay schema postgres` prints a table that fits"
                )
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
        if await self._looking.run(self._is_read_only):
            raise OutboxError(
                "PostgreSQL (database.url): this server or user can only read; the relay must write"
            )

    async def mark(self, leader_id: UUID, limit: int) -> list[Row]:
        parameters = {"leader": leader_id, "limit": limit}

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            await cursor.execute(self._mark, parameters, prepare=True)
            return await cursor.fetchall()

        found = await self._marking.run(work)
        found.sort(key=lambda row: row[0])
        return [make_row(row[0], from_seconds(row[1]), *row[2:]) for row in found]

    async def purge(self, ids: Sequence[int]) -> int:
        if not ids:
            return 0
        return await self._change(self._purging, self._purge, {"ids": _array(ids)})

    async def reset(
        self, leader_id: UUID, *, ids: Sequence[int] | None = None, key: str | None = None
    ) -> int:
        parameters: dict[str, object] = {"leader": leader_id}
        statement = _RESET_ALL
        if ids is not None:
            if not ids:
                return 0
            parameters["ids"] = _array(ids)
            statement = _RESET_IDS
        elif key is not None:
            parameters["key"] = key
            statement = _RESET_KEY
        return await self._change(self._marking, self._sql(statement), parameters)

    async def backlog(self, at_most: int) -> Backlog:
        async def work(connection: Connection) -> tuple[Any, ...] | None:
            cursor = await connection.execute(self._sql(_BACKLOG), {"most": at_most})
            return await cursor.fetchone()

        found = await self._looking.run(work)
        assert found is not None
        age = found[1] or 0.0
        return Backlog(found[0], max(0.0, age) if isfinite(age) else 0.0)

    async def dispose(self) -> None:
        for lane in (self._marking, self._purging, self._looking):
            await lane.close()

    def _lane(self, settings: dict[str, str]) -> Lane:
        return Lane(lambda: self._connect(settings), _explain)

    async def _connect(self, settings: dict[str, str]) -> Connection:
        connection: Connection = await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True
        )
        try:
            names_and_values = [list(settings), list(settings.values())]
            await connection.execute(_SET_KNOWN, names_and_values)
            if settings is not _SETTINGS_OF_MARK:
                await connection.execute(_SET_SYNCHRONOUS)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _columns(self, connection: Connection) -> dict[str, tuple[Any, ...]]:
        cursor = await connection.execute(_COLUMNS, {"table": self._names.table})
        return {row[0]: row[1:] for row in await cursor.fetchall()}

    async def _is_read_only(self, connection: Connection) -> bool:
        cursor = await connection.execute("SELECT current_setting('transaction_read_only') = 'on'")
        return await cursor.fetchone() == (True,)

    async def _change(self, lane: Lane, statement: bytes, parameters: dict[str, object]) -> int:
        async def work(connection: Connection) -> int:
            cursor = await connection.execute(statement, parameters, prepare=True)
            return cursor.rowcount

        return await lane.run(work)

    def _sql(self, statement: str) -> bytes:
        """Put the names into a statement. A percent sign begins a parameter."""
        quoted = {name: value.replace("%", "%%") for name, value in self._names._asdict().items()}
        return statement.format(**quoted).encode()


def _array(ids: Sequence[int]) -> str:
    return "{" + ",".join(map(str, ids)) + "}"


def _explain(error: Exception) -> OutboxError:
    return OutboxError(f"PostgreSQL (database.url): {_sentence(error)}")


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

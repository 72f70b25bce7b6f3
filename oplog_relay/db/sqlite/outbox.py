"""An outbox in SQLite, through the standard library, in a thread of its own."""

import asyncio
import contextlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from oplog_relay.db import names
from oplog_relay.db.names import Names
from oplog_relay.db.rows import from_json, make_row, read_time
from oplog_relay.db.sqlite import SqliteUrl
from oplog_relay.model.bindings import Backlog, Purged
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.row import Row, is_text
from oplog_relay.model.settings import Table
from oplog_relay.model.stamp import stamp, stamps

_log = logging.getLogger("oplog_relay")
_T = TypeVar("_T")

# Seconds to wait for another connection's write. A call as a whole takes at most DEADLINE.
_BUSY = 5.0
DEADLINE = 10.0

# Columns with "o." before them: SQLite takes an unknown name in quotes alone for a string.
_FOREIGN = "FROM {table} AS o WHERE (o.{leader_id} IS NULL OR o.{leader_id} NOT BETWEEN ? AND ?)"
_ANY = f"SELECT 1 {_FOREIGN} LIMIT 1"
_LOWEST = f"""
SELECT o.{{id}}, o.{{create_time}}, CAST(o.{{topic}} AS TEXT), CAST(o.{{key}} AS TEXT),
    CAST(o.{{value}} AS TEXT), o.{{header_keys}}, o.{{header_values}}
{_FOREIGN} {{}} ORDER BY o.{{id}} LIMIT ?
"""
_HEAD = _LOWEST.replace("{}", "")
# A function: there may be more keys than parameters of a statement. It gets bytes: a key may be
# invalid text.
_OTHERS = _LOWEST.replace("{}", "AND NOT is_passed(CAST(coalesce(o.{key}, '') AS BLOB))")
_STAMP = "UPDATE {table} SET {leader_id} = ? WHERE {id} = ?"
_PURGE = "DELETE FROM {table} WHERE {leader_id} = ? AND {id} = ?"
_LEFT = "SELECT o.{leader_id} IS ? FROM {table} AS o WHERE o.{id} = ?"
_RESET = "UPDATE {table} SET {leader_id} = NULL WHERE {leader_id} BETWEEN ? AND ?"
_RESET_ROW = "UPDATE {table} SET {leader_id} = NULL WHERE {leader_id} = ? AND {id} = ?"
# A NULL key counts as empty: see ``rows``. Bytes, as in _OTHERS: the column may compare
# strings without their case.
_RESET_KEY = _RESET + " AND CAST(coalesce({key}, '') AS BLOB) = ?"
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)"
_OLDEST = "SELECT {create_time} FROM {table} ORDER BY {id} LIMIT 1"
_AUTOINCREMENT = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)


class SqliteOutbox:
    """An outbox in SQLite."""

    def __init__(self, url: SqliteUrl, table: Table) -> None:
        """Open nothing yet. Raises ConfigError."""
        self._url = url if url.busy is None else replace(url, busy=min(url.busy, _BUSY))
        self._path = url.path
        # Of the open file.
        self._number: tuple[int, int] | None = None
        self._table = table
        self._names = Names.of(table)
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "outbox")
        self._is_closed = False

    async def check(self) -> None:
        """Raise ConfigError if the table does not fit, OutboxError if the file cannot be read."""
        if not self._url.is_uri and not await asyncio.to_thread(self._path.is_file):
            raise ConfigError(f"database.url: there is no file {str(self._path)!r}")
        await self._run(self._check)

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        first, last = map(str, stamps(leader_id))
        statement = self._sql(_OTHERS if passed else _HEAD)

        def work(connection: sqlite3.Connection) -> list[Row]:
            # Looking first: an idle relay must not take the write lock 100 times per second.
            if connection.execute(self._sql(_ANY), (first, last)).fetchone() is None:
                return []
            if passed:
                keys = _stored(connection, passed)
                connection.create_function("is_passed", 1, keys.__contains__)
            with _writing(connection):
                found = connection.execute(statement, (first, last, limit)).fetchall()
                mine = str(stamp(leader_id, number))
                connection.executemany(self._sql(_STAMP), ((mine, row[0]) for row in found))
            return [_row(row, number) for row in found]

        return await self._run(work)

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        if not rows:
            return Purged()
        these = _these(leader_id, rows)

        def work(connection: sqlite3.Connection) -> Purged:
            with _writing(connection):
                deleted = connection.executemany(self._sql(_PURGE), these).rowcount
                if deleted == len(these):
                    return Purged()
                left = [each for row in these for each in connection.execute(self._sql(_LEFT), row)]
            remaining = sum(is_mine for (is_mine,) in left)
            return Purged(remaining=remaining, changed=len(left) - remaining)

        return await self._run(work)

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        first, last = map(str, stamps(leader_id))

        def work(connection: sqlite3.Connection) -> int:
            statement = _RESET
            parameters: Sequence[tuple[object, ...]] = [(first, last)]
            if rows is not None:
                statement, parameters = _RESET_ROW, _these(leader_id, rows)
            elif key is not None:
                statement, parameters = _RESET_KEY, [(first, last, *_stored(connection, [key]))]
            with _writing(connection):
                return connection.executemany(self._sql(statement), parameters).rowcount

        return await self._run(work)

    async def backlog(self, at_most: int) -> Backlog:
        def work(connection: sqlite3.Connection) -> Backlog:
            (rows,) = connection.execute(self._sql(_COUNT), (at_most,)).fetchone()
            oldest = connection.execute(self._sql(_OLDEST)).fetchone()
            created = read_time(oldest[0]) if oldest else ""
            age = 0.0 if isinstance(created, str) else time.time() - created.timestamp()
            return Backlog(rows, max(0.0, age))

        return await self._run(work)

    async def identity(self) -> str:
        def work(connection: sqlite3.Connection) -> str:
            file = identity_of(self._path, self._number) if self._number else ""
            return f"sqlite {file} {self._table.name}" if file else ""

        return await self._run(work)

    async def dispose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._connection is not None:
            self._connection.interrupt()
        closed = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        await asyncio.wait({asyncio.wrap_future(closed)}, timeout=_BUSY)

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work`` in the thread. Once begun, it goes on there."""
        if self._is_closed:
            raise OutboxError("the outbox is closed")
        call = asyncio.wrap_future(self._thread.submit(self._call, work))
        try:
            done, _ = await asyncio.wait({call}, timeout=DEADLINE)
            if not done:
                raise OutboxError(f"SQLite (database.url): no answer within {DEADLINE:.0f} s")
            return call.result()
        finally:
            call.cancel()

    def _call(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            self._close_replaced()
            if self._connection is None:
                self._connection = self._open()
            return work(self._connection)
        except sqlite3.Error as error:
            self._close()
            raise OutboxError(f"SQLite (database.url): {error}") from None
        except UnicodeError:  # its message quotes the text
            raise OutboxError("SQLite (database.url): a text is not valid UTF-8") from None

    def _close_replaced(self) -> None:
        """Close the file if the path names another one: SQLite would not notice."""
        number = number_of(self._path) if self._number else None
        if self._connection is not None and number not in (None, self._number):
            _log.warning("the file %s has been replaced: the new one is opened", self._path)
            self._close()

    def _open(self) -> sqlite3.Connection:
        """Open the file with the path now."""
        while True:
            self._number = number_of(self._path)
            connection = self._url.connect(_BUSY, autocommit=True)
            if number_of(self._path) == self._number:
                return connection
            connection.close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _check(self, connection: sqlite3.Connection) -> None:
        schema, name = names.split(self._table)
        columns = {
            row[0].lower(): bool(row[1])
            for row in connection.execute(
                "SELECT name, pk FROM pragma_table_info(?, ?)", (name, schema or "main")
            )
        }
        names.check_columns(self._table, columns, "sqlite", str.lower)
        # Without it SQLite gives the id of a purged row to a new one: the header would repeat.
        prefix = f"{names.quote(schema)}." if schema else ""
        (sql,) = connection.execute(
            f"SELECT sql FROM {prefix}sqlite_master WHERE lower(name) = lower(?)", (name,)
        ).fetchone()
        if not columns[self._table.id.lower()] or not _AUTOINCREMENT.search(sql):
            raise ConfigError(
                f"database.columns.id: the column {self._table.id!r} must be INTEGER PRIMARY KEY"
                " AUTOINCREMENT: otherwise SQLite uses ids again, and a consumer may take a new"
                " message for a repeated one; `oplog-relay schema sqlite` prints a table that fits"
            )

    def _sql(self, statement: str) -> str:
        return statement.format(**self._names._asdict())


def number_of(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file a path names now; None: there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def identity_of(path: Path, number: tuple[int, int]) -> str:
    """Return the identity of a file on all volumes; empty: the path names none.

    Containers may see different devices for one volume. So the number of the file system counts.
    """
    device, inode = number
    try:
        system = os.statvfs(path).f_fsid
    except OSError:
        return ""
    return f"{system:x}:{inode}" if system else f"device {device}:{inode}"


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _these(leader_id: UUID, rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Return stamp and id of each row."""
    return [(str(stamp(leader_id, row.mark)), row.id) for row in rows]


def _row(row: tuple[object, ...], mark: int) -> Row:
    id_, create_time, topic, key, value, header_keys, header_values = row
    assert isinstance(id_, int)
    topic, key, value = (each if isinstance(each, str) else None for each in (topic, key, value))
    names_ = from_json(header_keys, "header_keys") if header_keys is not None else None
    values = from_json(header_values, "header_values") if header_values is not None else None
    made = make_row(id_, read_time(create_time), topic, key, value, names_, values, mark)
    strings = {
        "the topic": made.topic,
        "the key": made.key,
        "the value": made.value or "",
        "a header's key or value": "".join(sum(made.headers, ())),
    }
    if is_text("".join(strings.values())):
        return made
    faults = [f"{name} is not valid UTF-8" for name, text in strings.items() if not is_text(text)]
    return made._replace(value=None, headers=(), fault="; ".join(faults))


def _stored(connection: sqlite3.Connection, keys: Iterable[str]) -> set[bytes]:
    """Return keys as the bytes the database has for them."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    errors = "surrogateescape" if encoding == "UTF-8" else "surrogatepass"
    return {key.encode(encoding, errors) for key in keys}

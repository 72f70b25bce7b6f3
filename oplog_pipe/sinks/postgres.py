"""A sink that keeps a table in PostgreSQL equal to the source, through psycopg 3.

A row has the columns id, version, source, timestamp, and data or the columns of the settings. All
tables whose names fit the template, and that have the first four columns, belong to the sink.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import psycopg.conninfo

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.collapse import Numbered, collapse
from oplog_pipe.sinks.cut import cut_after
from oplog_pipe.sinks.options import PostgresOptions
from oplog_pipe.sinks.postgres_rows import Rows, table_name
from oplog_pipe.sinks.template import Template

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

# Rows that the end of a copy looks at in one transaction.
_PIECE = 10_000
_PARAMETERS = {
    "client_encoding": "UTF8",  # a database with the encoding SQL_ASCII would return bytes
    "connect_timeout": "5",
    "fallback_application_name": "oplog-pipe",
    "keepalives_count": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "tcp_user_timeout": "10000",
}
# Classes and codes of SQLSTATE that pass by themselves: connection, conflict with another
# transaction, resources, locks and time-outs, operator, system; and a server that can only read,
# as a standby does until it takes over.
_PASSING = ("08", "40", "53", "55", "57", "58", "25006")
# Whatever the message: wrong user, missing database, schema, table, column or right.
_OF_TARGET = ("28", "3D", "3F", "42")
_TABLES = r"""
SELECT namespaces.nspname::text, tables.relname::text
FROM pg_class tables JOIN pg_namespace namespaces ON namespaces.oid = tables.relnamespace
WHERE tables.relkind IN ('r', 'p') AND NOT tables.relispartition
    AND namespaces.nspname NOT LIKE 'pg\_%%'
    AND (%(any_schema)s OR pg_table_is_visible(tables.oid))
    AND (SELECT count(*) FROM pg_attribute columns
        WHERE columns.attrelid = tables.oid AND NOT columns.attisdropped
            AND columns.attname IN ('id', 'version', 'source', 'timestamp')) = 4
ORDER BY 1, 2
"""
_PAGE_END = """
SELECT max(id) FROM (
    SELECT id FROM {table} WHERE %(start)s::text IS NULL OR id > %(start)s
    ORDER BY id LIMIT %(limit)s
) page
"""
_DELETE_OLD = """
DELETE FROM {table} WHERE (%(start)s::text IS NULL OR id > %(start)s) AND id <= %(end)s
    AND source = %(source)s AND version < %(generation)s
"""


class PostgresSink:
    """Writes a batch in one transaction: per table, one statement for rows and one for deletes.

    A deleted object leaves nothing behind: until its delete comes again, an older message that
    comes again brings it back.
    """

    def __init__(self, options: PostgresOptions, namespace: str = ".*") -> None:
        """``namespace``: regular expression of the namespaces that the sink gets.

        The end of a copy removes rows from their tables only.
        """
        self._options = options
        self._namespace = re.compile(namespace)
        schema, dot, name = options.table.rpartition(".")
        self._schema = Template(schema) if dot else None
        self._name = Template(name)
        self._id = Template(options.id)
        self._rows = Rows(options.columns)
        self._connection: Connection | None = None
        self._known: set[str] = set()

    def open(self) -> None:
        self._rows.check()
        self._run(lambda connection: connection.execute("SELECT 1"))

    def write(self, messages: Sequence[Message]) -> None:
        try:
            self._write(messages)
        except SinkError as error:
            if error.transient or isinstance(error, TargetError):
                raise
            if error.index is not None or len(messages) == 1:
                error.index = 0 if len(messages) == 1 else error.index
                raise
            raise self._blame(messages, error) from error

    def begin_copy(self, generation: int, source: str) -> None:
        """Do nothing: the versions of the copy's messages are above the generation."""

    def end_copy(self, generation: int, source: str) -> None:
        for table in self._run(self._tables):
            self._delete_old(table, {"source": source, "generation": generation, "limit": _PIECE})

    def newest_version(self) -> int | None:
        def look(connection: Connection) -> int | None:
            # An index on the column makes this fast. Without one it may take long, once a start.
            connection.execute("SET LOCAL statement_timeout = 0")
            found = [
                connection.execute(f"SELECT max(version) FROM {table}".encode()).fetchone()
                for table in self._tables(connection)
            ]
            return max((row[0] for row in found if row and row[0] is not None), default=None)

        return self._run(look, statements=None)

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                connection.close()

    def _write(self, messages: Sequence[Message], *, keep: bool = True) -> None:
        """Write messages in one transaction. ``keep`` False: roll it back."""
        tables = collapse(messages, self._table, self._id.of)
        for table, objects in tables.items():
            self._check_name(table, objects)
        statements = [
            each
            for table, objects in tables.items()
            for each in self._rows.statements(table, objects)
        ]

        def work(connection: Connection) -> None:
            for table in tables:
                self._create(connection, table)
            for statement, values in statements:
                connection.execute(statement, values, prepare=True)

        self._run(work, keep=keep, statements=2 * len(tables) + len(statements))
        if keep:
            self._known.update(tables)

    def _blame(self, messages: Sequence[Message], found: SinkError) -> SinkError:
        """Return the error with the index of the first message that is refused by itself."""
        start, end = 0, len(messages)
        try:
            while end - start > 1:
                middle = (start + end) // 2
                if self._refusal(messages[start:middle]) is None:
                    start = middle
                else:
                    end = middle
            refusal = self._refusal(messages[start:end])
        except SinkError as error:
            return error
        # None: it fails only together with others.
        return SinkError(str(refusal), index=start) if refusal else found

    def _refusal(self, messages: Sequence[Message]) -> SinkError | None:
        try:
            self._write(messages, keep=False)
        except SinkError as error:
            if error.transient:
                raise
            return error
        return None

    def _table(self, message: Message) -> str:
        name = self._name.of(message)
        return table_name(None if self._schema is None else self._schema.of(message), name)

    def _check_name(self, table: str, objects: dict[str, Numbered]) -> None:
        for index, message in objects.values():
            for name in (self._schema, self._name):
                if name is not None and len(name.of(message).encode(errors="replace")) > 63:
                    raise SinkError(
                        f"table: PostgreSQL would cut {name.of(message)!r} at 63 bytes; set `table`"
                        " to a short name",
                        index=index,
                    )
            break

    def _create(self, connection: Connection, table: str) -> None:
        if self._options.create and table not in self._known:
            row = connection.execute("SELECT to_regclass(%s)", [table]).fetchone()
            if row == (None,):
                connection.execute(self._rows.create(table))

    def _tables(self, connection: Connection) -> list[str]:
        any_schema = self._schema is not None
        found = connection.execute(_TABLES, {"any_schema": any_schema}).fetchall()
        return [
            table_name(schema, name)
            for schema, name in found
            if self._name.fits(name, self._namespace)
            and (self._schema is None or self._schema.fits(schema, self._namespace))
        ]

    def _delete_old(self, table: str, values: dict[str, Any]) -> None:
        start: str | None = None
        while True:

            def piece(connection: Connection, start: str | None = start) -> str | None:
                place = {**values, "start": start}
                found = connection.execute(_query(_PAGE_END, table), place).fetchone()
                end: str | None = found[0] if found else None
                if end is not None:
                    connection.execute(_query(_DELETE_OLD, table), {**place, "end": end})
                return end

            start = self._run(piece, statements=2)
            if start is None:
                return

    def _run(
        self,
        work: Callable[[Connection], Result],
        *,
        keep: bool = True,
        statements: int | None = 1,
    ) -> Result:
        """Run work in one transaction, and translate its errors.

        ``keep`` False: roll it back. ``statements``: of the work, which bounds its time; None: no
        bound.
        """
        # Begin and commit are statements, too.
        bound = None if statements is None else self._options.timeout * (statements + 2)
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            with (
                cut_after(self._connection, bound),
                self._connection.transaction(force_rollback=not keep),
            ):
                return work(self._connection)
        except (psycopg.Error, UnicodeError) as error:
            self._known.clear()
            failure = _failure(error, creates=self._options.create)
            if failure.transient:
                self.close()
            raise failure from error

    def _connect(self) -> Connection:
        milliseconds = round(self._options.timeout * 1000)
        connection: Connection = psycopg.connect(_conninfo(self._options.url), autocommit=True)
        try:
            with cut_after(connection, self._options.timeout):
                connection.execute(
                    "SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)]
                )
        except BaseException:
            connection.close()
            raise
        return connection


def _conninfo(url: str) -> str:
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        # Of a password with an at sign, the rest would be the host, and in messages.
        if "@" in str(parts.get("host", "")):
            raise ValueError
        merged: dict[str, Any] = {**_PARAMETERS, **parts}
        return psycopg.conninfo.make_conninfo("", **merged)
    except (psycopg.Error, ValueError):
        raise SinkError(
            "url: not a URL such as postgresql://user:password@host/database; percent-encode"
            " special characters of the password"
        ) from None


def _failure(error: psycopg.Error | UnicodeError, *, creates: bool) -> SinkError:
    code = getattr(error, "sqlstate", None)
    lost = code is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    # Somebody has dropped a table, or another process creates it at the same time.
    again = creates and (
        isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.DuplicateTable)
        or (
            isinstance(error, psycopg.errors.UniqueViolation)
            and error.diag.schema_name == "pg_catalog"
        )
    )
    passing = code is not None and code.startswith(_PASSING)
    text = str(error)
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        # Without the statement; the detail may quote a whole row.
        text = f"{error.diag.message_primary} {(error.diag.message_detail or '')[:200]}"
    text = f"PostgreSQL: {' '.join(text.split()) or type(error).__name__}"
    transient = lost or again or passing
    if not transient and code is not None and code.startswith(_OF_TARGET):
        return TargetError(text)
    return SinkError(text, transient=transient)


def _query(statement: str, table: str) -> bytes:
    # A percent sign begins a parameter.
    return statement.format(table=table.replace("%", "%%")).encode()

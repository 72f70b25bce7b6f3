"""A sink that keeps tables in PostgreSQL equal to the source.

A row has the columns id, version, source, timestamp, oplog_owner, and data or the columns of the
settings. The sink changes and deletes rows of its owner only.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from psycopg.errors import InsufficientPrivilege

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.collapse import Numbered, collapse
from oplog_pipe.sinks.options import PostgresOptions
from oplog_pipe.sinks.ownership import Owner
from oplog_pipe.sinks.postgres.rows import OWNER, Rows, table_name
from oplog_pipe.sinks.postgres.session import Connection, Session
from oplog_pipe.sinks.template import Template

# Rows that the end of a copy looks at in one transaction.
_PIECE = 10_000
_TABLES = rf"""
SELECT namespaces.nspname::text, tables.relname::text
FROM pg_class tables JOIN pg_namespace namespaces ON namespaces.oid = tables.relnamespace
WHERE tables.relkind IN ('r', 'p') AND NOT tables.relispartition
    AND namespaces.nspname NOT LIKE 'pg\_%%'
    AND (%(any_schema)s OR pg_table_is_visible(tables.oid))
    AND has_table_privilege(tables.oid, 'SELECT')
    AND has_table_privilege(tables.oid, 'DELETE')
    AND (SELECT count(*) FROM pg_attribute columns
        WHERE columns.attrelid = tables.oid AND NOT columns.attisdropped
            AND columns.attname IN ('id', 'version', 'source', 'timestamp')) = 4
    AND %(owned)s = EXISTS (SELECT FROM pg_attribute columns
        WHERE columns.attrelid = tables.oid AND NOT columns.attisdropped
            AND columns.attname = '{OWNER}')
ORDER BY 1, 2
"""
_FOUND = f"""
SELECT found.oid, EXISTS (SELECT FROM pg_attribute columns
    WHERE columns.attrelid = found.oid AND NOT columns.attisdropped AND columns.attname = '{OWNER}')
FROM to_regclass(%s) AS found(oid)
"""
_PAGE_END = """
SELECT max(id) FROM (
    SELECT id FROM {table} WHERE %(start)s::text IS NULL OR id > %(start)s
    ORDER BY id LIMIT %(limit)s
) page
"""
_DELETE_OLD = f"""
DELETE FROM {{table}} WHERE (%(start)s::text IS NULL OR id > %(start)s) AND id <= %(end)s
    AND source = %(source)s AND version < %(generation)s AND {OWNER} = %(owner)s
"""
_NEWEST = f"SELECT max(version) FROM {{table}} WHERE {OWNER} = %(owner)s"
_ADOPT = f"UPDATE {{table}} SET {OWNER} = %(owner)s WHERE {OWNER} = %(former)s"


class PostgresSink:
    """Writes a batch in one transaction: per table, one statement for rows and one for deletes.

    A deleted object leaves nothing behind: until its delete comes again, an older message that
    comes again brings it back.
    """

    def __init__(self, options: PostgresOptions, namespace: str = ".*") -> None:
        """``namespace``: regular expression of the namespaces that the sink gets."""
        self._creates = options.create
        self._namespace = re.compile(namespace)
        schema, dot, name = options.table.rpartition(".")
        self._schema = Template(schema) if dot else None
        self._name = Template(name)
        self._id = Template(options.id)
        self._rows = Rows(options.columns)
        self._session = Session(options)
        self._owner: Owner | None = None
        # Tables that exist, with the column of the owner.
        self._ready: set[str] = set()
        # Tables whose newest version is not above that of the folder.
        self._judged: set[str] = set()

    def own(self, owner: Owner) -> None:
        self._owner = owner

    def open(self) -> None:
        self._rows.check()
        self._session.run(lambda connection: connection.execute("SELECT 1"))

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
        given = {"source": source, "generation": generation, "limit": _PIECE, "owner": self._me}
        for table in self._session.run(self._tables):
            self._delete_old(table, given)

    def adopt(self, former: str) -> int:
        """Change all rows of the former owner in one transaction."""

        def work(connection: Connection) -> int:
            tables = self._tables(connection)
            for table in tables:
                self._judge(connection, table, former)
            given = {"owner": self._me, "former": former}
            return sum(connection.execute(_query(_ADOPT, each), given).rowcount for each in tables)

        return self._session.run(work, statements=None)

    def missing(self) -> list[str]:
        """Return the statements that add the column of the owner to tables without it."""
        if self._creates:
            return []
        tables = self._session.run(lambda connection: self._tables(connection, owned=False))
        return [self._rows.add_owner(table) for table in tables]

    def close(self) -> None:
        self._session.close()

    @property
    def _me(self) -> str:
        assert self._owner is not None
        return str(self._owner)

    def _write(self, messages: Sequence[Message], *, keep: bool = True) -> None:
        """Write messages in one transaction. ``keep`` False: roll it back."""
        owner = self._owner
        assert owner is not None
        tables = collapse(messages, self._table, self._id.of)
        for table, objects in tables.items():
            self._check_name(table, objects)
        statements = [
            (table, each)
            for table, objects in tables.items()
            for each in self._rows.statements(table, objects, self._me)
        ]
        if new := tables.keys() - self._judged:
            self._session.run(partial(self._judge_new, new), statements=None)

        def work(connection: Connection) -> None:
            for table in tables:
                self._prepare(connection, table)
            for table, ((statement, values), ids) in statements:
                done = connection.execute(statement, values, prepare=True).rowcount
                if done < len(ids):
                    self._find_others(connection, table, ids, tables[table], owner)

        try:
            self._session.run(work, keep=keep, statements=2 * len(tables) + 2 * len(statements))
        except SinkError:
            self._ready.clear()
            raise
        if keep:
            self._ready.update(tables)

    def _find_others(
        self,
        connection: Connection,
        table: str,
        ids: list[str],
        objects: dict[str, Numbered],
        owner: Owner,
    ) -> None:
        """Raise SinkError if rows were left alone because they belong to another owner.

        A row of a newer version is left alone, too: the message has come again.
        """
        statement, values = self._rows.others(table, ids, self._me, owner.newest())
        found = connection.execute(statement, values).fetchall()
        others = [row for row in found if not owner.may_write(row[1])]
        if others:
            id, other, _ = min(others, key=lambda row: objects[row[0]][0])
            raise owner.refusal(f"table {table}: row {id!r}", other, objects[id][0])
        if found:
            owner.check(f"table {table}", max(row[2] for row in found))

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

    def _prepare(self, connection: Connection, table: str) -> None:
        """Create the table, or give it the column of the owner, if that is missing."""
        if table in self._ready:
            return
        oid, is_owned = connection.execute(_FOUND, [table]).fetchone() or (None, False)
        if oid is None:
            if self._creates:
                connection.execute(self._rows.create(table))
        elif not is_owned:
            statement = self._rows.add_owner(table)
            try:
                if not self._creates:
                    raise InsufficientPrivilege
                connection.execute(statement.encode())
            except InsufficientPrivilege:
                raise TargetError(
                    f"table {table} has no column {OWNER}; run as its owner: {statement}"
                ) from None

    def _judge_new(self, tables: Iterable[str], connection: Connection) -> None:
        """Judge tables before the first write to them. Raises ConfigError."""
        for table in tables:
            _, is_owned = connection.execute(_FOUND, [table]).fetchone() or (None, False)
            if is_owned:
                self._judge(connection, table, self._me)
            self._judged.add(table)

    def _judge(self, connection: Connection, table: str, owner: str) -> None:
        # An index on the column makes this fast. Without one it may take long, once a start.
        row = connection.execute(_query(_NEWEST, table), {"owner": owner}).fetchone()
        assert self._owner is not None
        self._owner.check(f"table {table}", row[0] if row else None)

    def _tables(self, connection: Connection, *, owned: bool = True) -> list[str]:
        """Return the tables that fit the template. ``owned``: with the column of the owner."""
        given = {"any_schema": self._schema is not None, "owned": owned}
        return [
            table_name(schema, name)
            for schema, name in connection.execute(_TABLES, given).fetchall()
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

            start = self._session.run(piece, statements=2)
            if start is None:
                return


def _query(statement: str, table: str) -> bytes:
    # A percent sign begins a parameter.
    return statement.format(table=table.replace("%", "%%")).encode()

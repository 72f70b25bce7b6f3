"""The tables a sink writes to, and the end of a copy in one of them."""

import re
from collections.abc import Callable, Mapping

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.parts.template import Template
from oplog_pipe.sinks.postgres.rows import query, table_name
from oplog_pipe.sinks.postgres.tables import OWNER, Connection, read_table

# Rows the end of a copy looks at in one transaction.
_PIECE = 10_000
# Of the tables with the column of the owner: also partitions, and writable views (28: insert,
# update and delete), for the sink writes to them. Without the right to delete the copy fails.
_TABLES = rf"""
SELECT namespaces.nspname::text, tables.relname::text
FROM pg_class tables JOIN pg_namespace namespaces ON namespaces.oid = tables.relnamespace
WHERE (tables.relkind IN ('r', 'p') AND (%(owned)s::boolean IS TRUE OR NOT tables.relispartition)
        OR %(owned)s::boolean IS TRUE AND tables.relkind = 'v'
            AND pg_relation_is_updatable(tables.oid, false) & 28 = 28)
    AND namespaces.nspname NOT LIKE 'pg\_%%'
    AND (%(any_schema)s OR pg_table_is_visible(tables.oid))
    AND has_table_privilege(tables.oid, 'SELECT')
    AND has_table_privilege(tables.oid, 'INSERT, DELETE')
    AND (SELECT count(*) FROM pg_attribute columns
        WHERE columns.attrelid = tables.oid AND NOT columns.attisdropped
            AND columns.attname IN ('id', 'version', 'source', 'timestamp')) = 4
    AND (%(owned)s::boolean IS NULL OR %(owned)s = EXISTS (SELECT FROM pg_attribute columns
        WHERE columns.attrelid = tables.oid AND NOT columns.attisdropped
            AND columns.attname = '{OWNER}'))
ORDER BY 1, 2
"""
_SCHEMA = """
SELECT coalesce((
    SELECT nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = to_regclass(%b)
), current_schema()::text, 'public')
"""
_PAGE_END = """
SELECT id::text FROM (
    SELECT id FROM {table}
    WHERE id IS NOT NULL AND (%(start)s::text IS NULL OR id > %(start)s::text{cast})
    ORDER BY id LIMIT %(limit)s
) page
ORDER BY id DESC LIMIT 1
"""
_DELETE_OLD = f"""
DELETE FROM {{table}}
WHERE (%(start)s::text IS NULL OR id > %(start)s::text{{cast}}) AND id <= %(end)s::text{{cast}}
    AND source = %(source)s AND version < %(generation)s AND {OWNER} = %(owner)s
"""


class Places:
    """The tables of a template, ``table`` or ``schema.table``.

    ``namespace``: regular expression of the namespaces the sink gets.
    """

    def __init__(self, table: str, namespace: str) -> None:
        self._namespace = re.compile(namespace)
        schema, dot, name = table.rpartition(".")
        self._schema = Template(schema) if dot else None
        self._name = Template(name)
        self._holds_id = "{id}" in table
        self.fixed = None if "{" in table else table_name(schema if dot else None, name)
        """The only table, as SQL; None: there may be several."""
        self._fixed_schema = schema if dot and "{" not in schema else None

    def schema(self, connection: Connection) -> str:
        """Return the schema of the tables; of several ones that in which new tables come.

        A table may be named without a schema, and be in another one for another user.
        """
        if self._fixed_schema is not None:
            return self._fixed_schema
        row = connection.execute(_SCHEMA, [self.fixed]).fetchone()
        assert row is not None
        return str(row[0])

    def of(self, message: Message) -> str:
        """Return the table of a message, as SQL."""
        schema = None if self._schema is None else self._schema.of(message)
        return table_name(schema, self._name.of(message))

    def remembering(self) -> Callable[[Message], str]:
        """Return ``of``, which remembers the tables of one batch by their namespaces."""
        known: dict[str, str] = {}

        def table(message: Message) -> str:
            found = known.get(message.namespace)
            if found is None:
                found = known[message.namespace] = self.of(message)
            return found

        return self.of if self._holds_id else table

    def check(self, index: int, message: Message) -> None:
        """Raise SinkError with the index if PostgreSQL would cut the name of a message's table."""
        for name in (self._schema, self._name):
            if name is not None and len(name.of(message).encode(errors="replace")) > 63:
                raise SinkError(
                    f"table: PostgreSQL would cut {name.of(message)!r} at 63 bytes; set `table`"
                    " to a short name",
                    index=index,
                )

    def tables(self, connection: Connection, *, owned: bool | None = True) -> list[str]:
        """Return the existing tables of the template, as SQL.

        ``owned``: with the column of the owner, or without it; None: both.
        """
        if self.fixed:
            found = read_table(connection, self.fixed)
            fits = found is not None and owned in (None, found.is_owned)
            return [self.fixed] if fits else []
        given = {"any_schema": self._schema is not None, "owned": owned}
        return [
            table_name(schema, name)
            for schema, name in connection.execute(_TABLES, given).fetchall()
            if self._name.fits(name, self._namespace)
            and (self._schema is None or self._schema.fits(schema, self._namespace))
        ]


def delete_old(
    connection: Connection, *, table: str, start: str | None, given: Mapping[str, object]
) -> str | None:
    """Delete old rows among the next ones behind an id, at the end of a copy.

    Return the last id of these rows; None: there was none. ``start``: None: the beginning.
    ``given``: source, generation and owner. Raises SinkError if the user may not delete rows.
    """
    found = read_table(connection, table)
    if found is None:
        return None
    if refusal := found.refusal():
        raise TargetError(refusal)
    cast = found.id_cast
    place = {**given, "start": start, "limit": _PIECE}
    row = connection.execute(query(_PAGE_END, table, cast), place).fetchone()
    end: str | None = row[0] if row else None
    if end is not None:
        connection.execute(query(_DELETE_OLD, table, cast), {**place, "end": end})
    return end

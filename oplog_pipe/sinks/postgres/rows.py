"""The rows and the SQL statements of the sink for PostgreSQL. No I/O."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.parts.lines import not_json
from oplog_pipe.sinks.parts.template import Numbered
from oplog_pipe.sinks.postgres import arrays
from oplog_pipe.sinks.postgres.tables import OWN, OWNER, Connection

COPY_FROM = 5000
"""From this number of rows on, COPY into a temporary table costs less than arrays."""

_CREATE = """
CREATE TABLE {table} (
    id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    source text NOT NULL,
    "timestamp" timestamp with time zone NOT NULL,
    oplog_owner text{columns}
)
"""
_TEMPORARY = """
CREATE TEMPORARY TABLE {rows} (id text, version bigint, source text, at timestamptz, value text)
ON COMMIT DROP
"""
_ARRAYS = """
unnest(%b::text[], %b::bigint[], %b::text[], %b::timestamptz[], %b::text[])
    AS new (id, version, source, at, value)
"""
# The value of a row is JSON.
_UPSERT = """
INSERT INTO {table} AS old (id, version, source, "timestamp", oplog_owner{columns})
SELECT {distinct}new.id{cast}, new.version, new.source, new.at, %b::text{values}
FROM {rows}{filled}{order}
ON CONFLICT (id) DO UPDATE SET version = excluded.version, source = excluded.source,
    "timestamp" = excluded."timestamp", oplog_owner = excluded.oplog_owner{changes}
WHERE old.version <= excluded.version
    AND (old.oplog_owner IS NULL OR old.oplog_owner = excluded.oplog_owner)
"""
_DELETE = """
DELETE FROM {table} old USING unnest(%b::text[], %b::bigint[]) AS gone (id, version)
WHERE old.id = gone.id{cast} AND old.version <= gone.version
    AND (old.oplog_owner IS NULL OR old.oplog_owner = %b::text)
"""
_OTHERS = """
SELECT given.id, old.oplog_owner, old.version
FROM unnest(%b::text[]) AS given (id) JOIN {table} old ON old.id = given.id{cast}
WHERE old.oplog_owner <> %b::text OR old.version > %b::bigint
"""
# Two strings may be one id: a delete in the same batch may be the reason why a row is not there.
_UNWRITTEN = """
SELECT given.id
FROM unnest(%b::text[], %b::bigint[]) AS given (id, version)
LEFT JOIN {table} old ON old.id = given.id{cast}
WHERE (old.id IS NULL OR old.version < given.version OR old.oplog_owner <> %b::text)
AND NOT EXISTS (
    SELECT FROM unnest(%b::text[], %b::bigint[]) AS gone (id, version)
    WHERE gone.id{cast} = given.id{cast} AND gone.version >= given.version
)
"""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Upload(NamedTuple):
    """``create``: the temporary table. ``copy``: the statement for ``data``."""

    create: bytes
    copy: bytes
    data: bytes


class Statement(NamedTuple):
    """For ``ids`` of a table. ``upload``: what COPY puts into a temporary table."""

    table: str
    sql: bytes
    values: tuple[Any, ...]
    ids: list[str]
    upload: Upload | None = None

    def rows(self, connection: Connection) -> list[tuple[Any, ...]]:
        return connection.execute(self.sql, self.values).fetchall()


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def table_name(schema: str | None, name: str) -> str:
    """Return a table's name as SQL."""
    return quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"


class RowStatements:
    """Makes statements. ``columns``: column -> path in ``data``; empty: one column ``data``."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = list(columns) or ["data"]
        """The columns besides the sink's own."""
        self.is_whole = not columns
        """Whether the only one takes all of ``data``."""
        self._paths = [
            (msgspec.json.encode(column), path.split(".")) for column, path in columns.items()
        ]
        names = [quoted(column) for column in self.columns]
        self._parts = {
            "columns": "".join(f", {name}" for name in names),
            "values": ", new.value::jsonb"
            if self.is_whole
            else "".join(f", filled.{name}" for name in names),
            "changes": "".join(f", {name} = excluded.{name}" for name in names),
        }

    def check(self) -> None:
        """Raise SinkError if a column of the settings is one of the sink's own."""
        for column in self.columns:
            if column in OWN:
                raise SinkError(f"columns.{column}: the sink itself writes this column")

    def create(self, table: str) -> bytes:
        """Return the statement for a new table."""
        kind = "jsonb" if self.is_whole else "text"
        columns = "".join(f",\n    {quoted(column)} {kind}" for column in self.columns)
        return _CREATE.format(table=table, columns=columns).encode()

    def add_owner(self, table: str) -> str:
        """Return the statement for the column of the owner in a table."""
        return f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {OWNER} text"

    def others(self, table: str, cast: str, ids: list[str], owner: str, newest: int) -> Statement:
        """Return the query for rows of other owners, or of versions above ``newest``."""
        return Statement(table, query(_OTHERS, table, cast), (ids, owner, newest), ids)

    def unwritten(
        self, table: str, cast: str, ids: list[str], objects: Mapping[str, Numbered], owner: str
    ) -> Statement:
        """Return the query for ids whose rows are missing, older than the objects, or of others.

        ``objects``: of the batch, which may have deleted a row under another text of its id.
        """
        gone = [id for id, (_, each) in objects.items() if cast and each.op == "delete"]
        given, deleted = self._numbered(ids, objects), self._numbered(gone, objects)
        return Statement(table, query(_UNWRITTEN, table, cast), (*given, owner, *deleted), ids)

    def statements(
        self, table: str, cast: str, objects: Mapping[str, Numbered], owner: str, *, upload: str
    ) -> list[Statement]:
        """Return the statements for the objects of a table.

        ``cast``: of a text to the type of the id. ``upload``: temporary table for many rows; empty:
        none. Raises SinkError with the index of an invalid message. A number too large or a text
        without UTF-8 has none.
        """
        # In one order for all: two transactions do not wait for each other.
        ordered = [(id, *objects[id]) for id in sorted(objects)]
        found = []
        try:
            if written := [each for each in ordered if each[2].op != "delete"]:
                found.append(self._upsert(table, cast, written, owner, upload))
            if ids := [id for id, _, message in ordered if message.op == "delete"]:
                values = (*self._numbered(ids, objects), owner)
                found.append(Statement(table, query(_DELETE, table, cast), values, ids))
        except (struct.error, UnicodeError) as error:
            raise SinkError(f"PostgreSQL: {error}") from error
        return found

    def _numbered(
        self, ids: list[str], objects: Mapping[str, Numbered]
    ) -> tuple[arrays.Array, arrays.Array]:
        """Return the ids and versions of objects."""
        versions = [objects[id][1].version for id in ids]
        return arrays.strings([id.encode() for id in ids]), arrays.numbers(versions)

    def _upsert(
        self,
        table: str,
        cast: str,
        ordered: list[tuple[str, int, Message]],
        owner: str,
        upload: str,
    ) -> Statement:
        ids = [id for id, _, _ in ordered]
        encoded = [id.encode() for id in ids]
        versions = [message.version for _, _, message in ordered]
        sources = [message.source.encode() for _, _, message in ordered]
        at = [message.timestamp for _, _, message in ordered]
        rows = [self._value(index, message) for _, index, message in ordered]
        if upload and len(ids) >= COPY_FROM:
            name = quoted(upload)
            create = _TEMPORARY.format(rows=name).encode()
            copy = f"COPY pg_temp.{name} FROM STDIN (FORMAT binary)".encode()
            data = arrays.copy_rows(zip(encoded, versions, sources, at, rows, strict=True))
            sql = self._upsert_sql(table, cast, f"pg_temp.{name} AS new")
            return Statement(table, sql, (owner,), ids, Upload(create, copy, data))
        array, times = arrays.strings, arrays.times(at)
        values = (array(encoded), arrays.numbers(versions), array(sources), times, array(rows))
        return Statement(table, self._upsert_sql(table, cast, _ARRAYS), (owner, *values), ids)

    def _upsert_sql(self, table: str, cast: str, rows: str) -> bytes:
        # The row type of the table gives each column's type: PostgreSQL converts the values.
        filled = f", json_populate_record(NULL::{table}, new.value::json) AS filled"
        cast = _escaped(cast)
        # Two strings may be one id, such as 7 and 07. The newer one counts.
        return _UPSERT.format(
            table=_escaped(table),
            cast=cast,
            rows=rows,
            distinct=f"DISTINCT ON (new.id{cast}) " if cast else "",
            order=f" ORDER BY new.id{cast}, new.version DESC" if cast else "",
            filled="" if self.is_whole else _escaped(filled),
            **{name: _escaped(part) for name, part in self._parts.items()},
        ).encode()

    def _value(self, index: int, message: Message) -> bytes:
        try:
            data = message.json()
            return data if self.is_whole else self._chosen(data)
        except Exception as error:
            raise not_json(index, message, error) from error

    def _chosen(self, data: bytes) -> bytes:
        """Return the object of the columns. Its values are those of ``data``, byte for byte."""
        parts = [name + b":" + _at(data, path) for name, path in self._paths]
        return b"{" + b",".join(parts) + b"}"


def _at(value: bytes | msgspec.Raw, path: Sequence[str]) -> bytes:
    """Return the JSON at a path through objects; ``null`` if there is none."""
    for name in path:
        try:
            found = _members(value).get(name)
        except msgspec.ValidationError:  # no object
            found = None
        if found is None:
            return b"null"
        value = found
    found_bytes = bytes(value)
    # PostgreSQL leaves white space in a text. Format changes nothing else.
    is_nested = found_bytes.startswith((b"{", b"["))
    return msgspec.json.format(found_bytes, indent=-1) if is_nested else found_bytes


def query(statement: str, table: str, cast: str = "") -> bytes:
    """Return SQL for a table. ``cast``: of a text to the type of its id."""
    return statement.format(table=_escaped(table), cast=_escaped(cast)).encode()


def _escaped(text: str) -> str:
    """Return SQL for a statement with parameters, which begin with a percent sign."""
    return text.replace("%", "%%")

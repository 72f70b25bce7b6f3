"""The rows and the SQL statements of the sink for PostgreSQL. No I/O."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.collapse import Numbered
from oplog_pipe.sinks.lines import not_json

Statement = tuple[bytes, tuple[Any, ...]]

OWNER = "oplog_owner"
"""The column with the owner of a row. Null in rows of earlier releases."""

_OWN = ("id", "version", "source", "timestamp", OWNER)
_CREATE = """
CREATE TABLE {table} (
    id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    source text NOT NULL,
    "timestamp" timestamp with time zone NOT NULL,
    oplog_owner text{columns}
)
"""
# An interval is multiplied by a double: all milliseconds at once would be inexact after 2255.
# Arrays in binary form: as text they take four times as long. The value of a row is JSON.
_UPSERT = """
INSERT INTO {table} AS old (id, version, source, "timestamp", oplog_owner{columns})
SELECT new.id, new.version, new.source,
    'epoch'::timestamptz + new.ms / 1000 * interval '1 second'
        + new.ms %% 1000 * interval '1 millisecond', %b::text{values}
FROM unnest(%b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::text[])
    AS new (id, version, source, ms, value){tables}
ON CONFLICT (id) DO UPDATE SET version = excluded.version, source = excluded.source,
    "timestamp" = excluded."timestamp", oplog_owner = excluded.oplog_owner{changes}
WHERE old.version <= excluded.version
    AND (old.oplog_owner IS NULL OR old.oplog_owner = excluded.oplog_owner)
"""
_DELETE = """
DELETE FROM {table} old USING unnest(%b::text[], %b::bigint[]) AS gone (id, version)
WHERE old.id = gone.id AND old.version <= gone.version
    AND (old.oplog_owner IS NULL OR old.oplog_owner = %b::text)
"""
_OTHERS = """
SELECT id, oplog_owner, version FROM {table}
WHERE id = ANY(%b::text[]) AND (oplog_owner <> %b::text OR version > %b::bigint)
"""


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def table_name(schema: str | None, name: str) -> str:
    """Return a table's name as SQL."""
    return quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"


class Rows:
    """Makes statements. ``columns``: column -> path in ``data``; empty: one column ``data``."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._paths = {column: path.split(".") for column, path in columns.items()}
        names = [quoted(column) for column in columns] or ["data"]
        self._parts = {
            "columns": "".join(f", {name}" for name in names),
            "values": "".join(f", filled.{name}" for name in names)
            if columns
            else ", new.value::jsonb",
            "changes": "".join(f", {name} = excluded.{name}" for name in names),
        }

    def check(self) -> None:
        """Raise SinkError if a column of the settings is one of the sink's own."""
        for column in self._paths:
            if column in _OWN:
                raise SinkError(f"columns.{column}: the sink itself writes this column")

    def create(self, table: str) -> bytes:
        """Return the statement that creates a table."""
        kinds = [f"{quoted(column)} text" for column in self._paths] or ["data jsonb"]
        columns = "".join(f",\n    {kind}" for kind in kinds)
        return _CREATE.format(table=table, columns=columns).encode()

    def add_owner(self, table: str) -> str:
        """Return the statement that adds the column of the owner to a table."""
        return f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {OWNER} text"

    def others(self, table: str, ids: list[str], owner: str, newest: int) -> Statement:
        """Return the query for rows of other owners, or of versions above ``newest``."""
        return _OTHERS.format(table=_escaped(table)).encode(), (ids, owner, newest)

    def statements(
        self, table: str, objects: dict[str, Numbered], owner: str
    ) -> Iterator[tuple[Statement, list[str]]]:
        """Return the statements for the objects of a table, each with the ids of its rows.

        Raises SinkError with the index of a message that is no JSON.
        """
        # In one order for all: two transactions do not wait for each other.
        ordered = sorted(objects.items())
        upserts = [(id, *each) for id, each in ordered if each[1].op != "delete"]
        deletes = [(id, each[1].version) for id, each in ordered if each[1].op == "delete"]
        if upserts:
            rows = [
                (id, each.version, each.source, each.timestamp, self._value(index, each))
                for id, index, each in upserts
            ]
            ids, *others = map(list, zip(*rows, strict=True))
            yield (self._upsert(table), (owner, ids, *others)), ids
        if deletes:
            statement = _DELETE.format(table=_escaped(table))
            ids, versions = map(list, zip(*deletes, strict=True))
            yield (statement.encode(), (ids, versions, owner)), ids

    def _upsert(self, table: str) -> bytes:
        # The row type of the table gives each column's type: PostgreSQL converts the values.
        filling = (
            f", json_populate_record(NULL::{table}, new.value::json) AS filled"
            if self._paths
            else ""
        )
        statement = _UPSERT.format(
            table=_escaped(table),
            tables=_escaped(filling),
            **{name: _escaped(part) for name, part in self._parts.items()},
        )
        return statement.encode()

    def _value(self, index: int, message: Message) -> str:
        try:
            if not self._paths:
                return message.json().decode()
            data = message.data
            values = {column: _at(data, path) for column, path in self._paths.items()}
            return msgspec.json.encode(values).decode()
        except Exception as error:
            raise not_json(index, message, error) from error


def _at(data: Any, path: list[str]) -> Any:
    """Return the value at a path through objects; None if there is none."""
    for name in path:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def _escaped(text: str) -> str:
    """Return SQL for a statement with parameters, which begin with a percent sign."""
    return text.replace("%", "%%")

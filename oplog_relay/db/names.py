"""The configured names of the outbox table and its columns, quoted for SQL. No I/O."""

from dataclasses import fields
from typing import NamedTuple, Self

from oplog_relay.errors import ConfigError
from oplog_relay.settings import Table

COLUMNS = tuple(field.name for field in fields(Table) if field.name != "name")


class Names(NamedTuple):
    """Quoted names. ``table`` includes the schema if there is one."""

    table: str
    id: str
    create_time: str
    topic: str
    key: str
    value: str
    header_keys: str
    header_values: str
    leader_id: str

    @classmethod
    def of(cls, table: Table) -> Self:
        """Quote the names of a table. Raises ConfigError."""
        check(table)
        schema, name = split(table)
        quoted = quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"
        return cls(quoted, *(quote(getattr(table, column)) for column in COLUMNS))


def split(table: Table) -> tuple[str | None, str]:
    """Return the schema, or None, and the name of the table."""
    schema, dot, name = table.name.rpartition(".")
    return (schema if dot else None), name


def quote(name: str) -> str:
    """Quote an identifier as standard SQL does. Upper and lower case then differ."""
    return '"' + name.replace('"', '""') + '"'


def check(table: Table) -> None:
    """Raise ConfigError for a name that no table or column can have, or that is there twice."""
    parts = table.name.split(".")
    if len(parts) > 2 or "" in parts or "\0" in table.name:
        raise ConfigError(f"database.table: {table.name!r} is neither a table nor schema.table")
    used: dict[str, str] = {}
    for setting in COLUMNS:
        value: str = getattr(table, setting)
        if not value or "\0" in value:
            raise ConfigError(f"database.columns.{setting}: must be a name, not {value!r}")
        if (other := used.setdefault(value.lower(), setting)) != setting:
            raise ConfigError(
                f"database.columns.{setting}: {value!r} is already the column of {other}"
            )

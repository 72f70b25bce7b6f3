"""The configured names of the outbox table and its columns, quoted for SQL. No I/O."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from typing import NamedTuple, Self

from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Table

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
        setting = "database.table"
        try:
            check_table(table.name)
            for column in COLUMNS:
                setting = f"database.columns.{column}"
                check_column(getattr(table, column))
        except ValueError as error:
            raise ConfigError(f"{setting}: {error}") from None
        for setting, sentence in repeated(table):
            raise ConfigError(f"{setting}: {sentence}")
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


def check_table(name: str) -> None:
    """Raise ValueError for an invalid name of a table, which may have a schema."""
    parts = name.split(".")
    if not name.isprintable() or len(parts) > 2 or "" in parts:
        raise ValueError(f"{name!r} must be table or schema.table")


def check_column(name: str) -> None:
    """Raise ValueError for an invalid name of a column."""
    if not name or not name.isprintable():
        raise ValueError(f"{name!r} must be a name")


def repeated(table: Table) -> Iterator[tuple[str, str]]:
    """Yield setting and sentence for each column with the name of another."""
    used: dict[str, str] = {}
    for column in COLUMNS:
        if (other := used.setdefault(getattr(table, column).lower(), column)) != column:
            yield f"database.columns.{column}", f"has the name of the column {other}, too"


def check_columns(
    table: Table, columns: Collection[str], kind: str, folded: Callable[[str], str] = str
) -> None:
    """Raise ConfigError for a missing table or column. ``kind``: of the database.

    ``columns``: names in the table. Empty: there is no table. ``folded``: folds a name as in
    ``columns``.
    """
    name = Names.of(table).table
    if not columns:
        raise ConfigError(
            f"database.table: the database has no table {name}; `oplog-relay schema {kind}` prints"
            " one"
        )
    for setting in COLUMNS:
        column: str = getattr(table, setting)
        if folded(column) not in columns:
            raise ConfigError(
                f"database.columns.{setting}: the table {name} has no column {column!r};"
                f" `oplog-relay schema {kind}` prints a table that fits"
            )

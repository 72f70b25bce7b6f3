"""What a table of PostgreSQL can take."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

OWNER = "oplog_owner"
"""The column with the owner of a row. Null in rows of earlier releases."""

LOCK = "SELECT pg_advisory_xact_lock(hashtext('oplog-pipe'), hashtext('create'))"
"""Of a transaction that creates a table: PostgreSQL fails if two do so at the same moment."""

OWN = ("id", "version", "source", "timestamp", OWNER)
"""The columns that the sink writes itself."""

# Of a domain: its base type. A view needs no index of its own. A trigger BEFORE INSERT FOR EACH ROW
# (bits 2, 4 and 1) may fill columns.
_COLUMNS = """
SELECT columns.attname::text,
    format_type(coalesce(nullif(kinds.typbasetype, 0), kinds.oid), NULL), kinds.typcategory::text,
    columns.attnotnull, columns.atthasdef OR columns.attidentity <> '',
    columns.attgenerated <> '' OR columns.attidentity = 'a',
    places.relkind NOT IN ('r', 'p') OR EXISTS (SELECT FROM pg_index
        WHERE indrelid = found.oid AND indisunique AND indimmediate AND indpred IS NULL
        AND indnkeyatts = 1 AND indkey[0] = columns.attnum),
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = found.oid AND NOT tgisinternal
        AND tgtype & 7 = 7),
    has_table_privilege(found.oid, 'DELETE'),
    coalesce(collations.collisdeterministic, true)
FROM to_regclass(%s) AS found(oid)
JOIN pg_class places ON places.oid = found.oid
JOIN pg_attribute columns ON columns.attrelid = found.oid AND columns.attnum > 0
    AND NOT columns.attisdropped
JOIN pg_type kinds ON kinds.oid = columns.atttypid
LEFT JOIN pg_collation collations ON collations.oid = columns.attcollation
"""
# Ids are strings: PostgreSQL compares and assigns these types without a conversion.
_STRINGS = ("text", "character varying", "character", "name")


class Column(NamedTuple):
    """``kind``: ``pg_type.typcategory``: S is text, D a time. ``is_exact``: no two ids are equal.

    ``table_has_trigger``, ``may_delete``: of the table.
    """

    name: str
    type: str
    kind: str
    is_required: bool
    has_default: bool
    is_generated: bool
    is_unique: bool
    table_has_trigger: bool
    may_delete: bool
    is_exact: bool


class TargetTable:
    """An existing table."""

    def __init__(self, name: str, columns: Sequence[Column]) -> None:
        self._name = name
        self._columns = {column.name: column for column in columns}
        self.is_owned = OWNER in self._columns
        id = self._columns.get("id")
        self.id_cast = "" if id is None or id.type in _STRINGS else f"::{id.type}"
        """SQL for the conversion of a string to the type of the id. Empty: none is needed."""

    def faults(self, written: Sequence[str], *, whole: bool) -> list[str]:
        """Return why the table can take no row.

        ``written``: columns besides the sink's own. ``whole``: the only one takes all of ``data``.
        """
        names = (*OWN[:-1], *written)
        missing = [name for name in names if name not in self._columns]
        found = [f"it has no column {name}" for name in missing]
        for name, column in self._columns.items():
            if name not in (*names, OWNER):
                continue
            if column.is_generated:
                found.append(f"the column {name} is generated, so it cannot be written")
            elif (name, column.type) == ("id", "name"):
                found.append("the column id is name, which cuts ids at 63 bytes; use text")
            elif wanted := _wanted(column, whole=whole):
                found.append(f"the column {name} is {column.type}; it must be {wanted}")
        id = self._columns.get("id")
        if id and not id.is_unique:
            found.append("the column id must be the primary key, or have a unique index")
        if id and not id.is_exact:
            several = "takes several strings for one id; use a deterministic one"
            found.append(f"the collation of the column id {several}")
        return [f"table {self._name}: {each}" for each in found]

    def refusal(self) -> str | None:
        """Return a sentence about a missing right to delete rows. None: the user has it."""
        if all(column.may_delete for column in self._columns.values()):
            return None
        grant = "grant DELETE, or the end of a copy fails"
        return f"table {self._name}: the user may not delete rows: {grant}"

    def gaps(self, written: Sequence[str]) -> list[str]:
        """Return a sentence for each column without its required value."""
        return [
            f"table {self._name}: the column {name} is NOT NULL without a default, and the sink"
            " does not write it"
            for name, column in self._columns.items()
            if column.is_required
            and not (column.has_default or column.is_generated or column.table_has_trigger)
            and name not in (*OWN, *written)
        ]


def read_table(connection: Connection, name: str) -> TargetTable | None:
    """Return a table. ``name``: as SQL. None: there is none."""
    rows = connection.execute(_COLUMNS, [name]).fetchall()
    return TargetTable(name, [Column._make(row) for row in rows]) if rows else None


def _wanted(column: Column, *, whole: bool) -> str | None:
    """Return which type a column of the sink should have. None: its type will do."""
    is_text = column.kind == "S"
    match column.name:
        case "version" if column.type not in ("bigint", "numeric"):
            return "bigint"
        case "source" | "oplog_owner" if not is_text:
            return "text"
        case "timestamp" if not is_text and column.kind != "D":
            return "timestamp with time zone"
        case "data" if whole and not is_text and column.type not in ("jsonb", "json"):
            return "jsonb"
    return None

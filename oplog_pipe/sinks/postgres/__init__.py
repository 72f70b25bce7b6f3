"""The sink for PostgreSQL, through psycopg 3: its options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oplog_pipe.model.fields import ID, Field, Kind, template, timeout
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.base import Sink

_PATH = re.compile(r"[^.]+(\.[^.]+)*", re.DOTALL)


def _check_url(text: str) -> None:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be an address such as postgresql://user@host/database")


def _check_path(text: str) -> None:
    if not _PATH.fullmatch(text):
        raise ValueError(f"{text!r} must be a path such as owner.name")


@dataclass(frozen=True)
class PostgresOptions(SinkOptions):
    """``columns``: column -> path in ``data``, such as ``owner.name``; empty: one column ``data``.

    ``create``: create the table if it is missing. ``table`` may be ``schema.table``.
    """

    type_name = "postgres"
    hints = ("pg", "postgresql")
    settings = (
        Field(
            "url",
            Kind.URL,
            "Database, such as `postgresql://user@host/database`. Files in it, such as "
            "`sslrootcert`, are relative to the folder of the settings file.",
            check=_check_url,
            required="give the database, such as postgresql://user@host/database",
        ),
        template("table", "Table, or `schema.table`, with `{namespace}`.")._replace(
            hints=("target",)
        ),
        ID,
        Field(
            "columns",
            Kind.TEXT_MAPPING,
            "Columns and their paths in `data`, such as `owner: owner.name`. Without it: one "
            "column `data` with all of it.",
            check=_check_path,
            hints=("fields", "mapping"),
        ),
        Field("create", Kind.FLAG, "Create a table that is missing."),
        timeout("Time for one write."),
    )
    identity = ("table", "id", "columns")
    place = "table"

    url: str = field(repr=False)
    table: str = "{namespace}"
    id: str = "{id}"
    columns: Mapping[str, str] = field(default_factory=dict)
    create: bool = True
    timeout: float = 30.0

    def sink(self, namespace: str, root: Path) -> Sink:
        from oplog_pipe.sinks.postgres.sink import PostgresSink

        return PostgresSink(self, namespace, root)

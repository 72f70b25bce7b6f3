"""SQLite, through the standard library."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self
from urllib.parse import unquote, urlsplit

from oplog_relay.db.base import DatabaseOutbox, DatabaseUrl
from oplog_relay.db.rows import text_of
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Table

# Parameters of SQLAlchemy and Python, not of SQLite.
_OWN = ("uri", "timeout", "isolation_level", "detect_types", "check_same_thread")


@dataclass(frozen=True)
class SqliteUrl(DatabaseUrl):
    """``file``: a path, or with ``is_uri`` a URI of SQLite. ``busy``: seconds, or None."""

    kind = "sqlite"
    label = "SQLite"
    dialect = "sqlite"
    schemes = ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite")
    examples = ("sqlite:///app.db (relative)", "sqlite:////data/app.db")
    drivers: ClassVar = {"sqlite3": "?"}
    # STRICT and the JSON functions are missing in some SQLite versions of Python 3.11.
    schema = """\
CREATE TABLE {table} (
    -- AUTOINCREMENT: the id of a deleted row is never used again.
    {id} INTEGER PRIMARY KEY AUTOINCREMENT,
    {create_time} TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    {topic} TEXT NOT NULL CHECK (length({topic}) <= {max_topic}),
    {key} TEXT NOT NULL CHECK (length({key}) <= {max_key}),
    {value} TEXT,
    -- JSON: a list of strings.
    {header_keys} TEXT NOT NULL DEFAULT '[]',
    {header_values} TEXT NOT NULL DEFAULT '[]',
    {leader_id} TEXT
);
"""
    now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    begin = "BEGIN IMMEDIATE"

    file: str
    is_uri: bool = False
    busy: float | None = None

    @classmethod
    def read(cls, parts: Mapping[str, str], query: Mapping[str, list[str]]) -> Self:
        if any(parts.get(name) for name in ("user", "password", "host", "ipv6", "port")):
            raise ConfigError(
                "database.url: a path of SQLite comes after three slashes, an absolute one after"
                " four: sqlite:///app.db, sqlite:////data/app.db"
            )
        file = unquote(parts.get("database", ""))
        is_uri = query.get("uri", ["false"])[-1].lower() in ("1", "true", "yes", "on", "y", "t")
        if not file or ":memory:" in file or query.get("mode", [""])[-1] == "memory":
            raise ConfigError("database.url: a database in memory has no other users; name a file")
        busy: float | None = None
        if "timeout" in query:
            try:
                busy = float(query["timeout"][-1])
            except ValueError:
                raise ConfigError("database.url: timeout must be a number of seconds") from None
        rest = [f"{name}={each[-1]}" for name, each in query.items() if name not in _OWN]
        if is_uri and rest:
            file += f"?{'&'.join(rest)}"
        return cls(file, is_uri, busy)

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        is_uri = self.is_uri and self.file.startswith("file:")
        return Path(unquote(urlsplit(self.file).path) if is_uri else self.file).absolute()

    def outbox(self, table: Table) -> DatabaseOutbox:
        from oplog_relay.db.sqlite.outbox import SqliteOutbox

        return SqliteOutbox(self, table)

    def connect(self, patience: float, *, autocommit: bool) -> sqlite3.Connection:
        # A missing file must not be created.
        file = self.file if self.is_uri else f"{self.path.as_uri()}?mode=rw"
        busy = patience if self.busy is None else self.busy
        isolation: Literal["DEFERRED"] | None = None if autocommit else "DEFERRED"
        connection = sqlite3.connect(
            file, busy, uri=True, isolation_level=isolation, check_same_thread=False
        )
        connection.text_factory = text_of
        return connection
